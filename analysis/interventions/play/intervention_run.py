"""Play all arms of an experiment, keep what each group of episodes leaves, and go on where a run was interrupted."""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.interventions import REPLAYED_EPISODE, Arm, LivesTable, Readability, replayed_arms
from analysis.interventions.edits.linear_readings import (
    Reading,
    StateMoments,
    fitted_eraser,
    from_arrays,
    held_out_r_squared,
    to_arrays,
)
from analysis.interventions.play.arm_edits import Moments
from analysis.interventions.play.edited_play import PlayedGroup, play_arm
from analysis.interventions.play.experiment import ArmPlan, Experiment
from analysis.interventions.play.recordings import RecordedArms
from common.array_files import read_tensors, write_tensors
from common.checked_json import read_small_json, with_checksum, without_checksum
from common.files import sha256, write_bytes, write_json
from common.user_error import UserError
from reinforcement_learning.play.contest import Contest, Group, PlayedAgain, groups
from reinforcement_learning.play.parallel_play import play_groups
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished
from reinforcement_learning.play.workers import Workers

GROUPS_FOLDER = "groups"
"""Folder in a run's folder of what each group left."""


@dataclass(frozen=True)
class ArmGroup(Group):
    """A group of episodes of one arm."""

    arm: str


def play_group(
    pool: PolicyPool, group: ArmGroup, plans: Mapping[str, ArmPlan]
) -> Iterator[Batch | Finished | PlayedGroup]:
    """Play a group of episodes as its arm is edited."""
    yield from play_arm(pool, group, plans[group.arm])


