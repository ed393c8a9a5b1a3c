"""From the options of `intervene.py` to a run that has been played.

All arms are played, what each group of episodes leaves is kept, and an interrupted run goes on where it was.
"""

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.directions import read_directions
from activation_store.interventions import (
    EDITED_REPLAY,
    LIVES_FILE,
    REPLAYED_EPISODE,
    RUN_FILE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    Readability,
    replayed_arms,
    write_lives,
)
from activation_store.layers import ENCODER_OUTPUT, LSTM_CELL, LSTM_HIDDEN
from activation_store.sparse_dictionary import FEATURE, SparseDictionary, read_dictionary
from agent_zoo.capture import layer_units
from agent_zoo.checkpoint import versions
from analysis.interventions.edits.edit import Edit, Moments
from analysis.interventions.edits.edit_options import GOAL, RunOptions
from analysis.interventions.edits.linear_readings import (
    NothingToErase,
    Reading,
    StateMoments,
    fitted_eraser,
    from_arrays,
    held_out_r_squared,
    to_arrays,
)
from analysis.interventions.edits.state_edits import check_dictionary
from analysis.interventions.effects.inference import planned_lines
from analysis.interventions.play.edited_play import PlayedGroup, play_arm
from analysis.interventions.play.experiment import (
    ArmPlan,
    Condition,
    Experiment,
    When,
    body_condition,
    feature_condition,
    like_selection,
    rule_in_words,
    selection_rule,
)
from analysis.interventions.play.recordings import DUMPS_FOLDER, RecordedArms
from common.argument_checks import parts_of, split
from common.array_files import read_tensors, write_tensors
from common.checked_json import read_small_json, with_checksum, without_checksum
from common.command_line import this_command
from common.files import locked_folder, make_folder, sha256, write_bytes, write_json
from common.progress_view import progress
from common.user_error import UserError
from reinforcement_learning.play.contest import Contest, Group, PlayedAgain, groups, make_maps
from reinforcement_learning.play.entrants import encoding_of, untrained_twin
from reinforcement_learning.play.extraction import RecordingPlan
from reinforcement_learning.play.parallel_play import play_groups
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished
from reinforcement_learning.play.subjects import Subjects, contests, expected_size
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


