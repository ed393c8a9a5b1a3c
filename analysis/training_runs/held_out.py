"""How a run's checkpoints score when evaluated, on the maps they were trained on and on maps they have not seen."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from analysis.evaluation.held_out_tasks import TASK_WEIGHTS
from analysis.evaluation.results import (
    FOLDERS,
    Mode,
    PolicyRun,
    Provenance,
    check_one_protocol,
    find_result_files,
    read_results,
)
from analysis.evaluation.scores import PolicyResults
from analysis.statistics.over_trainings import ByWorld, OverTrainings
from analysis.training_runs.curves import Curve, Level, Maps, difference, level_of, mean_of, mean_over_runs
from analysis.training_runs.run import CHECKPOINTS_FOLDER, ComparedRun, RunGroup
from common.files import SUMS_FILE, read_bytes, sha256, visible
from common.user_error import UserError

KINDS: tuple[Maps, ...] = get_args(Maps)

MEASURES = ("ticks", "task_progress", "weighted_score")
"""Mean ticks lived; progress at the 63 held-out tasks, 0 to 1; the same weighted by category, 0 to 100."""

TRAINING_MEASURES = {"ticks": "lives/ticks", "task_progress": "lives/task_progress"}
"""Metric of training that each measure stands beside, if there is one."""

_SUFFIX = ".safetensors"
_HASH_LINE = re.compile(r"([0-9a-f]{64}) [ *]\S.*")
_MAP_SETTINGS = ("map_seed", "map_size", "num_maps", "flip_terrain")
_OTHER_TERRAIN = {"map_seed", "flip_terrain"}
_ABOUT_A_BATCH = 1.1  # updates end with the tick that completes a batch

Played = dict[tuple[ComparedRun, str, Maps], list[tuple[PolicyRun, Provenance]]]
"""Results by run, SHA-256 of the checkpoint, and kind of maps: one for each seed of the evaluation."""


@dataclass(frozen=True)
class Evaluated:
    """One checkpoint, evaluated."""

    run: ComparedRun
    steps: int  # agent-steps that it was trained for
    maps: Maps  # whether the maps are those of its training
    by_world: tuple[ByWorld, ...]
    """What each world adds to the mean over worlds of each of `MEASURES`; see `_by_world`. NaN for the last two if no
    life had one of the tasks."""
    other_rules: tuple[str, ...]  # settings of the world, other than those of maps, that differ from the training's
    files: tuple[Path, ...]


def read_evaluated(runs: Sequence[ComparedRun], folder: Path | None, mode: Mode) -> list[Evaluated]:
    """Return all evaluated checkpoints of the runs; a checkpoint is recognised by its SHA-256.

    Checkpoints that have been deleted count if their folder lists their hashes in SHA256SUMS, as sha256sum writes it.

    Args:
        folder: of results of evaluate.py; by default each run's own checkpoints, where there may be none.
        mode: of the evaluation: each checkpoint alone in its world, or all in shared worlds.

    Raises:
        UserError: the given folder holds no results of any of the checkpoints, a result file or a list of hashes is
            damaged, or checkpoints were played under different rules or, if they share worlds, not in the same ones.
    """
    pattern = f"eval_{mode}_*.json"
    sources = [folder] if folder else [_checkpoints(run) for run in runs if visible(_checkpoints(run), pattern)]
    if not sources:
        return []
    known: dict[str, list[ComparedRun]] = {}  # runs with the same seed and network start from the same checkpoint
    for run in runs:
        for digest in _checkpoint_hashes(_checkpoints(run)):
            known.setdefault(digest, []).append(run)
    files = [file for file in find_result_files(sources) if file.match(pattern)]
    played: Played = {}
    first_by_rules: dict[str, PolicyRun] = {}
    for result in (entry for file in files for entry in read_results(file)):
        provenance = result.provenance
        if provenance is None or provenance.checkpoint_sha256 is None:
            continue
        first_by_rules.setdefault(provenance.protocol, result)
        check_one_protocol(first_by_rules)
        for run, maps in _maps_for(known.get(provenance.checkpoint_sha256, []), result, provenance):
            played.setdefault((run, provenance.checkpoint_sha256, maps), []).append((result, provenance))
    if folder and not played:
        raise UserError(
            f"{folder} holds no {mode} results of a checkpoint of these runs (recognised by their SHA-256): "
            + (f"copy the checkpoints of all runs there, and play them with `python evaluate.py {folder} pvp`"
               if mode == "pvp" else f"evaluate them with `python evaluate.py {_checkpoints(runs[0])} pve`")
        )  # fmt: skip
    played = {key: _of_its_own(key[0], results) for key, results in played.items()}
    _check_same_rules(played)
    if mode == "pvp":
        _check_same_worlds(played)
    return [_evaluated(run, maps, results) for (run, _, maps), results in played.items()]


def evaluation_curves(evaluated: Sequence[Evaluated], groups: Sequence[RunGroup], confidence: float) -> list[Curve]:
    """Return each group's scores against agent-steps, on held-out maps and on training maps where there are any."""
    curves = []
    for group in groups:
        for maps in KINDS:
            own = [evaluation for evaluation in evaluated if evaluation.maps == maps and evaluation.run in group.runs]
            checkpoints = _same_checkpoints(own)
            if not checkpoints:
                continue
            steps = np.array([np.mean([evaluation.steps for evaluation in column]) for column in checkpoints])
            by_run = [{evaluation.run.folder: evaluation for evaluation in column} for column in checkpoints]
            for place, measure in enumerate(MEASURES):
                by_world = tuple(
                    tuple(column[run.folder].by_world[place] if run.folder in column else {} for run in group.runs)
                    for column in by_run
                )
                rows = np.array([[mean_of(run) for run in runs] for runs in by_world]).T.copy()  # (S, P)
                known = [tuple(run for run in runs if np.isfinite(mean_of(run))) for runs in by_world]
                # Intervals allow for the worlds that runs share.
                ends = _ends([mean_over_runs(runs, confidence) for runs in known])
                seeds = np.array([len(runs) for runs in known])
                curves.append(Curve(group.name, steps, rows, *ends, seeds, measure, maps, by_world))
    return curves


