"""Scatters of records: planes by cluster and feature, features along components, pairs of features or dimensions."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patheffects import withStroke

from analysis.clusters.components import ComponentReport, binned_profile
from analysis.clusters.dataset import Dataset
from analysis.clusters.projection import Projection
from analysis.features import FEATURES, Feature
from analysis.figures.points import PointsPanel, add_cluster_legend, draw_clusters, draw_values, legend_width
from analysis.figures.style import few_ticks, few_ticks_on, new_figure, style, title, wrapped
from analysis.labels import NOISE
from common.number_text import share_text

_SIDE = 6.0
_COLUMNS = 4
_MANY = 24
_WIDTH, _HEIGHT = 2.6, 2.4
_COMPONENTS = 3
_FEATURES_AT_MOST, _FEATURES_ACROSS = 28, 2
_PROFILE_WIDTH, _PROFILE_HEIGHT = 2.2, 1.6
_LINE = "#e76300"
_OUTLIERS_PERCENT = 0.5
_NUMBER_ROOM = (0.04, 0.03)
"""Width and height of a cluster's number, as shares of the plane's larger extent."""
FEATURES_AT_MOST = 14
_PANEL = 1.4
_NARROWEST = 4.0
_LETTERS_IN_A_LABEL = 14
_LEGEND_ROWS_AN_INCH = 4
_PANELS_ACROSS = 5
_PANEL_SIDE = 2.6
_DIMENSIONS_AT_MOST = 60


def plane_scatter(projection: Projection, labels: np.ndarray, heading: str, clustered_in: str) -> Figure:
    """Draw every record at its position in the plane, in its cluster's colour; noise is grey.

    Clusters are numbered, except where a number would cover that of a larger cluster.
    """
    points, clusters = projection.points, int(labels.max()) + 1
    count_text = f"{clusters:,} cluster{'' if clusters == 1 else 's'}" if clusters else "no cluster found"
    with style():
        figure = new_figure(6.6 + legend_width(labels), 6.4)
        panel = PointsPanel(figure.add_subplot(), _SIDE, _SIDE)
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
        halo = [withStroke(linewidth=2, foreground="white", alpha=0.8)]
        axes.annotate(
            str(cluster), (float(place[0]), float(place[1])), xytext=(0, 3), textcoords="offset points", ha="center",
            va="bottom", fontsize=8, fontweight="bold", path_effects=halo,
        )  # fmt: skip


def metric_scatter(
    projection: Projection, rolled: np.ndarray, window: int, heading: str, features: Sequence[Feature] = FEATURES
) -> Figure:
    """Draw one panel per feature, coloured by the feature's rolling mean within a life.

    Colours span the 1st to the 99th percentile, as each colour bar says; the highest values are drawn last. Where
    points would overlap, small cells show their means. `rolled` are means of features, (B, features), over a `window`
    of kept records.
    """
    across = _COLUMNS if len(features) <= _MANY else 2 * _COLUMNS
    rows = -(-len(features) // across)
    with style():
        figure = new_figure(3.4 * across, 2.9 * rows + 0.7)
        panels = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False).ravel()
        for i, (feature, axes) in enumerate(zip(features, panels, strict=False)):
            axes.set(title=feature.name, xticks=[], yticks=[])
            _draw_metric(PointsPanel(axes, _WIDTH, _HEIGHT), projection.points, rolled[:, i], feature.unit)
        for axes in panels[len(features) :]:
            axes.set_axis_off()
        figure.supxlabel(projection.axes[0], fontsize=9)
        figure.supylabel(projection.axes[1], fontsize=9)
        crowded = PointsPanel(panels[0], _WIDTH, _HEIGHT).crowded(len(rolled))
        cells = ", then over the records in each cell" if crowded else ""
        text = f"each feature's mean over {window} kept records of a life{cells}; yellow is high, dark blue is low"
        figure.suptitle(title(heading, text, 130))
    return figure


def _draw_metric(panel: PointsPanel, points: np.ndarray, values: np.ndarray, unit: str) -> None:
    colours, extend, limits = draw_values(panel, points, values)
    if values.max() > values.min():
        bar = panel.axes.figure.colorbar(
            colours, ax=panel.axes, ticks=few_ticks(), extend=extend, fraction=0.05, pad=0.02
        )
        bar.set_label(f"{unit}, {limits}", fontsize=7.5)
        bar.ax.tick_params(labelsize=8)
    else:
        text = f"always {values[0]:g}"
        panel.axes.text(0.5, 0.5, text, ha="center", va="center", transform=panel.axes.transAxes, fontsize=11)


def pca_feature_profiles(report: ComponentReport, scores: np.ndarray, data: Dataset) -> Figure:
    """Draw each feature against the three components with the largest |r|: its records, and its means in 20 bins.

    Records and means share their axes. The band is the means' 95% interval over lives. Scores are (B, components).
    """
    strength = np.nan_to_num(np.abs(report.r[:, report.own])).max(axis=0)
    shown = report.own[np.sort(np.argsort(-strength, kind="stable")[:_FEATURES_AT_MOST])]
    rows = -(-len(shown) // _FEATURES_ACROSS)
    left_out = len(report.own) - len(shown)
    cut = f"; {left_out} features with smaller |r| are left out" if left_out else ""
    text = f"records, and means of 20 equal shares of them, with 95% intervals over {len(data.lives)} lives{cut}"
    with style():
        figure = new_figure(
            (_PROFILE_WIDTH + 0.25) * _COMPONENTS * _FEATURES_ACROSS, (_PROFILE_HEIGHT + 0.45) * rows + 0.9
        )
        grid = figure.subplots(rows, _COMPONENTS * _FEATURES_ACROSS, squeeze=False)
        panels = grid.reshape(rows * _FEATURES_ACROSS, _COMPONENTS)
        for axes in panels.ravel():
            axes.set_axis_off()
        for feature, row in zip(shown, panels, strict=False):
            _draw_feature(list(row), int(feature), report, scores, data)
        figure.suptitle(title(data.heading, text, 110))
    return figure


def _draw_feature(row: list[Axes], feature: int, report: ComponentReport, scores: np.ndarray, data: Dataset) -> None:
    values = data.values[:, feature]
    name = f"{data.features[feature].name}\n({data.features[feature].unit})"
    components = report.strongest(feature, _COMPONENTS)
    if not components:
        row[0].text(0, 0.5, f"{name}\nalways {values[0]:g}", va="center", fontsize=9)
        return
    low, high = np.percentile(values, [_OUTLIERS_PERCENT, 100 - _OUTLIERS_PERCENT])
    if low == high:
        low, high = values.min(), values.max()
    room = 0.06 * (high - low)
    for axes, component in zip(row, components, strict=False):
        axes.set_axis_on()
        draw_clusters(
            PointsPanel(axes, _PROFILE_WIDTH, _PROFILE_HEIGHT), np.stack([scores[:, component], values], axis=1), None
        )
        _draw_profile(axes, binned_profile(scores[:, component], values, data.lives))
        axes.set_ylim(low - room, high + room)
        axes.set_xlabel(f"PC {component + 1}  (r = {report.r[component, feature]:+.2f})", fontsize=8)
        few_ticks_on(axes)
        axes.tick_params(labelsize=7)
    row[0].set_ylabel(name, fontsize=8)


def _draw_profile(axes: Axes, profile: np.ndarray) -> None:
    place, mean, low, high = profile
    axes.fill_between(place, low, high, color=_LINE, alpha=0.35, linewidth=0)
    halo = [withStroke(linewidth=3, foreground="white")]
    axes.plot(place, mean, color=_LINE, linewidth=1.4, path_effects=halo)


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
    inches = max(_PANEL * side, _NARROWEST)
    legend_rows = int(_LEGEND_ROWS_AN_INCH * inches)
    with style():
        figure = new_figure(inches + 0.9 + legend_width(labels, legend_rows), inches + 1.4)
        panels = _triangle(figure, shown)
        for (x, y), axes in panels.items():
            draw_clusters(PointsPanel(axes, _PANEL, _PANEL), rolled[:, [x, y]], labels)
        counted = f"{pairs} pair{'' if pairs == 1 else 's'} of features"
        text = f"{counted}, each a mean over {window} kept records of a life{coloured}{cut}"
        figure.suptitle(title(heading, text, int(9 * inches)))
        crowded = PointsPanel(panels[0, 1], _PANEL, _PANEL).crowded(len(rolled))
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
    columns = min(_PANELS_ACROSS, len(pairs))
    rows = -(-len(pairs) // columns)
    cut = f"; the first {dimensions} of {len(names)} dimensions" if dimensions < len(names) else ""
    coloured = "coloured by cluster" if labels is not None else "darker where there are more"
    with style():
        height = _PANEL_SIDE * rows + 0.8
        legend_rows = int(_LEGEND_ROWS_AN_INCH * height)
        figure = new_figure(max(_PANEL_SIDE * columns, 6.5) + legend_width(labels, legend_rows), height)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for (x, y), axes in zip(pairs, panels, strict=False):
            draw_clusters(PointsPanel(axes, _PANEL_SIDE, _PANEL_SIDE), points[:, [x, y]], labels)
            axes.set(xlabel=names[x], ylabel=names[y])
            few_ticks_on(axes)
        for axes in panels[len(pairs) :]:
            axes.set_axis_off()
        figure.suptitle(title(heading, f"{len(points):,} records, {coloured}{cut}", max(60, 26 * columns)))
        crowded = PointsPanel(panels[0], _PANEL_SIDE, _PANEL_SIDE).crowded(len(points))
        add_cluster_legend(figure, labels, crowded=crowded, rows=legend_rows)
    return figure
