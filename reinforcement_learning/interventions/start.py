"""From the options of `intervene.py` to a run that has been played."""

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from activation_store.checked_json import read_small_json, with_checksum, without_checksum
from activation_store.conditions import parts_of
from activation_store.directions import Direction, Directions, read_directions
from activation_store.files import locked_folder, make_folder, sha256, write_json
from activation_store.interventions import (
    EDITED_REPLAY,
    LIVES_FILE,
    RUN_FILE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    write_lives,
)
from activation_store.layers import check_policy_layers
from activation_store.sparse_dictionary import FEATURE, SparseDictionary, read_dictionary
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import layer_units
from agent_zoo.donor_rule import DonorRule
from agent_zoo.edit_options import EditOptions
from agent_zoo.erasure import NothingToErase
from agent_zoo.feature_edits import check_dictionary, features_of
from agent_zoo.linear_readings import Reading
from agent_zoo.own_features import check_feature
from argument_checks import split
from progress_view import progress
from reinforcement_learning.interventions.experiment import Experiment, RequestedEdit, check_directions
from reinforcement_learning.interventions.intervention_run import (
    GROUPS_FOLDER,
    episodes_to_play,
    play_experiment,
    readability,
)
from reinforcement_learning.interventions.recordings import DUMPS_FOLDER, RecordedArms
from reinforcement_learning.interventions.request import RunOptions
from reinforcement_learning.interventions.when import Condition, FeatureCondition, When, check_in_memory
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.extraction import Plan
from reinforcement_learning.play.shadow_networks import untrained_twin
from reinforcement_learning.play.subjects import Subjects, contests, expected_size, make_maps
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.versions import versions
from user_error import UserError

_NOT_SETTINGS = (
    "output",
    "resume",
    "vectorization",
    "ray_address",
    "workers",
    "policies_dir",
    "maps_dir",
    "embeddings_dir",
    "equivalent_within",
)
"""Options that do not change the results."""


Announce = Callable[[Sequence[Arm], int, int], Sequence[str]]
"""Says what a run will be able to find, given its arms, and how many agents are edited and live in each world."""


def play(options: RunOptions, workers: Workers, announce: Announce) -> None:
    """Play what is missing of a run, and write its lives.

    Args:
        options: of the run.
        workers: where to play.
        announce: its lines are printed before anything is played.

    Raises:
        UserError: the policy, the directions, the condition or the layer do not fit, the folder holds another run, or
            a variable that is to be erased does not vary; nothing is left of the run then.
    """
    plan = Plan(options.episodes, None, options.seed, layers=())
    contest = _contest(options, plan)
    experiment = _experiment(options, contest)
    folder = options.folder
    described = _described(options, experiment, contest)
    _claim(folder, described, resume=options.resume)
    for line in announce(experiment.arms(), experiment.drawn, contest.env.num_agents):
        print(line, flush=True)
    make_maps(contest, plan)
    with locked_folder(folder):
        write_json(folder / RUN_FILE, with_checksum(described))
        try:
            lives, dumps = _played(options, experiment, contest, workers)
        except NothingToErase:
            _withdraw(folder)
            raise
        if erased := readability(folder, experiment, options.seed, options.episodes):
            write_json(folder / RUN_FILE, with_checksum({**described, "erased": [asdict(each) for each in erased]}))
        write_lives(folder / LIVES_FILE, lives)
    for each in dumps:
        print(f"dump: {each}")


def _played(
    options: RunOptions, experiment: Experiment, contest: Contest, workers: Workers
) -> tuple[LivesTable, list[Path]]:
    """Play what is missing, and show how far it is; returns the lives of all arms, and the folders of the dumps."""
    untrained = replace(contest, entrants=(untrained_twin(contest.entrants[0], options.seed),))
    contests_by_policy = {"trained": contest, "untrained": untrained}
    with _dumps(options, experiment, contest) as dumps, progress("playing", "episodes") as show:
        missing = episodes_to_play(options.folder, experiment, options.seed, options.episodes, dumps)
        print(f"{len(experiment.arms())} arms of {options.episodes} episodes, {missing:,} episodes to play")
        done = 0

        def on_episodes(count: int) -> None:
            nonlocal done
            done += count
            show(done, missing, "")

        lives = play_experiment(
            options.folder, experiment, contests_by_policy, options.seed, options.episodes, workers, on_episodes, dumps
        )
    return lives, dumps.folders


def _dumps(options: RunOptions, experiment: Experiment, contest: Contest) -> RecordedArms:
    """The dumps of the arms that --record asks for."""
    plan = Plan(options.episodes, None, options.seed, split(options.record), format="parquet")
    dumps = RecordedArms(options.folder, contest, experiment.arms(), plan)
    if dumps.folders:
        print(f"{len(dumps.folders)} dumps are recorded. In each, {expected_size(contest, plan, options.folder)}")
    return dumps


def _contest(options: RunOptions, plan: Plan) -> Contest:
    """The policy alone in its training world, by default on other maps."""
    subjects = Subjects(
        names=(str(options.policy),), share_world=False, checkpoint="trained", untrained_twin=False, shadow_steps=(),
        curriculum=None, task=None, map_seed=options.map_seed, food_regrowth=options.food_regrowth,
        policies_dir=options.policies_dir, runs_dir=Path("runs"), maps_dir=options.maps_dir,
        embeddings_dir=options.embeddings_dir,
    )  # fmt: skip
    (contest,) = contests(subjects, plan, "cpu")
    return contest


