"""Figures of groups of runs: learning curves, and scores of checkpoints on held-out maps beside the training's."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from analysis.evaluation.results import Mode
from analysis.figures.style import CLUSTER_COLOURS, cluster_colour, cluster_marker, new_figure, style, title, wrapped
from analysis.training_runs.curves import Curve, curves_of
from analysis.training_runs.held_out import MEASURES, TRAINING_MEASURES
from analysis.training_runs.run import metric_title

if TYPE_CHECKING:
    from analysis.training_runs.comparison import ComparedRuns


_COLUMNS = 3
_PANEL_WIDTH, _PANEL_HEIGHT = 4.0, 2.7
_LETTERS_IN_PANEL = 46
_LETTERS_ACROSS = 130
_FAINT, _BAND = 0.35, 0.18
_ROOM = 0.05
_MARKERS = 8
_LETTERS_IN_LEGEND, _LETTERS_OF_LINE = 180, 10


def learning_curves(compared: "ComparedRuns") -> Figure:
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


def add_group_legend(figure: Figure, compared: "ComparedRuns", *others: Line2D) -> None:
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
    axes.set_title(wrapped(metric_title(metric), _LETTERS_IN_PANEL))
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


def generalisation(compared: "ComparedRuns") -> Figure:
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


def _draw_measure(axes: Axes, measure: str, compared: "ComparedRuns") -> None:
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


def _banded(compared: "ComparedRuns") -> str:
    """Return the kind of maps whose lines have bands: those of both kinds would cover each other."""
    return min(curve.maps for curve in compared.evaluations)  # held-out where there are both


def _about_scores(compared: "ComparedRuns") -> str:
    single = {len(curve.steps) == 1 for curve in compared.evaluations}
    means = {frozenset({True}): "Points", frozenset({False}): "Lines"}.get(frozenset(single), "Lines and points")
    spans = {"Points": "bars", "Lines": "bands"}.get(means, "bands and bars")
    where = f", bands on {_banded(compared)} maps" if False in single else ""
    note = " Points are shifted a little to the side." if True in single and len(compared.groups) > 1 else ""
    return (
        f"Checkpoints play {_WORLDS[compared.mode]} on the 63 held-out tasks. {means}: means over seeds of the "
        f"training; {spans}: {100 * compared.confidence:g}% intervals over these seeds and the worlds{where}.{note}"
    )
