"""The plane, coloured by cluster."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from analysis.clusters.projection import Projection
from analysis.figures.legend import add_cluster_legend, legend_width
from analysis.figures.points import Panel, draw_clusters
from analysis.figures.style import new_figure, style, title
from analysis.labels import NOISE
from analysis.share_text import share_text

_SIDE = 6.0
_NUMBER_ROOM = (0.04, 0.03)
"""Width and height of a cluster's number, as shares of the plane's larger extent."""


def plane_scatter(projection: Projection, labels: np.ndarray, heading: str, clustered_in: str) -> Figure:
    """Draw every record at its position in the plane, in its cluster's colour; noise is grey.

    Clusters are numbered, except where a number would cover that of a larger cluster.

    Args:
        projection: B records in the plane.
        labels: (B,) clusters from 0; negative for noise.
        heading: what the figure shows, for its title.
        clustered_in: description of the space in which clusters were found, for the title.
    """
    points, clusters = projection.points, int(labels.max()) + 1
    count_text = f"{clusters:,} cluster{'' if clusters == 1 else 's'}" if clusters else "no cluster found"
    with style():
        figure = new_figure(6.6 + legend_width(labels), 6.4)
        panel = Panel(figure.add_subplot(), _SIDE, _SIDE)
        draw_clusters(panel, points, labels)
        _number_clusters(panel.axes, points, labels)
        panel.axes.set(xlabel=projection.axes[0], ylabel=projection.axes[1], xticks=[], yticks=[])
        panel.axes.set_aspect("equal", adjustable="datalim")
        noise = np.mean(labels == NOISE)
        text = f"{count_text} in {clustered_in}, {share_text(noise)} noise, {len(labels):,} records"
        panel.axes.set_title(title(heading, text, 78))
        add_cluster_legend(figure, labels, crowded=panel.crowded(len(points)))
    return figure


def _number_clusters(axes: Axes, points: np.ndarray, labels: np.ndarray) -> None:
    room = np.array(_NUMBER_ROOM) * np.ptp(points, axis=0).max()
    taken = np.empty((0, 2))
    for cluster in range(labels.max() + 1):
        # The median may fall into the hole of a ring-shaped cluster; the member nearest to it cannot.
        members = points[labels == cluster]
        place = members[np.argmin(((members - np.median(members, axis=0)) ** 2).sum(axis=1))]
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
