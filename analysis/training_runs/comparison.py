"""A comparison of groups of training runs, computed before anything is written; its tables, figures and notes."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from analysis.evaluation.results import Mode
from analysis.figures.style import CLUSTER_COLOURS, cluster_colour, cluster_marker, new_figure, style, title, wrapped
from analysis.statistics.over_trainings import OverTrainings
from analysis.tables import Cell, Table
from analysis.training_runs.curves import (
    Comparison,
    Curve,
    Level,
    comparisons_of,
    curves_of,
    levels_of,
    mean_of,
)
from analysis.training_runs.held_out import (
    MEASURES,
    TRAINING_MEASURES,
    Evaluated,
    evaluation_curves,
    final_scores,
    generalisation_gaps,
    read_evaluated,
)
from analysis.training_runs.run import (
    AGENT,
    BUDGET,
    METRICS_FILE,
    TITLES,
    ComparedRun,
    RunGroup,
    settings_that_are_missing,
    settings_that_differ,
)
from common.files import sha256
from common.user_error import UserError

_POINT = ("agent_steps", "mean", "low", "high", "seeds")
_OF_DIFFERENCES = ("metric", "group", "other_group", "difference", "low", "high", "test", "p", "corrected_p")
_MISSING = "n/a"


@dataclass(frozen=True)
class ComparedRuns:
    """All that a comparison found."""

    groups: Sequence[RunGroup]
    metrics: Sequence[str]
    confidence: float
    points: int  # of each curve
    curves: Sequence[Curve]
    stretch: tuple[float, float]  # agent-steps at which the last stretch begins and ends
    mode: Mode  # of the evaluations: each checkpoint alone in its world, or all in shared worlds
    levels: Sequence[Level]
    comparisons: Sequence[Comparison]
    evaluations: Sequence[Curve]  # of checkpoints; empty if there are none
    gaps: Sequence[Curve]  # scores on training maps minus those on held-out maps; empty where one of them is missing
    notes: Sequence[str]  # what a reader must know beside the numbers
    evaluation_files: dict[str, str]  # SHA-256 of each file of results that was used, by path

    @property
    def tables(self) -> list[Table]:
        """The tables that are written.

        A row for each point of each curve; for what each group reached over the last stretch or at its last checkpoint;
        for each metric and pair of groups; and for each evaluated checkpoint and each gap between kinds of maps.
        """
        points = [(curve.measure, curve.group, *point) for curve in self.curves for point in curve.points]
        levels = [
            (level.metric, level.group, level.agent_steps, level.mean, level.low, level.high, len(level.training_seeds))
            for level in self.levels
        ]
        tests: list[tuple[Cell, ...]] = [
            (
                comparison.metric, comparison.group, comparison.other, *_numbers(estimate), _test(comparison),
                estimate.p, comparison.corrected_p,
            )
            for comparison in self.comparisons
            for estimate in [comparison.difference]
        ]  # fmt: skip
        kinds = [(curve, curve.maps) for curve in self.evaluations] + [
            (gap, "training - held-out") for gap in self.gaps
        ]
        scores = [(curve.measure, curve.group, kind, *point) for curve, kind in kinds for point in curve.points]
        tables = [
            Table("curves", ("metric", "group", *_POINT), tuple(points)),
            Table("last_stretch", ("metric", "group", *_POINT), tuple(levels)),
            Table("differences", _OF_DIFFERENCES, tuple(tests)),
            Table("evaluations", ("measure", "group", "maps", *_POINT), tuple(scores)),
        ]
        return [table for table in tables if table.rows]


def compare(
    groups: Sequence[RunGroup], metrics: Sequence[str], points: int, last: float, confidence: float,
    held_out: Path | None, against: str | None = None, mode: Mode = "pve",
) -> ComparedRuns:  # fmt: skip
    """Compare groups.

    Args:
        points: of each curve; fewer if a run has fewer updates.
        last: share of the agent-steps that all runs reached, 0 to 1, over which final levels are means.
        held_out: folder of evaluations; by default those in the runs' own folders of checkpoints.
        against: name of the group that all others are compared with; by default each is compared with each.

    Raises:
        UserError: evaluations are damaged, there are none in the folder given, or no group has the name given.
    """
    names = [group.name for group in groups]
    if against is not None and against not in names:
        raise UserError(f"no group is called {against!r}: the groups are {', '.join(names)}")
    runs = [(run, group.end) for group in groups for run in group.runs]
    points = min(points, *(int(np.searchsorted(run.steps, end)) + 1 for run, end in runs))  # updates up to the end
    end = min(group.end for group in groups)
    stretch = ((1 - last) * end, end)
    evaluated = read_evaluated([run for run, _ in runs], held_out, mode)
    evaluations = evaluation_curves(evaluated, groups, confidence)
    scores = final_scores(evaluations, groups, confidence)
    levels = [*levels_of(groups, metrics, stretch, confidence), *scores]
    return ComparedRuns(
        groups,
        metrics,
        confidence,
        points,
        curves_of(groups, metrics, points, confidence),
        stretch,
        mode,
        levels,
        comparisons_of(levels, confidence, against),
        evaluations,
        generalisation_gaps(evaluated, groups, confidence),
        [*notes_on(groups, metrics, stretch), *notes_on_evaluations(evaluated, scores, mode)],
        {str(file): sha256(file) for file in sorted({file for evaluation in evaluated for file in evaluation.files})},
    )


def as_json(compared: ComparedRuns) -> dict[str, Any]:
    """Return what comparison.json holds; numbers that the seeds do not allow become null."""
    return {
        "groups": [{"name": group.name, "runs": [_run(run) for run in group.runs]} for group in compared.groups],
        "settings_that_differ": settings_that_differ(group.described for group in compared.groups),
        "confidence": compared.confidence,
        "points": compared.points,
        "mode": compared.mode,
        "last_stretch": {"from": compared.stretch[0], "to": compared.stretch[1]},
        "levels": [asdict(level) for level in compared.levels],
        "comparisons": [asdict(comparison) for comparison in compared.comparisons],
        "evaluations": [asdict(evaluation) for evaluation in compared.evaluations],
        "gaps": [asdict(gap) for gap in compared.gaps],
        "notes": list(compared.notes),
    }


def input_hashes(compared: ComparedRuns) -> dict[str, str]:
    """Return the SHA-256 of each run's metrics and of each file of results, by path."""
    metrics = {str(run.folder / METRICS_FILE): run.sha256 for group in compared.groups for run in group.runs}
    return metrics | compared.evaluation_files


