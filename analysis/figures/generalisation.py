"""Scores of checkpoints on held-out maps beside those on the training's maps, and beside training itself."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.learning_curves import add_group_legend, against_steps
from analysis.figures.style import cluster_colour, cluster_marker, new_figure, style, title
from analysis.training_runs.curves import curves_of
from analysis.training_runs.held_out import MEASURES, TRAINING_MEASURES

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
_LETTERS_ACROSS = 130
_GREY = "#555555"


def generalisation(compared: "ComparedRuns") -> Figure:
    """Draw each measure of the evaluations against agent-steps, on both kinds of maps where there are both."""
    with style():
        figure = new_figure(12.6, 5.2)
        for axes, measure in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
            _draw(axes, measure, compared)
        figure.suptitle(title("Generalisation to held-out maps", _about(compared), _LETTERS_ACROSS))
        labels = {"held-out": "evaluated on held-out maps", "training": "evaluated on the training's maps"}
        kinds = {each.maps for each in compared.evaluations}
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
                look = {**_LOOKS[curve.maps], "marker": cluster_marker(place)}
                axes.plot(curve.steps, curve.mean, color=colour, **look)
                if curve.maps != _banded(compared):
                    continue
                known = np.isfinite(curve.low)
                axes.fill_between(
                    curve.steps[known], curve.low[known], curve.high[known], color=colour, alpha=0.15, linewidth=0
                )
    axes.set_title(_TITLES[measure])
    axes.set_ylim(bottom=0)
    against_steps(axes)


def _banded(compared: "ComparedRuns") -> str:
    """Return the kind of maps whose lines have bands: those of both kinds would cover each other."""
    return min(each.maps for each in compared.evaluations)  # held-out where there are both


def _about(compared: "ComparedRuns") -> str:
    return (
        "Checkpoints play alone (pve) on the 63 held-out tasks. Lines: means over seeds of the training; bands: "
        f"{100 * compared.confidence:g}% Student's t intervals over these seeds, on {_banded(compared)} maps."
    )
