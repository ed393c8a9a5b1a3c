"""The embedding, coloured by cluster."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis.clustering import NOISE
from analysis.figures.style import (
    MANY_POINTS,
    NOISE_COLOUR,
    cluster_colour,
    cluster_marker,
    new_figure,
    point_area,
    style,
    title,
)

_LEGEND_ROWS = 28
_LEGEND_ENTRIES = 3 * _LEGEND_ROWS
_LEGEND_COLUMN_INCHES = 1.75
_NUMBER_ROOM = (0.04, 0.03)
"""Width and height that a cluster's number needs, as shares of the embedding's larger extent."""


def umap_scatter(embedding: np.ndarray, labels: np.ndarray, heading: str) -> Figure:
    """Draw every record at its place in the embedding, in its cluster's colour; noise is grey.

    Clusters carry their numbers, except where one would cover that of a larger cluster.

    Args:
        embedding: (B, 2).
        labels: (B,) clusters from 0; negative for noise.
        heading: what the figure shows, for its title.
    """
    clusters = range(labels.max() + 1)
    handles = _legend_handles(labels)
    columns = -(-len(handles) // _LEGEND_ROWS)
    with style():
        figure = new_figure(6.6 + _LEGEND_COLUMN_INCHES * columns, 6.4)
        axes = figure.add_subplot()
        noise = labels == NOISE
        _scatter(axes, embedding[noise], len(labels), NOISE_COLOUR, "o", 0.6)
        for cluster in clusters:
            points = embedding[labels == cluster]
            _scatter(axes, points, len(labels), cluster_colour(cluster), cluster_marker(cluster), 0.8)
        _number_clusters(axes, embedding, labels)
        axes.set(xlabel="UMAP 1", ylabel="UMAP 2", xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
        found = f"{len(clusters)} cluster{'' if len(clusters) == 1 else 's'}" if clusters else "no cluster found"
        axes.set_title(title(heading, f"{found}, {noise.mean():.1%} noise, {len(labels):,} records", 78))
        figure.legend(handles=handles, loc="outside right upper", ncols=columns, title="cluster (share of records)")
    return figure


def _scatter(axes: Axes, points: np.ndarray, total: int, colour: str, marker: str, alpha: float) -> None:
    axes.scatter(
        points[:, 0],
        points[:, 1],
        s=point_area(total),
        color=colour,
        marker=marker,
        alpha=alpha,
        linewidths=0,
        rasterized=total > MANY_POINTS,
    )


def _number_clusters(axes: Axes, embedding: np.ndarray, labels: np.ndarray) -> None:
    room = np.array(_NUMBER_ROOM) * np.ptp(embedding, axis=0).max()
    taken = np.empty((0, 2))
    for cluster in range(labels.max() + 1):
        # The median may fall into a hole of a ring-shaped cluster; the member nearest to it cannot.
        points = embedding[labels == cluster]
        place = points[np.argmin(((points - np.median(points, axis=0)) ** 2).sum(axis=1))]
        if (np.abs(taken - place) < room).all(axis=1).any():
            continue
        taken = np.vstack([taken, place])
        axes.annotate(
            str(cluster),
            (float(place[0]), float(place[1])),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            fontweight="bold",
            path_effects=[withStroke(linewidth=2, foreground="white", alpha=0.8)],
        )


def _legend_handles(labels: np.ndarray) -> list[Line2D]:
    clusters = range(labels.max() + 1)
    named = clusters[: _LEGEND_ENTRIES - 2]
    entries = [(cluster_colour(c), cluster_marker(c), f"{c} ({np.mean(labels == c):.1%})") for c in named]
    if len(named) < len(clusters):
        entries.append(("none", "none", f"and {len(clusters) - len(named)} smaller"))
    entries.append((NOISE_COLOUR, "o", f"noise ({np.mean(labels == NOISE):.1%})"))
    return [
        Line2D([], [], linestyle="none", marker=marker, markersize=6, color=colour, label=text)
        for colour, marker, text in entries
    ]