def _run(run: ComparedRun) -> dict[str, Any]:
    return {
        "name": run.name, "folder": str(run.folder), "seed": run.seed, "agent_steps": run.end,
        "updates": len(run.steps), "finished": run.finished,
    }  # fmt: skip


_REWARDS = (AGENT, "reward.")
_SETTINGS_SHOWN = 4


def notes_on(groups: Sequence[RunGroup], metrics: Sequence[str], stretch: tuple[float, float]) -> list[str]:
    """Return notes on runs, seeds and settings."""
    notes = [
        f"{run.name} is unfinished: {run.end:,.0f} of {run.settings[BUDGET]:,} agent-steps."
        for group in groups
        for run in group.runs
        if not run.finished
    ]
    notes += [f"{group.name} has one seed: no interval and no test." for group in groups if len(group.runs) == 1]
    differing = settings_that_differ(group.described for group in groups)
    for name, values in differing.items():
        text = ", ".join(f"{group.name}: {value}" for group, value in zip(groups, values, strict=True))
        notes.append(f"The groups differ in {name} ({text}).")
    if missing := settings_that_are_missing(run for group in groups for run in group.runs):
        shown = ", ".join(missing[:_SETTINGS_SHOWN]) + (" and others" if len(missing) > _SETTINGS_SHOWN else "")
        notes.append(f"Some runs predate the settings {shown}, which are not compared.")
    if len(groups) > 1 and not differing:
        notes.append("The groups have the same settings: what differs between them is chance, or the code.")
    if any(name.startswith(_REWARDS) for name in differing) and any("reward" in name for name in metrics):
        notes.append("Their rewards are defined differently, so returns cannot be compared between these groups.")
    if len(groups) > 1:
        notes.append(
            f"The last stretch is agent-steps {stretch[0]:,.0f} to {stretch[1]:,.0f}; the run that trained least ends "
            "there."
        )
    return notes


