"""Play all arms of an experiment, keep what each group of episodes leaves, and go on where a run was interrupted."""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.checked_json import read_small_json, with_checksum, without_checksum
from activation_store.files import sha256, write_bytes, write_json
from activation_store.interventions import REPLAYED_EPISODE, Arm, LivesTable, Readability, replayed_arms
from activation_store.tensor_file import read_tensors, write_tensors
from agent_zoo.erasure import fitted_eraser
from agent_zoo.linear_readings import Reading, held_out_r_squared
from agent_zoo.state_moments import StateMoments, from_arrays, to_arrays
from reinforcement_learning.interventions.edited_play import PlayedGroup, play_arm
from reinforcement_learning.interventions.experiment import ArmPlan, Experiment
from reinforcement_learning.interventions.recordings import RecordedArms
from reinforcement_learning.play.contest import Contest, Group, groups
from reinforcement_learning.play.jobs import PlayedAgain
from reinforcement_learning.play.parallel_play import play_groups
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished
from reinforcement_learning.play.workers import Workers
from user_error import UserError

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
    """The groups of episodes that a run has played, in files that each prove themselves."""

    def __init__(self, folder: Path, arms: Sequence[Arm], dumps: RecordedArms | None = None):
        """Look in a run's folder, and in its dumps if they are open."""
        self._folder = folder / GROUPS_FOLDER
        self._arms = [arm.name for arm in arms]
        self._dumps = dumps
        self._replays = {arm.name: folder / name for name, arm in replayed_arms(arms).items()}

    def missing(self, arm: Arm, every: Sequence[Group]) -> list[ArmGroup]:
        """Return an arm's groups that are not stored, or damaged, or not in the arm's dump."""
        wanted = [ArmGroup(group.seed, group.numbers, arm.name) for group in every]
        return [group for group in wanted if self._stored(group) is None or not self._is_recorded(arm, group)]

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

    def rows(self, every: Sequence[Group]) -> list[dict[str, Any]]:
        """Return the rows of all lives of all arms."""
        found = (self._stored(ArmGroup(group.seed, group.numbers, arm)) for arm in self._arms for group in every)
        return [row for rows in found for row in rows or ()]

    def moments(self, arm: Arm, every: Sequence[Group]) -> dict[str, StateMoments]:
        """Return the moments that an arm summed up, over all its groups in their order."""
        total: dict[str, StateMoments] = {}
        for group in every:
            for name, each in self.moments_of_group(arm, group).items():
                total[name] = total[name] + each if name in total else each
        return total

    def replayed(self, arm: Arm) -> int | None:
        """Return the number of the episode of an arm whose replay is kept; None for none."""
        return REPLAYED_EPISODE if arm.name in self._replays else None

    def moments_of_group(self, arm: Arm, group: Group) -> dict[str, StateMoments]:
        """Return the moments that one group of an arm summed up; empty if there are none."""
        path = self._path(ArmGroup(group.seed, group.numbers, arm.name)).with_suffix(".safetensors")
        return from_arrays(read_tensors(path, "state moments")[0]) if path.exists() else {}

    def _is_recorded(self, arm: Arm, group: Group) -> bool:
        return self._dumps is None or self._dumps.hold(arm, group)

    def _path(self, group: ArmGroup) -> Path:
        return self._folder / f"arm{self._arms.index(group.arm):03d}-{group.numbers[0]:06d}.json"

    def _stored(self, group: ArmGroup) -> list[dict[str, Any]] | None:
        path = self._path(group)
        if not path.exists():
            return None
        try:
            content: Any = read_small_json(path)
            rows = without_checksum(content, str(path))
        except (UserError, AttributeError):
            return None  # played again
        fits = rows["numbers"] == list(group.numbers) and rows["arm"] == group.arm
        return rows["rows"] if fits and self._has_replay(group, rows.get("replay")) else None

    def _has_replay(self, group: ArmGroup, proof: str | None) -> bool:
        if group.arm not in self._replays or REPLAYED_EPISODE not in group.numbers:
            return True
        path = self._replays[group.arm]
        return path.exists() and sha256(path) == proof


