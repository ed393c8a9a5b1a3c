"""The legend of clusters beside every scatter plot that shows them."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.style import NOISE_COLOUR, cluster_colour, cluster_marker
from analysis.labels import NOISE
from analysis.share_text import share_text

_ROWS = 28
_MOST_ENTRIES = 3 * _ROWS
_COLUMN_INCHES = 1.75


def legend_width(labels: np.ndarray, rows: int = _ROWS) -> float:
    """Return the width in inches of the legend of these clusters."""
    return _COLUMN_INCHES * -(-len(_handles(labels, crowded=False)) // rows)


def add_cluster_legend(figure: Figure, labels: np.ndarray, *, crowded: bool, rows: int = _ROWS) -> None:
    """Add a legend of clusters' colours and shares at the right; if there are too many, only the largest.

    Args:
        figure: wide enough for the legend.
        labels: (B,) clusters from 0; negative for noise.
        crowded: whether points are drawn as cells, so that there are no markers.
        rows: per column of the legend.
    """
    handles = _handles(labels, crowded=crowded)
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside right upper", ncols=columns, title="cluster (share of records)")


def _handles(labels: np.ndarray, *, crowded: bool) -> list[Line2D]:
    clusters = range(labels.max() + 1)
    named = clusters[: _MOST_ENTRIES - 2]
    shares = np.bincount(labels + 1, minlength=1) / len(labels)
    entries = [(cluster_colour(c), cluster_marker(c), f"{c} ({share_text(shares[c + 1])})") for c in named]
    if len(named) < len(clusters):
        entries.append(("none", "none", f"and {len(clusters) - len(named)} smaller"))
    entries.append((NOISE_COLOUR, "o", f"noise ({share_text(shares[NOISE + 1])})"))
    return [
        Line2D([], [], linestyle="none", marker="s" if crowded else marker, markersize=6, color=colour, label=text)
        for colour, marker, text in entries
    ]