def final_scores(curves: Sequence[Curve], groups: Sequence[RunGroup], confidence: float) -> list[Level]:
    """Return each group's scores at the last checkpoint that was evaluated for every run of every group, if any."""
    batch = max(float(run.settings.get("train.batch_size", 0)) for group in groups for run in group.runs)
    levels: list[Level] = []
    for maps in KINDS:
        for measure in MEASURES:
            own = [curve for curve in curves if (curve.maps, curve.measure) == (maps, measure)]
            whole = [np.flatnonzero(np.isfinite(curve.runs).all(axis=0)) for curve in own]  # places with every run
            reached = [curve.steps[places] for curve, places in zip(own, whole, strict=True)]
            shared = [
                steps
                for steps in (reached[0] if len(own) == len(groups) else ())
                if all((np.abs(others - steps) <= _ABOUT_A_BATCH * batch).any() for others in reached)
            ]
            for group, curve, places in zip(groups, own, whole, strict=True) if shared else ():
                place = int(places[np.abs(curve.steps[places] - shared[-1]).argmin()])
                name = f"{measure} on {maps} maps"
                levels.append(level_of(group, name, float(curve.steps[place]), curve.by_world[place], confidence))
    return levels


def generalisation_gaps(
    evaluated: Sequence[Evaluated], groups: Sequence[RunGroup], confidence: float
) -> list[Curve]:  # fmt: skip
    """Return scores on training maps minus scores on held-out maps, run by run, of the checkpoints that have both.

    Each may have worlds of another kind.
    """
    kinds = [{(one.run, one.steps) for one in evaluated if one.maps == maps} for maps in KINDS]
    both = [one for one in evaluated if (one.run, one.steps) in set.intersection(*kinds)]
    curves = evaluation_curves(both, groups, confidence)
    gaps = []
    for training, held_out in product(curves, curves):
        compared, of = (training.maps, held_out.maps), (training.group, training.measure)
        if compared != ("training", "held-out") or of != (held_out.group, held_out.measure):
            continue
        over, seeds = [], []
        for first, second in zip(training.by_world, held_out.by_world, strict=True):
            known = [np.isfinite(mean_of(seen) - mean_of(unseen)) for seen, unseen in zip(first, second, strict=True)]
            one, two = (list(compress(worlds, known)) for worlds in (first, second))
            over.append(difference(one, two, confidence, paired=True)[1])
            seeds.append(sum(known))
        runs = training.runs - held_out.runs
        ends, measure = _ends(over), training.measure
        gaps.append(Curve(training.group, training.steps, runs, *ends, np.array(seeds), measure, "training"))
    return gaps


