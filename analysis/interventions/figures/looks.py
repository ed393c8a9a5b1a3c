"""What figures of interventions share: looks of the edit and its controls, intervals, and text on both."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import cluster_colour
from analysis.interventions.effects.controls import RANDOM, RANDOM_DONOR, SAME_VARIANCE, UNTRAINED
from analysis.statistics.resampling import Estimate

EDIT = "edit"
INK = "#1a1a1a"
ZERO = "#8a8a8a"
LOOKS: dict[str, dict[str, Any]] = {
    EDIT: {"color": INK, "marker": "o", "markersize": 6.5},
    RANDOM: {"color": cluster_colour(0), "marker": "s", "markersize": 4.5},
    SAME_VARIANCE: {"color": cluster_colour(5), "marker": "D", "markersize": 4.5},
    RANDOM_DONOR: {"color": cluster_colour(1), "marker": "v", "markersize": 5},
    UNTRAINED: {"color": cluster_colour(3), "marker": "^", "markersize": 5},
}
"""By series, in the order in which they are drawn and listed."""

_WIDEST = 8.0
_INCHES_A_LETTER, _INCHES_AROUND_ENTRY = 0.068, 0.6


def handles(shown: Iterable[str]) -> list[Line2D]:
    """Return the legend's entries of the series that a figure shows."""
    present = set(shown)
    return [Line2D([], [], linewidth=1.3, label=name, **look) for name, look in LOOKS.items() if name in present]


def limits(estimates: Sequence[Estimate], not_negative: bool = False) -> tuple[float, float]:
    """Return the ends of an axis that shows 0, all estimates, and intervals up to eight times the largest estimate.

    With two or three episodes intervals can be so wide that nothing else would be seen.
    """
    values = np.array(
        [(estimate.value, estimate.low, estimate.high) for estimate in estimates], dtype=np.float64
    ).reshape(-1, 3)
    known = values[np.isfinite(values[:, 0])]
    largest = np.abs(known[:, 0]).max(initial=0.0) or 1.0
    ends = np.clip(np.nan_to_num(known), -_WIDEST * largest, _WIDEST * largest)
    low, high = min(0.0, ends.min(initial=0.0)), max(0.0, ends.max(initial=0.0))
    room = 0.06 * (high - low or 1.0)
    return (-room / 4 if not_negative else low - room), high + room


def legend_below(figure: Figure, entries: Sequence[Line2D]) -> None:
    """Add a legend below all panels, in as many rows as the figure's width demands."""
    longest = max(len(str(entry.get_label())) for entry in entries)
    columns = int(figure.get_figwidth() / (_INCHES_AROUND_ENTRY + _INCHES_A_LETTER * longest))
    figure.legend(handles=entries, loc="outside lower center", ncols=min(len(entries), max(1, columns)))


def zero_line(axes: Axes, vertical: bool) -> None:
    """Draw the line of no effect."""
    (axes.axvline if vertical else axes.axhline)(0, color=ZERO, linewidth=0.9, zorder=0)
