"""From the options of `intervene.py` to a run that has been played."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from activation_store.checked_json import read_small_json, with_checksum, without_checksum
from activation_store.directions import Direction, Directions, read_directions
from activation_store.files import locked_folder, make_folder, sha256, write_json
from activation_store.interventions import LIVES_FILE, RUN_FILE, write_lives
from agent_zoo.capture import layer_units
from argument_checks import split
from progress_view import progress
from reinforcement_learning.interventions.experiment import Experiment, RequestedEdit, check_directions
from reinforcement_learning.interventions.intervention_run import episodes_to_play, play_experiment
from reinforcement_learning.interventions.recorded_arms import RecordedArms
from reinforcement_learning.interventions.request import RunOptions
from reinforcement_learning.interventions.when import Condition, When
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.extraction import Plan
from reinforcement_learning.play.shadow_networks import untrained_twin
from reinforcement_learning.play.subjects import Subjects, contests, expected_size
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
)
"""Options that do not change the results."""


def play(options: RunOptions, workers: Workers) -> None:
    """Play what is missing of a run, and write its lives.

    Raises:
        UserError: the policy, the directions or the condition do not fit, or the folder holds another run.
    """
    contest = _contest(options)
    experiment = _experiment(options, contest)
    folder = options.folder
    described = _described(options, experiment, contest)
    _claim(folder, described, resume=options.resume)
    untrained = replace(contest, entrants=(untrained_twin(contest.entrants[0], options.seed),))
    with locked_folder(folder):
        write_json(folder / RUN_FILE, with_checksum(described))
        with _dumps(options, experiment, contest) as dumps:
            missing = episodes_to_play(folder, experiment, options.seed, options.episodes, dumps)
            print(f"{len(experiment.arms())} arms of {options.episodes} episodes, {missing:,} episodes to play")
            with progress("playing", "episodes") as show:
                done = 0

                def on_episodes(count: int) -> None:
                    nonlocal done
                    done += count
                    show(done, missing, "")

                lives = play_experiment(
                    folder, experiment, {"trained": contest, "untrained": untrained}, options.seed, options.episodes,
                    workers, on_episodes, dumps,
                )  # fmt: skip
        write_lives(folder / LIVES_FILE, lives)
    for each in dumps.folders:
        print(f"dump: {each}")


def _dumps(options: RunOptions, experiment: Experiment, contest: Contest) -> RecordedArms:
    """The dumps of the arms that --record asks for."""
    plan = Plan(options.episodes, None, options.seed, split(options.record), format="parquet")
    dumps = RecordedArms(options.folder, contest, experiment.arms(), plan)
    if dumps.folders:
        print(f"{len(dumps.folders)} dumps are recorded. In each, {expected_size(contest, plan, options.folder)}")
    return dumps


def _contest(options: RunOptions) -> Contest:
    """The policy alone in its training world, by default on other maps."""
    subjects = Subjects(
        names=(str(options.policy),), share_world=False, checkpoint="trained", untrained_twin=False, shadow_steps=(),
        curriculum=None, task=None, map_seed=options.map_seed, policies_dir=options.policies_dir, runs_dir=Path("runs"),
        maps_dir=options.maps_dir, embeddings_dir=options.embeddings_dir,
    )  # fmt: skip
    (contest,) = contests(subjects, Plan(options.episodes, None, options.seed, layers=()), "cpu")
    return contest


def _experiment(options: RunOptions, contest: Contest) -> Experiment:
    """Resolve names, and refuse what does not fit the policy."""
    (entrant,) = contest.entrants
    found = read_directions(options.directions) if options.directions else None
    edits = tuple(
        RequestedEdit(each.edit, _named(found, each.names), "change" if each.change else "state", each.every)
        for each in options.edits
    )
    if any(not edit.directions for edit in edits) and not entrant.policy.layers:
        raise UserError(f"{entrant.name} is feed-forward and has no memory to edit")
    condition = Condition.parse(options.condition, entrant.info.layout.entity_columns) if options.condition else None
    layers = {each.layer for edit in edits for each in edit.directions}
    experiment = Experiment(
        edits=edits,
        doses=next((each.doses for each in options.edits if each.doses), ()),
        when=When(options.from_tick, options.until_tick, condition),
        drawn=max(1, round(options.share * contest.env.num_agents)),
        controls=options.controls,
        seed=options.seed,
        reported=tuple(each for each in found or () if each.layer in layers),
    )
    layer_units(entrant.policy, split(options.record))  # refuses layers that the policy lacks
    check_directions(experiment, entrant.policy.layer_units, entrant.name, entrant.sha256)
    return experiment


def _named(found: Directions | None, names: tuple[str, ...]) -> tuple[Direction, ...]:
    return tuple(found.named(name) for name in names) if found is not None else ()


def _described(options: RunOptions, experiment: Experiment, contest: Contest) -> dict[str, Any]:
    """The content of run.json."""
    told = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(options).items()
        if name not in _NOT_SETTINGS
    }
    return {
        "arguments": told,
        "seed": options.seed,
        "policy": contest.entrants[0].name,
        "drawn": experiment.drawn,
        "agents": contest.env.num_agents,
        "arms": [asdict(arm) for arm in experiment.arms()],
        "input": {
            "policy": contest.entrants[0].sha256,
            **({"directions": sha256(options.directions)} if options.directions else {}),
        },
        "environment": {**asdict(contest.env), "maps_dir": None},
        "versions": versions(),
    }


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
        if before.get(name) != value:
            raise UserError(f"{folder} was started with other settings ({name}): use those, or choose another --output")