def notes_on_evaluations(evaluated: Sequence[Evaluated], scores: Sequence[Level], mode: Mode) -> list[str]:
    """Return notes on how the checkpoints were evaluated; `scores` are those that are compared in numbers."""
    if not evaluated:
        return []
    rules = sorted({name for evaluation in evaluated for name in evaluation.other_rules})
    notes = ["Evaluations are on the 63 held-out tasks; training draws its own tasks."]
    if mode == "pvp":
        notes.append("Evaluated checkpoints share worlds, so how one does depends on which others are there.")
    if rules:
        notes.append(f"Besides maps and tasks, evaluations and training differ in: {', '.join(rules)}.")
    if without := [
        evaluation for evaluation in evaluated if not np.isfinite(list(map(mean_of, evaluation.by_world))).all()
    ]:
        notes.append(
            f"{len(without)} of {len(evaluated)} evaluated checkpoints have no score, since no life had some of the "
            f"tasks (the first: {without[0].run.name} after {without[0].steps:,} agent-steps): play more episodes with "
            "evaluate.py -n."
        )
    if not scores:
        notes.append("No checkpoint has scores for every run, so the table has none: evaluate the last of each run.")
    kinds = {evaluation.maps for evaluation in evaluated}
    if "held-out" not in kinds:
        notes.append("All evaluations are on the maps of the training: play others with --env.map-seed.")
    if "training" not in kinds:
        notes.append(
            "No evaluation is on the maps of the training, so the gap between seen and unseen maps is not measured: "
            "play some with evaluate.py, --env.map-seed and --env.num-maps of the training, and another --seed."
        )
    return notes


def levels_for_terminal(levels: Sequence[Level]) -> Table:
    """Return the last stretch, with each interval beside its mean."""
    rows = [
        (level.metric, level.group, _readable(level.mean, level.low, level.high), len(level.training_seeds))
        for level in levels
    ]
    return Table("last stretch", ("metric", "group", "mean (interval)", "seeds"), tuple(rows))


def comparisons_for_terminal(comparisons: Sequence[Comparison]) -> Table:
    """Return the differences, with each interval beside its number."""
    rows = [
        (
            comparison.metric,
            f"{comparison.group} - {comparison.other}",
            _readable(*_numbers(comparison.difference)),
            _test(comparison),
            f"{comparison.corrected_p:.3g}" if math.isfinite(comparison.corrected_p) else _MISSING,
        )
        for comparison in comparisons
    ]
    return Table("differences", ("metric", "groups", "difference (interval)", "test", "corrected p"), tuple(rows))


def _numbers(difference: OverTrainings) -> tuple[float, float, float]:
    return difference.value, difference.low, difference.high


def _test(comparison: Comparison) -> str:
    if not math.isfinite(comparison.difference.p):
        return "none"
    test = "paired t" if comparison.paired else "Welch t"
    return (
        test if comparison.worlds == "own" else f"{'paired' if comparison.paired else 'unpaired'}, crossed with worlds"
    )