class PlayedArms:
    """The groups of episodes that a run has played, in files that each prove themselves.

    Attributes:
        groups: of episodes, the same for every arm.
        dumps: of the arms that are recorded; to be open while they are played.
    """

    def __init__(self, experiment: Experiment, dumps: RecordedArms):
        options = experiment.options
        self.experiment, self.dumps = experiment, dumps
        self.arms, self.groups = experiment.arms(), groups(options.seed, options.episodes)
        self._folder = options.folder / GROUPS_FOLDER
        self._replays = {arm.name: options.folder / name for name, arm in replayed_arms(self.arms).items()}

    def missing(self, arm: Arm) -> list[ArmGroup]:
        """Return an arm's groups that are not stored, or damaged, or not in the arm's dump."""
        return [
            group for group in self._groups_of(arm) if self._stored(group) is None or not self.dumps.hold(arm, group)
        ]

    def episodes_missing(self) -> int:
        """Return how many episodes of all arms are missing."""
        return sum(len(group.numbers) for arm in self.arms for group in self.missing(arm))

    def plan(self, arm: Arm, moments: Moments) -> ArmPlan:
        """Return how an arm is played; arguments and errors as `Experiment.plan`."""
        replayed = REPLAYED_EPISODE if arm.name in self._replays else None
        return replace(self.experiment.plan(arm, moments), replayed=replayed, recorded=self.dumps.layers_of(arm))

    def store(self, group: ArmGroup, played: PlayedGroup) -> None:
        """Keep what a group left."""
        path = self._path(group)
        if played.moments:
            write_tensors(path.with_suffix(".safetensors"), to_arrays(played.moments), path.stem, "state moments")
        content: dict[str, Any] = {"arm": group.arm, "numbers": group.numbers, "rows": played.rows}
        if played.replay is not None:
            write_bytes(self._replays[group.arm], played.replay)
            content["replay"] = hashlib.sha256(played.replay).hexdigest()
        write_json(path, with_checksum(content))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all lives of all arms."""
        return [row for arm in self.arms for group in self._groups_of(arm) for row in self._stored(group) or ()]

    def moments(self, arm: Arm) -> dict[str, StateMoments]:
        """Return the moments that an arm summed up, over all its groups in their order."""
        total: dict[str, StateMoments] = {}
        for of_group in self.moments_by_group(arm):
            for name, part in of_group.items():
                total[name] = total[name] + part if name in total else part
        return total

    def moments_by_group(self, arm: Arm) -> list[dict[str, StateMoments]]:
        """Return the moments that each group of an arm summed up; empty if there are none."""
        paths = [self._path(group).with_suffix(".safetensors") for group in self._groups_of(arm)]
        return [from_arrays(read_tensors(path, "state moments")[0]) if path.exists() else {} for path in paths]

    def _groups_of(self, arm: Arm) -> list[ArmGroup]:
        return [ArmGroup(group.seed, group.numbers, arm.name) for group in self.groups]

    def _path(self, group: ArmGroup) -> Path:
        place = [arm.name for arm in self.arms].index(group.arm)
        return self._folder / f"arm{place:03d}-{group.numbers[0]:06d}.json"

    def _stored(self, group: ArmGroup) -> list[dict[str, Any]] | None:
        path = self._path(group)
        if not path.exists():
            return None
        try:
            content: Any = read_small_json(path)
            stored = without_checksum(content, str(path))
            LivesTable.of_rows(stored["rows"])
            fits = stored["numbers"] == list(group.numbers) and stored["arm"] == group.arm
        except (UserError, AttributeError, LookupError, TypeError, ValueError, OverflowError):
            return None  # played again
        return stored["rows"] if fits and self._has_replay(group, stored.get("replay")) else None

    def _has_replay(self, group: ArmGroup, proof: str | None) -> bool:
        if group.arm not in self._replays or REPLAYED_EPISODE not in group.numbers:
            return True
        path = self._replays[group.arm]
        return path.exists() and sha256(path) == proof


def play_experiment(
    played: PlayedArms, contests: Mapping[str, Contest], workers: Workers, on_episodes: Callable[[int], None]
) -> LivesTable:
    """Play what is missing, and return the lives of all arms.

    Args:
        contests: the trained policy alone in its world, and the untrained one in the same world, by those words.
        on_episodes: called with the number of episodes that have just been played.

    Raises:
        NothingToErase: as `Experiment.plan`, before anything but unedited arms is played.
        UserError: as `Experiment.plan` and `play_groups`.
    """
    twins = {arm.policy: arm for arm in played.arms if arm.kind == "unedited"}
    for is_twin in (True, False):  # the moments of the twins' states determine the other arms
        moments = {} if is_twin else {policy: played.moments(twin) for policy, twin in twins.items()}
        wanted = [arm for arm in played.arms if (arm.kind == "unedited") == is_twin]
        plans = {arm.name: played.plan(arm, moments.get(arm.policy, {})) for arm in wanted}
        for policy, contest in contests.items():
            mine = [arm for arm in wanted if arm.policy == policy]
            missing = [group for arm in mine for group in played.missing(arm)]
            if missing:
                job = functools.partial(play_group, plans={arm.name: plans[arm.name] for arm in mine})
                _play(played, play_groups(contest, missing, job, workers), on_episodes)
    return LivesTable.of_rows(played.rows())


def _play(played: PlayedArms, results: Iterable[tuple[Group, Any]], on_episodes: Callable[[int], None]) -> None:
    """Keep what groups leave while they are played."""
    for group, result in results:
        assert isinstance(group, ArmGroup)
        if isinstance(result, PlayedGroup):
            played.store(group, result)
            on_episodes(len(group.numbers))
        elif isinstance(result, PlayedAgain):
            played.dumps.start_over(group.arm, group)
        else:
            played.dumps.take(group.arm, result)


def readability(played: PlayedArms) -> list[Readability]:
    """Measure how well erased variables can be read: from the unedited states, from these erased, and in play.

    Returns:
        One for each variable that a run has erased, in each arm that erases it; empty if it erases nothing.
    """
    twins = {arm.name: arm for arm in played.arms if arm.kind == "unedited"}
    measured: list[Readability] = []
    for arm in played.arms:
        if arm.kind == "edit" and played.experiment.readings:
            unedited, edited = (played.moments_by_group(side) for side in (twins[arm.twin], arm))
            total = played.moments(twins[arm.twin])
            for reading in played.experiment.readings:
                measured += _of_reading(reading, arm, total, unedited, edited)
    return measured


def _of_reading(
    reading: Reading, arm: Arm, total: Moments, unedited: Sequence[Moments], edited: Sequence[Moments]
) -> Iterator[Readability]:
    moments = reading.of(total[reading.name])
    before = moments.r_squared()
    after = moments.r_squared(fitted_eraser(reading, moments, arm.policy).kept)
    elsewhere, in_play = (
        held_out_r_squared([reading.of(group[reading.name]) for group in played]) for played in (unedited, edited)
    )
    for place, name in enumerate(reading.variables):
        yield Readability(
            arm.name, reading.layer, name, moments.sums.count, float(before[place]), float(after[place]),
            _number_or_none(elsewhere, place), _number_or_none(in_play, place),
        )  # fmt: skip


def _number_or_none(values: np.ndarray | None, place: int) -> float | None:
    return None if values is None or np.isnan(values[place]) else float(values[place])
