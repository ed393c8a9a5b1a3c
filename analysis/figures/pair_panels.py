"""Scatter plots of the dimensions of a space, two at a time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.points import Panel, add_cluster_legend, draw_clusters, legend_width
from analysis.figures.style import few_ticks, new_figure, style, title

_COLUMNS = 5
_SIDE = 2.6
_LEGEND_ROWS_AN_INCH = 4
_DIMENSIONS_AT_MOST = 60


def pair_panels(points: np.ndarray, names: Sequence[str], labels: np.ndarray | None, heading: str) -> Figure:
    """Draw dimensions 1 and 2, 3 and 4, and so on; an odd last one is paired with the one before it.

    Args:
        points: (B, dimensions), two dimensions or more.
        names: of the dimensions, for the axes.
        labels: (B,) clusters from 0, negative for noise; None if there are no clusters.
        heading: what the figure shows, for its title.
    """
    dimensions = min(len(names), _DIMENSIONS_AT_MOST)
    pairs = [(min(i, dimensions - 2), min(i, dimensions - 2) + 1) for i in range(0, dimensions, 2)]
    columns = min(_COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    cut = f"; the first {dimensions} of {len(names)} dimensions" if dimensions < len(names) else ""
    coloured = "coloured by cluster" if labels is not None else "darker where there are more"
    with style():
        height = _SIDE * rows + 0.8
        legend_rows = int(_LEGEND_ROWS_AN_INCH * height)
        legend = legend_width(labels, legend_rows) if labels is not None else 0
        figure = new_figure(max(_SIDE * columns, 6.5) + legend, height)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for (x, y), axes in zip(pairs, panels, strict=False):
            draw_clusters(Panel(axes, _SIDE, _SIDE), points[:, [x, y]], labels)
            axes.set(xlabel=names[x], ylabel=names[y])
            axes.xaxis.set_major_locator(few_ticks())
            axes.yaxis.set_major_locator(few_ticks())
        for axes in panels[len(pairs) :]:
            axes.set_axis_off()
        figure.suptitle(title(heading, f"{len(points):,} records, {coloured}{cut}", max(60, 26 * columns)))
        if labels is not None:
            crowded = Panel(panels[0], _SIDE, _SIDE).crowded(len(points))
            add_cluster_legend(figure, labels, crowded=crowded, rows=legend_rows)
    return figure