def _results(
    played: PlayedArms, contests: Mapping[str, Contest], workers: Workers
) -> Iterator[tuple[ArmGroup, PlayedGroup | Batch | Finished | PlayedAgain]]:
    """Play what is missing; each group must be kept before the next result is taken.

    Args:
        contests: the trained policy alone in its world, and the untrained one in the same world, by those words.

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
            if missing := [group for arm in mine for group in played.missing(arm)]:
                job = functools.partial(play_group, plans={arm.name: plans[arm.name] for arm in mine})
                for group, result in play_groups(contest, missing, job, workers):
                    assert isinstance(group, ArmGroup)
                    yield group, result


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


_NOT_SETTINGS = (
    "output", "resume", "vectorization", "ray_address", "workers", "policies_dir", "maps_dir", "embeddings_dir",
    "equivalent_within", "command",
)  # fmt: skip
"""What does not change the results."""


def play(options: RunOptions, workers: Workers) -> None:
    """Say what a run will be able to find, play what is missing of it, and write its lives.

    Raises:
        UserError: the policy, the directions, the condition or the layer do not fit, the folder holds another run, or
            a variable that is to be erased does not vary; nothing is left of the run then.
    """
    contest = _contest(options)
    experiment = _experiment(options, contest)
    folder = options.folder
    described = _described(experiment, contest)
    _claim(folder, described, resume=options.resume)
    agents, horizon = contest.env.num_agents, contest.played.horizon
    for line in planned_lines(experiment.arms(), options.episodes, experiment.drawn, agents, horizon):
        print(line, flush=True)
    make_maps(contest.env, [options.seed], options.episodes)
    with locked_folder(folder):
        write_json(folder / RUN_FILE, with_checksum(described))
        try:
            played, lives = _played(experiment, contest, workers)
        except NothingToErase:  # the run cannot be played: nothing is left of it
            for name in (GROUPS_FOLDER, DUMPS_FOLDER):
                shutil.rmtree(folder / name, ignore_errors=True)
            for name in (UNEDITED_REPLAY, EDITED_REPLAY):
                (folder / name).unlink(missing_ok=True)
            (folder / RUN_FILE).unlink()
            with contextlib.suppress(OSError):  # something else is in it
                folder.rmdir()
            raise
        if erased := readability(played):
            write_json(
                folder / RUN_FILE, with_checksum({**described, "erased": [asdict(reading) for reading in erased]})
            )
        write_lives(folder / LIVES_FILE, lives)
    for dump_folder in played.dumps.folders:
        print(f"dump: {dump_folder}")


def _played(experiment: Experiment, contest: Contest, workers: Workers) -> tuple[PlayedArms, LivesTable]:
    """Play what is missing, and record what --record asks for; returns what was played, and the lives of all arms."""
    options = experiment.options
    plan = RecordingPlan(options.episodes, options.max_steps, options.seed, split(options.record), format="parquet")
    dumps = RecordedArms(options.folder, contest, experiment.arms(), plan)
    if dumps.folders:
        print(f"{len(dumps.folders)} dumps are recorded. In each, {expected_size(contest, plan, options.folder)}")
    untrained = replace(contest, entrants=(untrained_twin(contest.entrants[0], options.seed),))
    with dumps, progress("playing", "episodes") as show:
        played = PlayedArms(experiment, dumps)
        missing = sum(len(group.numbers) for arm in played.arms for group in played.missing(arm))
        print(f"{len(played.arms)} arms of {options.episodes} episodes, {missing:,} episodes to play")
        done = 0
        for group, result in _results(played, {"trained": contest, "untrained": untrained}, workers):
            if isinstance(result, PlayedGroup):
                played.store(group, result)
                done += len(group.numbers)
                show(done, missing, "")
            elif isinstance(result, PlayedAgain):
                dumps.start_over(group.arm, group)
            else:
                dumps.take(group.arm, result)
        return played, LivesTable.of_rows(played.rows())


def _contest(options: RunOptions) -> Contest:
    """The policy alone in its training world, by default on other maps."""
    subjects = Subjects(
        names=(str(options.policy),), map_seed=options.map_seed, food_regrowth=options.food_regrowth,
        policies_dir=options.policies_dir, maps_dir=options.maps_dir, embeddings_dir=options.embeddings_dir,
        embeddings=options.embeddings,
    )  # fmt: skip
    (contest,) = contests(subjects, options.seed, "cpu")
    (entrant,) = contest.entrants
    if options.embeddings is not None and encoding_of(entrant)["encoder"] != "file":
        raise UserError(f"--task.embeddings: the policy {entrant.name} reads no file of task embeddings: leave it out")
    return replace(contest, most_ticks=options.max_steps)


def _experiment(options: RunOptions, contest: Contest) -> Experiment:
    """Resolve names, and refuse what does not fit the policy."""
    (entrant,) = contest.entrants
    policy, columns = entrant.policy, (*entrant.info.layout.entity_columns, GOAL)
    directions = read_directions(options.directions) if options.directions else None
    dictionary = read_dictionary(options.features) if options.features else None
    if dictionary:
        check_dictionary(dictionary, policy.layer_units, entrant.name, entrant.sha256)
    edits = tuple(Edit.named(edit_options, directions, dictionary, policy, columns) for edit_options in options.edits)
    if any(not edit.layers for edit in edits) and not policy.layers:
        raise UserError(f"{entrant.name} is feed-forward and has no memory to edit")
    memory = tuple(layer for layer in policy.layer_units if layer.startswith("lstm_"))
    condition = _condition(options, dictionary, memory, columns, entrant.sha256)
    when = When(options.from_tick, options.until_tick, condition)
    if options.follow and not policy.layers:
        raise UserError(f"--follow {options.follow}: {entrant.name} is feed-forward, so nothing of an edit can last")
    drawn = max(1, round(options.share * contest.env.num_agents))
    if drawn == contest.env.num_agents and any(edit.donor for edit in edits):
        raise UserError(
            f"--share {options.share:g} edits all {drawn} agents of each world, so no donor is left: give a smaller one"
        )
    layer_units(policy, split(options.record))  # refuses layers that the policy lacks
    for edit in edits:
        edit.check(policy.layer_units, entrant.name, entrant.sha256, options.one_by_one)
    edited = {layer for edit in edits for layer in edit.layers}
    if options.through and (after := edited - {ENCODER_OUTPUT, *memory}):
        raise UserError(f"--through: {after.pop()} comes after the memory, so edits of it act through the heads alone")
    if options.through and not policy.layers:
        raise UserError(f"--through: {entrant.name} is feed-forward, so edits act through the heads alone")
    check_reach(options.paths if options.through else (), edited, memory, entrant.name)
    reported = tuple(direction for direction in directions or () if direction.layer in edited)
    return Experiment(options, edits, drawn, when, reported, memory)


def check_reach(paths: Sequence[str], edited: Collection[str], memory: Sequence[str], policy: str) -> None:
    """Refuse paths along which an edit cannot act: the run would play arms that nobody has edited.

    Args:
        paths: as `RunOptions.paths`; none if all are left open.
        edited: layers that are edited.
        memory: layers of the policy's memory.

    Raises:
        UserError: the memory has no cells, or no edited layer is computed before the last of them.
    """
    if "cell" not in paths:
        return
    if LSTM_CELL not in memory:
        raise UserError(f"--through cell: the memory of {policy} has no cells: its paths are heads and hidden")
    if not set(edited) - {LSTM_HIDDEN}:
        raise UserError(
            f"--through cell: {LSTM_HIDDEN} is computed after the cells, so an edit of it leaves them as they are: its "
            "paths are heads and hidden"
        )


def _condition(
    options: RunOptions, dictionary: SparseDictionary | None, memory: Sequence[str], columns: Sequence[str],
    policy_sha256: str | None,
) -> Condition | None:  # fmt: skip
    text = options.condition
    if not text:
        return None
    if options.selection:
        layer, rule = selection_rule(options.selection, memory, policy_sha256)
        print(rule_in_words(layer, rule), flush=True)
        return functools.partial(like_selection, layer, rule)
    if dictionary is not None and parts_of(text, "--while")[0].startswith(FEATURE):
        return feature_condition(text, dictionary, memory)
    return body_condition(text, columns)


def _described(experiment: Experiment, contest: Contest) -> dict[str, Any]:
    """The content of run.json."""
    options = experiment.options
    arguments = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(options).items()
        if name not in _NOT_SETTINGS and (name, value) != ("through", "")  # as before there were paths
    }
    return {
        "arguments": arguments,
        "equivalent_within": options.equivalent_within,
        **({"through": list(options.paths)} if options.through else {}),
        "seed": options.seed,
        "policy": contest.entrants[0].name,
        "drawn": experiment.drawn,
        "agents": contest.env.num_agents,
        "at_once": ["total", "in play"],  # so that runs of versions that compared in one way are not continued
        "arms": [arm.content() for arm in experiment.all_arms()],
        "input": {
            "policy": contest.entrants[0].sha256,
            **({"directions": sha256(options.directions)} if options.directions else {}),
            **({"features": sha256(options.features)} if options.features else {}),
            **({"selection": sha256(options.selection)} if options.selection else {}),
        },
        "environment": {**asdict(contest.env), "maps_dir": None},
        "versions": versions(),
        "command": this_command(),
    }


def _claim(folder: Path, described: dict[str, Any], *, resume: bool) -> None:
    """Refuse a folder that holds another run, or anything else."""
    path = folder / RUN_FILE
    if not path.exists():
        # A run that was killed at once leaves no more than a temporary file.
        if folder.exists() and (
            not folder.is_dir() or any(not child.name.startswith(".") for child in folder.iterdir())
        ):
            raise UserError(f"{folder} is not an empty folder: choose another --name")
        make_folder(folder)
        return
    if not resume:
        raise UserError(f"{folder} already holds a run: add --resume to continue it, or choose another --name")
    content: Any = read_small_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: delete {folder} and play the run again")
    before = without_checksum(content, str(path))
    for name, value in without_checksum(with_checksum(described), str(path)).items():
        if name not in _NOT_SETTINGS and before.get(name) != value:
            raise UserError(f"{folder} was started with other settings ({name}): use those, or choose another --name")