def _experiment(options: RunOptions, contest: Contest) -> Experiment:
    """Resolve names, and refuse what does not fit the policy."""
    (entrant,) = contest.entrants
    found = read_directions(options.directions) if options.directions else None
    dictionary = read_dictionary(options.features) if options.features else None
    if dictionary:
        check_dictionary(dictionary, entrant.policy.layer_units, entrant.name, entrant.sha256)
    columns = entrant.info.layout.entity_columns
    edits = tuple(_requested(each, found, dictionary, entrant.policy, columns) for each in options.edits)
    if any(not edit.layers for edit in edits) and not entrant.policy.layers:
        raise UserError(f"{entrant.name} is feed-forward and has no memory to edit")
    memory = tuple(layer for layer in entrant.policy.layer_units if layer.startswith("lstm_"))
    feature = _feature_condition(options.condition, dictionary, memory)
    condition = Condition.parse(options.condition, columns) if options.condition and not feature else None
    layers = {layer for edit in edits for layer in edit.layers}
    if options.follow and not entrant.policy.layers:
        raise UserError(f"--follow {options.follow}: {entrant.name} is feed-forward, so nothing of an edit can last")
    drawn = max(1, round(options.share * contest.env.num_agents))
    if drawn == contest.env.num_agents and any(edit.donor for edit in edits):
        raise UserError(
            f"--share {options.share:g} edits all {drawn} agents of each world, so no donor is left: give a smaller one"
        )
    experiment = Experiment(
        edits=edits,
        doses=next((each.doses for each in options.edits if each.doses), ()),
        when=When(options.from_tick, options.until_tick, condition),
        drawn=drawn,
        controls=options.controls,
        seed=options.seed,
        reported=tuple(each for each in found or () if each.layer in layers),
        memory=memory,
        follow=options.follow,
        feature=feature,
        one_by_one=options.one_by_one,
    )
    layer_units(entrant.policy, split(options.record))  # refuses layers that the policy lacks
    check_directions(experiment, entrant.policy.layer_units, entrant.name, entrant.sha256)
    return experiment


def _named(found: Directions | None, names: tuple[str, ...]) -> tuple[Direction, ...]:
    return found.all_named(names) if found is not None else ()


def _requested(
    options: EditOptions, found: Directions | None, dictionary: SparseDictionary | None, policy: RecurrentPolicy,
    columns: Sequence[str],
) -> RequestedEdit:  # fmt: skip
    features = features_of(options, dictionary)
    return RequestedEdit(
        options.edit,
        () if features else _named(found, options.names),
        "change" if options.change else "state",
        options.every,
        _erased(options, policy, columns),
        DonorRule.parse(options.donor, columns) if options.donor else None,
        features,
    )


def _feature_condition(
    said: str | None, dictionary: SparseDictionary | None, memory: tuple[str, ...]
) -> FeatureCondition | None:
    """Return the condition on a sparse feature; None if there is none, or it is on something else."""
    if said is None or dictionary is None:
        return None
    name, comparison, number = parts_of(said, "--while")
    if not name.startswith(FEATURE):
        return None
    feature = dictionary.number(name)
    check_in_memory(dictionary, memory, feature)
    return FeatureCondition(dictionary, feature, comparison, number)


def _erased(options: EditOptions, policy: RecurrentPolicy, columns: Sequence[str]) -> Reading | None:
    if options.erased_layer is None:
        return None
    check_policy_layers([options.erased_layer], policy.layers, policy.cell)
    for name in options.variables:
        check_feature(f"--variable {options.variable}", name, columns)
    return Reading(options.erased_layer, options.variables)


def _described(options: RunOptions, experiment: Experiment, contest: Contest) -> dict[str, Any]:
    """The content of run.json."""
    told = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(options).items()
        if name not in _NOT_SETTINGS
    }
    return {
        "arguments": told,
        "equivalent_within": options.equivalent_within,
        "seed": options.seed,
        "policy": contest.entrants[0].name,
        "drawn": experiment.drawn,
        "agents": contest.env.num_agents,
        "at_once": ["total", "in play"],  # so that runs of versions that compared in one way are not continued
        "arms": [asdict(arm) for arm in experiment.all_arms()],
        "input": {
            "policy": contest.entrants[0].sha256,
            **({"directions": sha256(options.directions)} if options.directions else {}),
            **({"features": sha256(options.features)} if options.features else {}),
        },
        "environment": {**asdict(contest.env), "maps_dir": None},
        "versions": versions(),
    }


def _withdraw(folder: Path) -> None:
    """Remove a run that cannot be played."""
    for name in (GROUPS_FOLDER, DUMPS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (UNEDITED_REPLAY, EDITED_REPLAY):
        (folder / name).unlink(missing_ok=True)
    (folder / RUN_FILE).unlink()
    with contextlib.suppress(OSError):  # something else is in it
        folder.rmdir()


def _claim(folder: Path, described: dict[str, Any], *, resume: bool) -> None:
    """Refuse a folder that holds another run, or anything else."""
    path = folder / RUN_FILE
    if not path.exists():
        # A run that was killed at once leaves no more than a temporary file.
        if folder.exists() and (not folder.is_dir() or any(not each.name.startswith(".") for each in folder.iterdir())):
            raise UserError(f"{folder} is not an empty folder: choose another --output")
        make_folder(folder)
        return
    if not resume:
        raise UserError(f"{folder} already holds a run: add --resume to continue it, or choose another --output")
    content: Any = read_small_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: delete {folder} and play the run again")
    before = without_checksum(content, str(path))
    for name, value in without_checksum(with_checksum(described), str(path)).items():
        if name not in _NOT_SETTINGS and before.get(name) != value:
            raise UserError(f"{folder} was started with other settings ({name}): use those, or choose another --output")