def play_experiment(
    folder: Path, experiment: Experiment, contests: Mapping[str, Contest], seed: int, episodes: int, workers: Workers,
    on_episodes: Callable[[int], None], dumps: RecordedArms,
) -> LivesTable:  # fmt: skip
    """Play what is missing, and return the lives of all arms.

    Args:
        folder: of the run.
        experiment: what is done.
        contests: the trained policy alone in its world, and the untrained one in the same world, by those words.
        seed: of the episodes.
        episodes: number of episodes, the same for every arm.
        workers: where to play.
        on_episodes: called with the number of episodes that have just been played.
        dumps: of the arms that are recorded, open.

    Raises:
        NothingToErase: as `Experiment.plan`, before anything but unedited arms is played.
        UserError: as `Experiment.plan` and `play_groups`.
    """
    arms, every = experiment.arms(), groups(seed, episodes)
    played = PlayedArms(folder, arms, dumps)
    twins = {arm.policy: arm for arm in arms if arm.kind == "unedited"}
    for of_twin in (True, False):  # the moments of the twins' states determine the other arms
        moments = {} if of_twin else {policy: played.moments(twin, every) for policy, twin in twins.items()}
        wanted = [arm for arm in arms if (arm.kind == "unedited") == of_twin]
        plans = {
            arm.name: replace(
                experiment.plan(arm, moments.get(arm.policy, {})),
                replayed=played.replayed(arm),
                recorded=dumps.layers_of(arm),
            )
            for arm in wanted
        }
        for policy, contest in contests.items():
            mine = [arm for arm in wanted if arm.policy == policy]
            missing = [group for arm in mine for group in played.missing(arm, every)]
            if not missing:
                continue
            job = functools.partial(play_group, plans={arm.name: plans[arm.name] for arm in mine})
            for group, told in play_groups(contest, missing, job, workers):
                assert isinstance(group, ArmGroup)
                if isinstance(told, PlayedGroup):
                    played.store(group, told)
                    on_episodes(len(group.numbers))
                elif isinstance(told, PlayedAgain):
                    dumps.start_over(group.arm, group)
                else:
                    dumps.take(group.arm, told)
    return LivesTable.of_rows(played.rows(every))


def episodes_to_play(folder: Path, experiment: Experiment, seed: int, episodes: int, dumps: RecordedArms) -> int:
    """Return how many episodes of all arms are missing; arguments as `play_experiment`."""
    arms, every = experiment.arms(), groups(seed, episodes)
    played = PlayedArms(folder, arms, dumps)
    return sum(len(group.numbers) for arm in arms for group in played.missing(arm, every))


_Moments = Mapping[str, StateMoments]


def readability(folder: Path, experiment: Experiment, seed: int, episodes: int) -> list[Readability]:
    """Measure it for each variable that a run has erased, in each arm that erases it; empty if it erases nothing."""
    arms, every = experiment.arms(), groups(seed, episodes)
    played = PlayedArms(folder, arms)
    twins = {arm.name: arm for arm in arms if arm.kind == "unedited"}
    found: list[Readability] = []
    for arm in arms:
        if arm.kind == "edit" and experiment.readings:
            unedited, edited = (
                [played.moments_of_group(each, group) for group in every] for each in (twins[arm.twin], arm)
            )
            total = played.moments(twins[arm.twin], every)
            for reading in experiment.readings:
                found += _of_reading(reading, arm, total, unedited, edited)
    return found


def _of_reading(
    reading: Reading, arm: Arm, total: _Moments, unedited: Sequence[_Moments], edited: Sequence[_Moments]
) -> Iterator[Readability]:
    moments = reading.of(total[reading.name])
    before = moments.r_squared()
    after = moments.r_squared(fitted_eraser(reading, moments, arm.policy).kept)
    elsewhere, in_play = (
        held_out_r_squared([reading.of(each[reading.name]) for each in played]) for played in (unedited, edited)
    )
    for place, name in enumerate(reading.variables):
        yield Readability(
            arm.name, reading.layer, name, moments.sums.count, float(before[place]), float(after[place]),
            _number_or_none(elsewhere, place), _number_or_none(in_play, place),
        )  # fmt: skip


def _number_or_none(values: np.ndarray | None, place: int) -> float | None:
    return None if values is None or np.isnan(values[place]) else float(values[place])
