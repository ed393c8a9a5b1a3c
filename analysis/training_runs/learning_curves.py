"""Learning curves of groups of runs: means over seeds with their intervals, a panel for each metric."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from analysis.figures.style import CLUSTER_COLOURS, cluster_colour, cluster_marker, new_figure, style, title, wrapped
from analysis.training_runs.metrics import metric_title

if TYPE_CHECKING:
    from analysis.training_runs.comparison import ComparedRuns
    from analysis.training_runs.curves import Curve

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
            _draw(axes, metric, [curve for curve in compared.curves if curve.metric == metric])
        for axes in panels[len(compared.metrics) :]:
            axes.set_axis_off()
        figure.suptitle(title("Learning curves", _about(compared), _LETTERS_ACROSS))
        add_group_legend(figure, compared)
    return figure


def add_group_legend(figure: Figure, compared: "ComparedRuns", *others: Line2D) -> None:
    """Add the groups' colours and numbers of seeds below a figure, and what other lines mean."""
    groups = compared.groups
    handles = [
        Line2D([], [], label=wrapped(f"{group.name} ({_seeds(len(group.runs))})", 50), **_look(place, len(groups)))
        for place, group in enumerate(groups)
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


def _draw(axes: Axes, metric: str, curves: list["Curve"]) -> None:
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


def _about(compared: "ComparedRuns") -> str:
    return (
        f"Thick lines: means over seeds; bands: {100 * compared.confidence:g}% Student's t intervals over seeds at "
        "each point, cut off where they leave the range of the runs; thin lines: single runs. Each point is the mean "
        f"over 1/{compared.points} of the agent-steps that all runs of the group reached."
    )


def _seeds(count: int) -> str:
    return "1 seed, no interval" if count == 1 else f"{count} seeds"
