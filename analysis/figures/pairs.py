"""Scatter plots of every pair of features, and of the dimensions of a space two at a time."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from analysis.features import Feature
from analysis.figures.points import PointsPanel, add_cluster_legend, draw_clusters, legend_width
from analysis.figures.style import few_ticks_on, new_figure, style, title, wrapped

FEATURES_AT_MOST = 14
_SIDE = 1.4
_NARROWEST = 4.0
_LETTERS_IN_A_LABEL = 14
_LEGEND_ROWS_AN_INCH = 4
_COLUMNS = 5
_PANEL_SIDE = 2.6
_DIMENSIONS_AT_MOST = 60


def feature_scatter(
    rolled: np.ndarray, features: Sequence[Feature], labels: np.ndarray | None, window: int, heading: str
) -> Figure:
    """Draw a triangle of panels, one per pair of features, of rolling means within lives, coloured by cluster.

    All panels of a column share their x feature, all panels of a row their y feature. Only the first 14 features are
    drawn, 91 pairs; the title says so if there are more.

    Args:
        rolled: rolling means, (B, features), two features or more, over a `window` of kept records.
        labels: (B,) clusters from 0, negative for noise; None if there are no clusters.
    """
    shown = features[:FEATURES_AT_MOST]
    side = len(shown) - 1
    pairs = side * len(shown) // 2
    cut = f"; the first {len(shown)} of {len(features)} features" if len(shown) < len(features) else ""
    coloured = ", coloured by cluster" if labels is not None else ""
    inches = max(_SIDE * side, _NARROWEST)
    legend_rows = int(_LEGEND_ROWS_AN_INCH * inches)
    with style():
        legend = legend_width(labels, legend_rows) if labels is not None else 0
        figure = new_figure(inches + 0.9 + legend, inches + 1.4)
        panels = _triangle(figure, shown)
        for (x, y), axes in panels.items():
            draw_clusters(PointsPanel(axes, _SIDE, _SIDE), rolled[:, [x, y]], labels)
        counted = f"{pairs} pair{'' if pairs == 1 else 's'} of features"
        text = f"{counted}, each a mean over {window} kept records of a life{coloured}{cut}"
        figure.suptitle(title(heading, text, int(9 * inches)))
        if labels is not None:
            crowded = PointsPanel(panels[0, 1], _SIDE, _SIDE).crowded(len(rolled))
            add_cluster_legend(figure, labels, crowded=crowded, rows=legend_rows)
    return figure


def _triangle(figure: Figure, features: Sequence[Feature]) -> dict[tuple[int, int], Axes]:
    """Return axes for each pair, by index of the x and the y feature; only the outer ones are labelled."""
    side = len(features) - 1
    size = 9 + 0.2 * side  # large triangles are viewed at a smaller scale
    grid = GridSpec(side, side, figure)
    panels: dict[tuple[int, int], Axes] = {}
    for x, y in sorted(combinations(range(len(features)), 2), key=lambda pair: pair[1]):
        axes = figure.add_subplot(grid[y - 1, x], sharex=panels.get((x, x + 1)), sharey=panels.get((0, y)))
        few_ticks_on(axes)
        axes.tick_params(labelsize=8, labelbottom=y == side, labelleft=x == 0)
        if y == side:
            axes.set_xlabel(_name(features[x]), fontsize=size)
        if x == 0:
            axes.set_ylabel(_name(features[y]), fontsize=size)
        panels[x, y] = axes
    return panels


def _name(feature: Feature) -> str:
    return f"{wrapped(feature.name, _LETTERS_IN_A_LABEL)}\n({feature.unit})"


def pair_panels(points: np.ndarray, names: Sequence[str], labels: np.ndarray | None, heading: str) -> Figure:
    """Draw dimensions 1 and 2, 3 and 4, and so on; an odd last one is paired with the one before it.

    Args:
        points: (B, dimensions), two dimensions or more.
        labels: (B,) clusters from 0, negative for noise; None if there are no clusters.
    """
    dimensions = min(len(names), _DIMENSIONS_AT_MOST)
    pairs = [(min(i, dimensions - 2), min(i, dimensions - 2) + 1) for i in range(0, dimensions, 2)]
    columns = min(_COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    cut = f"; the first {dimensions} of {len(names)} dimensions" if dimensions < len(names) else ""
    coloured = "coloured by cluster" if labels is not None else "darker where there are more"
    with style():
        height = _PANEL_SIDE * rows + 0.8
        legend_rows = int(_LEGEND_ROWS_AN_INCH * height)
        legend = legend_width(labels, legend_rows) if labels is not None else 0
        figure = new_figure(max(_PANEL_SIDE * columns, 6.5) + legend, height)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for (x, y), axes in zip(pairs, panels, strict=False):
            draw_clusters(PointsPanel(axes, _PANEL_SIDE, _PANEL_SIDE), points[:, [x, y]], labels)
            axes.set(xlabel=names[x], ylabel=names[y])
            few_ticks_on(axes)
        for axes in panels[len(pairs) :]:
            axes.set_axis_off()
        figure.suptitle(title(heading, f"{len(points):,} records, {coloured}{cut}", max(60, 26 * columns)))
        if labels is not None:
            crowded = PointsPanel(panels[0], _PANEL_SIDE, _PANEL_SIDE).crowded(len(points))
            add_cluster_legend(figure, labels, crowded=crowded, rows=legend_rows)
    return figure
