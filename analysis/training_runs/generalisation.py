"""Scores of checkpoints on held-out maps beside those on the training's maps, and beside training itself."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.evaluation.results import Mode
from analysis.figures.style import cluster_colour, cluster_marker, new_figure, style, title
from analysis.training_runs.curves import curves_of
from analysis.training_runs.held_out import MEASURES, TRAINING_MEASURES, EvaluationCurve
from analysis.training_runs.learning_curves import add_group_legend, against_steps

if TYPE_CHECKING:
    from analysis.training_runs.comparison import ComparedRuns

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
_LETTERS_ACROSS = 130
_GREY = "#555555"


def generalisation(compared: "ComparedRuns") -> Figure:
    """Draw each measure of the evaluations against agent-steps, on both kinds of maps where there are both."""
    with style():
        figure = new_figure(12.6, 5.2)
        for axes, measure in zip(figure.subplots(1, len(MEASURES), sharex=True), MEASURES, strict=True):
            _draw(axes, measure, compared)
        figure.suptitle(title("Generalisation to held-out maps", _about(compared), _LETTERS_ACROSS))
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


def _draw(axes: Axes, measure: str, compared: "ComparedRuns") -> None:
    for place, group in enumerate(compared.groups):
        colour = cluster_colour(place)
        if metric := TRAINING_MEASURES.get(measure):
            (training,) = curves_of([group], [metric], compared.points, compared.confidence)
            axes.plot(training.steps, training.mean, color=colour, **_WHILE_TRAINING)
        for curve in compared.evaluations:
            if (curve.group, curve.measure) == (group.name, measure):
                look = {**_LOOKS[curve.maps], "marker": cluster_marker(place), "color": colour}
                if len(curve.steps) == 1:
                    _draw_point(axes, curve, _beside(place, compared), look)
                else:
                    _draw_line(axes, curve, look, banded=curve.maps == _banded(compared))
    axes.set_title(_TITLES[measure])
    lows = np.concatenate([curve.low for curve in compared.evaluations if curve.measure == measure])
    if not (lows < 0).any():  # the end of an interval below 0 must be seen
        axes.set_ylim(bottom=0)
    against_steps(axes)


def _draw_line(axes: Axes, curve: EvaluationCurve, look: dict[str, Any], banded: bool) -> None:
    axes.plot(curve.steps, curve.mean, **look)
    if banded:
        known = np.isfinite(curve.low)
        axes.fill_between(
            curve.steps[known], curve.low[known], curve.high[known], color=look["color"], alpha=0.15, linewidth=0
        )


def _draw_point(axes: Axes, curve: EvaluationCurve, shift: float, look: dict[str, Any]) -> None:
    """Draw a group's only checkpoint: a band over one point would not be seen."""
    reach = np.array([curve.mean - curve.low, curve.high - curve.mean])  # (2, 1)
    has_interval = np.isfinite(reach).all()
    where = np.maximum(curve.steps + shift, 0.0)
    axes.errorbar(where, curve.mean, reach if has_interval else None, capsize=3, elinewidth=1.2, **look)


def _beside(place: int, compared: "ComparedRuns") -> float:
    """Return how far a group's only checkpoint is shifted, in agent-steps, so that intervals do not overlap."""
    groups = len(compared.groups)
    step = min(_SHIFT, _WIDEST_SHIFT / groups) * compared.stretch[1]
    return (place - (groups - 1) / 2) * step


def _banded(compared: "ComparedRuns") -> str:
    """Return the kind of maps whose lines have bands: those of both kinds would cover each other."""
    return min(curve.maps for curve in compared.evaluations)  # held-out where there are both


def _about(compared: "ComparedRuns") -> str:
    single = {len(curve.steps) == 1 for curve in compared.evaluations}
    means = {frozenset({True}): "Points", frozenset({False}): "Lines"}.get(frozenset(single), "Lines and points")
    spans = {"Points": "bars", "Lines": "bands"}.get(means, "bands and bars")
    where = f", bands on {_banded(compared)} maps" if False in single else ""
    note = " Points are shifted a little to the side." if True in single and len(compared.groups) > 1 else ""
    return (
        f"Checkpoints play {_WORLDS[compared.mode]} on the 63 held-out tasks. {means}: means over seeds of the "
        f"training; {spans}: {100 * compared.confidence:g}% intervals over these seeds and the worlds{where}.{note}"
    )