def _readable(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return _MISSING
    interval = f"{low:.4g} to {high:.4g}" if math.isfinite(low) else _MISSING
    return f"{value:.4g} ({interval})"


_COLUMNS = 3
_PANEL_WIDTH, _PANEL_HEIGHT = 4.0, 2.7
_LETTERS_IN_PANEL = 46
_LETTERS_ACROSS = 130
_FAINT, _BAND = 0.35, 0.18
_ROOM = 0.05
_MARKERS = 8
_LETTERS_IN_LEGEND, _LETTERS_OF_LINE = 180, 10


def learning_curves(compared: ComparedRuns) -> Figure:
    """Draw each metric against agent-steps: thick lines are means over seeds, thin lines single runs."""
    rows = -(-len(compared.metrics) // _COLUMNS)
    with style():
        figure = new_figure(_PANEL_WIDTH * _COLUMNS, _PANEL_HEIGHT * rows + 1.6)
        panels = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
        for axes, metric in zip(panels, compared.metrics, strict=False):
            _draw(axes, metric, [curve for curve in compared.curves if curve.measure == metric])
        for axes in panels[len(compared.metrics) :]:
            axes.set_axis_off()
        about = (
            f"Thick lines: means over seeds; bands: {100 * compared.confidence:g}% Student's t intervals over seeds at "
            "each point, cut off where they leave the range of the runs; thin lines: single runs. Each point is the "
            f"mean over 1/{compared.points} of the agent-steps that all runs of the group reached."
        )
        figure.suptitle(title("Learning curves", about, _LETTERS_ACROSS))
        add_group_legend(figure, compared)
    return figure


def add_group_legend(figure: Figure, compared: ComparedRuns, *others: Line2D) -> None:
    """Add the groups' colours and numbers of seeds below a figure, and what other lines mean."""
    groups = compared.groups
    handles = [
        Line2D([], [], label=wrapped(f"{group.name} ({seeds})", 50), **_look(place, len(groups)))
        for place, group in enumerate(groups)
        for seeds in ["1 seed, no interval" if len(group.runs) == 1 else f"{len(group.runs)} seeds"]
    ]
    handles += others
    longest = max(len(line) for handle in handles for line in str(handle.get_label()).splitlines())
    columns = max(1, _LETTERS_IN_LEGEND // (longest + _LETTERS_OF_LINE))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)))


def against_steps(axes: Axes) -> None:
    """Label the axis of agent-steps."""
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("agent-steps")


def _draw(axes: Axes, metric: str, curves: list[Curve]) -> None:
    for place, curve in enumerate(curves):
        colour = cluster_colour(place)
        for run in curve.runs:
            axes.plot(curve.steps, run, color=colour, linewidth=0.7, alpha=_FAINT)
        every = -(-len(curve.steps) // _MARKERS)
        axes.plot(curve.steps, curve.mean, markevery=every, **_look(place, len(curves), single=len(curve.steps) == 1))
        axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=_BAND, linewidth=0)
    drawn = np.concatenate([curve.runs[np.isfinite(curve.runs)] for curve in curves])
    if len(drawn):  # intervals of two seeds can be so wide that the curves would be flat lines
        room = _ROOM * (np.ptp(drawn) or abs(drawn[0]) or 1.0)
        axes.set_ylim(drawn.min() - room, drawn.max() + room)
    axes.set_title(wrapped(TITLES.get(metric, metric), _LETTERS_IN_PANEL))
    against_steps(axes)


def _look(group: int, groups: int, single: bool = False) -> dict[str, Any]:
    """Return a group's line; with markers where colours repeat, or where a line has a single point."""
    marker = cluster_marker(group) if single or groups > CLUSTER_COLOURS else None
    return {"color": cluster_colour(group), "linewidth": 2, "marker": marker, "markersize": 4}


_TITLES = {
    "ticks": "Mean ticks lived",
    "task_progress": "Task progress, 0 to 1",
    "weighted_score": "Weighted score, 0 to 100",
}
_LOOKS: dict[str, dict[str, Any]] = {
    "held-out": {"linestyle": "-", "marker": "o", "markersize": 5},
    "training": {"linestyle": "--", "marker": "o", "markersize": 5, "markerfacecolor": "white"},
}
_WHILE_TRAINING: dict[str, Any] = {"linestyle": ":", "linewidth": 1.4}
_WORLDS: dict[Mode, str] = {"pve": "alone (pve)", "pvp": "in shared worlds (pvp)"}
_SHIFT = 0.012  # of the agent-steps, from group to group
_WIDEST_SHIFT = 0.06  # over all groups
_GREY = "#555555"


def generalisation(compared: ComparedRuns) -> Figure:
    """Draw each measure of the evaluations against agent-steps, on both kinds of maps where there are both."""
    with style():
        figure = new_figure(12.6, 5.2)
        for axes, measure in zip(figure.subplots(1, len(MEASURES), sharex=True), MEASURES, strict=True):
            _draw_measure(axes, measure, compared)
        figure.suptitle(title("Generalisation to held-out maps", _about_scores(compared), _LETTERS_ACROSS))
        labels = {"held-out": "evaluated on held-out maps", "training": "evaluated on the training's maps"}
        kinds = {curve.maps for curve in compared.evaluations}
        looks = [Line2D([], [], color=_GREY, label=labels[kind], **_LOOKS[kind]) for kind in labels if kind in kinds]
        add_group_legend(
            figure,
            compared,
            *looks,
            Line2D([], [], color=_GREY, label="while training, on its own tasks", **_WHILE_TRAINING),
        )
    return figure


def _draw_measure(axes: Axes, measure: str, compared: ComparedRuns) -> None:
    groups = len(compared.groups)
    apart = min(_SHIFT, _WIDEST_SHIFT / groups) * compared.stretch[1]  # so that intervals of points do not overlap
    for place, group in enumerate(compared.groups):
        colour = cluster_colour(place)
        if metric := TRAINING_MEASURES.get(measure):
            (training,) = curves_of([group], [metric], compared.points, compared.confidence)
            axes.plot(training.steps, training.mean, color=colour, **_WHILE_TRAINING)
        for curve in compared.evaluations:
            if (curve.group, curve.measure) == (group.name, measure):
                look = {**_LOOKS[curve.maps], "marker": cluster_marker(place), "color": colour}
                if len(curve.steps) == 1:  # a band over one point would not be seen
                    reach = np.array([curve.mean - curve.low, curve.high - curve.mean])  # (2, 1)
                    where = np.maximum(curve.steps + (place - (groups - 1) / 2) * apart, 0.0)
                    interval = reach if np.isfinite(reach).all() else None
                    axes.errorbar(where, curve.mean, interval, capsize=3, elinewidth=1.2, **look)
                    continue
                axes.plot(curve.steps, curve.mean, **look)
                if curve.maps == _banded(compared):
                    band = np.stack([curve.steps, curve.low, curve.high])[:, np.isfinite(curve.low)]
                    axes.fill_between(*band, color=colour, alpha=0.15, linewidth=0)
    axes.set_title(_TITLES[measure])
    lows = np.concatenate([curve.low for curve in compared.evaluations if curve.measure == measure])
    if not (lows < 0).any():  # the end of an interval below 0 must be seen
        axes.set_ylim(bottom=0)
    against_steps(axes)


def _banded(compared: ComparedRuns) -> str:
    """Return the kind of maps whose lines have bands: those of both kinds would cover each other."""
    return min(curve.maps for curve in compared.evaluations)  # held-out where there are both


def _about_scores(compared: ComparedRuns) -> str:
    single = {len(curve.steps) == 1 for curve in compared.evaluations}
    means = {frozenset({True}): "Points", frozenset({False}): "Lines"}.get(frozenset(single), "Lines and points")
    spans = {"Points": "bars", "Lines": "bands"}.get(means, "bands and bars")
    where = f", bands on {_banded(compared)} maps" if False in single else ""
    note = " Points are shifted a little to the side." if True in single and len(compared.groups) > 1 else ""
    return (
        f"Checkpoints play {_WORLDS[compared.mode]} on the 63 held-out tasks. {means}: means over seeds of the "
        f"training; {spans}: {100 * compared.confidence:g}% intervals over these seeds and the worlds{where}.{note}"
    )