def _ends(over: Sequence[OverTrainings]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means, and lower and upper ends of their intervals."""
    value, low, high = (np.array([getattr(estimate, end) for estimate in over]) for end in ("value", "low", "high"))
    return value, low, high


def _checkpoints(run: ComparedRun) -> Path:
    return run.folder / CHECKPOINTS_FOLDER


def _of_its_own(run: ComparedRun, results: list[tuple[PolicyRun, Provenance]]) -> list[tuple[PolicyRun, Provenance]]:
    """Return the results that lie beside a run's checkpoints, or all of them if none does.

    A run of another group with the same seed starts from the same network, but may have played it in other worlds.
    """
    own = [entry for entry in results if entry[0].file.parent.resolve() == _checkpoints(run).resolve()]
    return own or results


def _checkpoint_hashes(folder: Path) -> set[str]:
    """Return the SHA-256 of each checkpoint in a folder, and of those that its SHA256SUMS lists."""
    hashes = {sha256(path) for path in visible(folder, f"*{_SUFFIX}")}
    listed = folder / SUMS_FILE
    if not listed.is_file():
        return hashes
    try:
        lines = read_bytes(listed).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{listed} cannot be read as text: write it with `sha256sum *{_SUFFIX}`") from None
    for number, line in enumerate(lines, 1):
        match = _HASH_LINE.fullmatch(line)
        if match is None:
            raise UserError(f"{listed} is damaged: line {number} is not a hash and a name, as sha256sum writes them")
        hashes.add(match[1])
    return hashes


def _maps_for(runs: Sequence[ComparedRun], result: PolicyRun, provenance: Provenance) -> list[tuple[ComparedRun, Maps]]:
    """Say on which maps a checkpoint of these runs was played, leaving out runs for which it was on neither kind.

    Maps of the same seed but another size or number resemble those of the training without being the same.
    """
    pairs: list[tuple[ComparedRun, Maps]] = []
    for run in runs:
        differing = [
            name
            for name in _MAP_SETTINGS
            if provenance.environment.get(name, False) != run.settings.get(f"env.{name}", False)
        ]
        if not differing or _OTHER_TERRAIN & set(differing):
            pairs.append((run, "held-out" if differing else "training"))
    if runs and not pairs:
        run = runs[0]
        raise UserError(
            f"{result.file} played a checkpoint of {run.name} on maps of its training's seed but of another size or "
            f"number, which are neither those of the training nor unseen: use another --env.map-seed, or "
            f"--env.map-size {run.settings.get('env.map_size')} --env.num-maps {run.settings.get('env.num_maps')}"
        )
    return pairs


def _check_same_rules(played: Played) -> None:
    first: dict[Maps, tuple[Path, dict[str, Any]]] = {}
    for (_, _, maps), results in played.items():
        left_out = _MAP_SETTINGS if maps == "training" else ()  # groups may have trained on different maps
        for result, provenance in results:
            rules = {"episodes": provenance.episodes} | _rules(provenance.environment, left_out)
            file, before = first.setdefault(maps, (result.file, rules))
            for name in sorted(before.keys() | rules.keys()):
                if before.get(name) != rules.get(name):
                    raise UserError(
                        f"{file} and {result.file} played checkpoints on {maps} maps under different rules: {name} is "
                        f"{before.get(name)!r} and {rules.get(name)!r}; evaluate both alike, or remove one of them"
                    )


def _check_same_worlds(played: Played) -> None:
    """Refuse checkpoints that met other opponents: how long agents live depends on who else is there."""
    first: dict[Maps, tuple[str, set[Path]]] = {}
    for (_, _, maps), results in played.items():
        own, files = results[0][0].policy, {result.file for result, _ in results}  # a pvp file holds one contest
        name, before = first.setdefault(maps, (own, files))
        if files != before:
            raise UserError(
                f"{name} and {own} were not played in the same shared worlds ({min(files ^ before)} has only one of "
                "them): copy all checkpoints into one folder and evaluate them there in one call of evaluate.py pvp, "
                "or compare with --mode pve"
            )


def _rules(environment: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in environment.items() if name not in left_out and not name.endswith(FOLDERS)}


def _evaluated(run: ComparedRun, maps: Maps, played: Sequence[tuple[PolicyRun, Provenance]]) -> Evaluated:
    runs = tuple(result for result, _ in played)
    progress = PolicyResults(runs[0].policy, runs[0].mode, runs).task_progress  # (tasks,)
    provenance = played[0][1]
    if provenance.agent_steps is None:
        raise UserError(f"the results of a checkpoint of {run.name} do not say its agent-steps: evaluate it again")
    differing = tuple(
        name
        for name, value in sorted(_rules(provenance.environment, _MAP_SETTINGS).items())
        if f"env.{name}" in run.settings and value != run.settings[f"env.{name}"]
    )
    worlds = _by_world(runs, progress, int(provenance.environment.get("map_seed", 0)))
    files = tuple(result.file for result in runs)
    return Evaluated(run, provenance.agent_steps, maps, worlds, differing, files)


def _by_world(runs: Sequence[PolicyRun], progress: np.ndarray, map_seed: int) -> tuple[ByWorld, ...]:
    """Return what each world adds to each measure, whose mean over worlds is the score.

    Scores are ratios: sums over the lives of a seed, by the number of these. A world's number is the score, plus what
    its seed differs by, plus how far its sum is from that expected of its lives, over the mean number of these (the
    linearised ratio of Cochran 1977, "Sampling techniques", section 6.4).

    Args:
        runs: of one checkpoint, one for each seed.
        progress: at each task over all of them, (T,).
        map_seed: of the maps, which belongs to a world's name as seed and number of the episode do.
    """
    scores: tuple[dict[str, float], ...] = tuple({} for _ in MEASURES)
    with_task = np.sum([run.has_task for run in runs], axis=0)  # (T,)
    for run in runs:
        numbers = run.episodes or (0,)
        lives = np.bincount(run.ticks_episode, minlength=len(numbers))
        ticks = np.bincount(run.ticks_episode, run.ticks, minlength=len(numbers))
        mean = run.ticks.mean()
        of_ticks = mean + (ticks - mean * lives) / lives.mean()  # (E,)
        own, share = np.where(run.has_task, run.task_progress, 0.0), run.progress_lives.mean(axis=0)  # (T,)
        left = run.progress_sum - own * run.progress_lives  # (E, T)
        moved = own - progress + np.divide(left, share, out=np.zeros_like(left), where=share > 0)
        weight = np.divide(len(runs), with_task, out=np.zeros(len(with_task)), where=with_task > 0)
        at_tasks = progress + np.where(run.has_task, weight * moved, 0.0)  # (E, T)
        rows = zip(numbers, of_ticks, at_tasks.mean(axis=1), at_tasks @ TASK_WEIGHTS, strict=True)
        for number, *values in rows:
            world = f"maps {map_seed}, seed {run.seed}, episode {number}"
            for measure, value in zip(scores, values, strict=True):
                measure[world] = float(value)
    return scores


def _same_checkpoints(evaluated: Sequence[Evaluated]) -> list[list[Evaluated]]:
    """Put the checkpoints of several runs together that belong together: not further apart than one update.

    Runs write a checkpoint after the update that reaches a share of the budget, so agent-steps differ by less than a
    batch and a tick. A run may have one after each update: the nearest ones are put together first.
    """
    columns = [[evaluation] for evaluation in sorted(evaluated, key=lambda one: one.steps)]

    def gap(place: int) -> float:
        """Between a column and the next; infinite if they do not belong together."""
        one, two = columns[place], columns[place + 1]
        batch = float(two[0].run.settings.get("train.batch_size", 0))
        far = two[-1].steps - one[0].steps > _ABOUT_A_BATCH * batch
        alike = {id(evaluation.run) for evaluation in one} & {id(evaluation.run) for evaluation in two}
        return np.inf if far or alike else two[0].steps - one[-1].steps

    while len(columns) > 1 and np.isfinite(gap(nearest := min(range(len(columns) - 1), key=gap))):
        columns[nearest] += columns.pop(nearest + 1)
    return columns
