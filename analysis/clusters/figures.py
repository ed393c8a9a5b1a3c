"""Figures of an analysis: scatters of records, and heat maps of clusters and principal components.

Scatters are planes by cluster and feature, features along components, and pairs of features or dimensions; heat maps
are of effect sizes, options, correlations and eta-squares.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke

from analysis.clusters.components import ComponentReport, binned_profile
from analysis.clusters.dataset import Dataset
from analysis.clusters.projection import Projection
from analysis.clusters.summary import ClusterSummary, FeatureEffect
from analysis.features import FEATURES, Feature
from analysis.figures.points import PointsPanel, add_cluster_legend, draw_clusters, draw_values, legend_width
from analysis.figures.style import (
    EFFECT_MAP,
    VALUE_MAP,
    bare,
    few_ticks,
    few_ticks_on,
    new_figure,
    style,
    title,
    wrapped,
)
from analysis.labels import NOISE
from analysis.statistics.inference import LEVEL
from common.number_text import format_number, share_text

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
            colours, extend, limits = draw_values(
                PointsPanel(axes, _WIDTH, _HEIGHT), projection.points, values := rolled[:, i]
            )
            if values.max() > values.min():
                bar = figure.colorbar(colours, ax=axes, ticks=few_ticks(), extend=extend, fraction=0.05, pad=0.02)
                bar.set_label(f"{feature.unit}, {limits}", fontsize=7.5)
                bar.ax.tick_params(labelsize=8)
            else:
                _say(axes, f"always {values[0]:g}")
        for axes in panels[len(features) :]:
            axes.set_axis_off()
        figure.supxlabel(projection.axes[0], fontsize=9)
        figure.supylabel(projection.axes[1], fontsize=9)
        crowded = PointsPanel(panels[0], _WIDTH, _HEIGHT).crowded(len(rolled))
        cells = ", then over the records in each cell" if crowded else ""
        text = f"each feature's mean over {window} kept records of a life{cells}; yellow is high, dark blue is low"
        figure.suptitle(title(heading, text, 130))
    return figure


def _say(axes: Axes, text: str) -> None:
    """Write in the middle of a panel why it is empty."""
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=11, transform=axes.transAxes)


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
        place, mean, lowest, highest = binned_profile(scores[:, component], values, data.lives)
        axes.fill_between(place, lowest, highest, color=_LINE, alpha=0.35, linewidth=0)
        halo = [withStroke(linewidth=3, foreground="white")]
        axes.plot(place, mean, color=_LINE, linewidth=1.4, path_effects=halo)
        axes.set_ylim(low - room, high + room)
        axes.set_xlabel(f"PC {component + 1}  (r = {report.r[component, feature]:+.2f})", fontsize=8)
        few_ticks_on(axes)
        axes.tick_params(labelsize=7)
    row[0].set_ylabel(name, fontsize=8)


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


_CLUSTERS_AT_MOST = 60
_COMPONENTS_AT_MOST = 30
_DARK_CELL = 0.6
"""Share of the colour scale above which text is white."""

_OPTIONS_IN_A_BAND, _FEATURES_IN_A_BAND = 30, 27
_RARE = 0.02
_INCHES_AN_OPTION, _INCHES_A_ROW, _INCHES_A_FEATURE = 0.42, 0.3, 0.5
_LARGEST_DIFFERENCE = 50  # percentage points
_LARGE_EFFECT = 0.8
_COLOUR_LIMIT = 3.0
_CELL_WIDTH, _CELL_HEIGHT = 0.4, 0.27
_BAR_INCHES = 2.2
_BAR_COLOUR = "#33475b"


def cluster_choices(clusters: tuple[ClusterSummary, ...], heading: str) -> Figure | None:
    """Draw the share of each option in each cluster, coloured by its difference from the share in all records.

    The first row shows all records. A frame marks differences that survive given tick and age. Options that are rare
    everywhere are left out; many options are split into bands, one below the other. None if nothing is left.
    """
    shown = clusters[:_CLUSTERS_AT_MOST]
    table = [[effect for effect in cluster.effects if effect.choice] for cluster in shown]
    columns = [
        i for i, option in enumerate(zip(*table, strict=True))
        if max(option[0].overall_mean, *(effect.mean for effect in option)) >= _RARE
    ]  # fmt: skip
    if not columns:
        return None
    text = (
        "percentage of a cluster's records with each option; colour: difference from all records; framed: survives "
        f"given tick and age; options below {_RARE:.0%} everywhere are left out{_largest(clusters)}"
    )
    bands = np.array_split(columns, -(-len(columns) // _OPTIONS_IN_A_BAND))
    with style():
        height = 1.9 + _INCHES_A_ROW * (len(shown) + 1)
        figure = new_figure(3 + _INCHES_AN_OPTION * len(bands[0]), len(bands) * height)
        panels = figure.subplots(len(bands), squeeze=False).ravel()
        panels[0].set_title(title(heading, text, 110), pad=10)
        for axes, band in zip(panels, bands, strict=True):
            image = _draw_choices(axes, [[row[i] for i in band] for row in table])
            axes.set_yticks(range(len(shown) + 1), ["all records", *map(_size, shown)])
        label = "percentage points from all records"
        figure.colorbar(image, ax=panels, extend="both", label=label, fraction=0.03, pad=0.02, aspect=30)
    return figure


def _largest(clusters: tuple[ClusterSummary, ...]) -> str:
    many = len(clusters) > _CLUSTERS_AT_MOST
    return f"; the {_CLUSTERS_AT_MOST} largest of {len(clusters):,} clusters" if many else ""


def _size(cluster: ClusterSummary, marks: str = "") -> str:
    return f"cluster {cluster.label}  (n = {cluster.records:,})" + (f"  marks {marks}" if marks else "")


def _draw_choices(axes: Axes, table: list[list[FeatureEffect]]) -> AxesImage:
    shares = 100 * np.array([[effect.overall_mean for effect in table[0]], *([e.mean for e in row] for row in table)])
    image = _heat_map(axes, shares - shares[0], _LARGEST_DIFFERENCE, shares, "{:.0f}".format)
    for (row, column), effect in np.ndenumerate(np.array(table, object)):
        if effect.survives_given_time:
            frame = [column - 0.46, column + 0.46, column + 0.46, column - 0.46, column - 0.46]
            axes.plot(frame, [row + 0.56, row + 0.56, row + 1.44, row + 1.44, row + 0.56], color="black", lw=1.2)
    _name_columns(axes, [effect.name for effect in table[0]])
    kinds = [effect.choice for effect in table[0]]
    for place in (i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]):
        axes.axvline(place - 0.5, color="black", lw=0.8)
    axes.axhline(0.5, color="black", lw=0.8)
    return image


def _heat_map(
    axes: Axes, values: np.ndarray, limit: float, written: np.ndarray, text: Callable[[float], str], size: float = 8
) -> AxesImage:
    """Colour cells by values between -limit and limit, and write a number into each, (rows, columns) each."""
    image = axes.imshow(np.clip(values, -limit, limit), cmap=EFFECT_MAP, vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), number in np.ndenumerate(written):
        colour = "white" if abs(values[row, column]) > _DARK_CELL * limit else "black"
        axes.text(column, row, text(number), ha="center", va="center", fontsize=size, color=colour)
    bare(axes)
    return image


def _name_columns(axes: Axes, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")


def cluster_features(clusters: tuple[ClusterSummary, ...], heading: str) -> Figure:
    """Draw Cohen's d of each cluster and feature against random windows, with its value in each cell.

    Options of categorical features are left out: `cluster_choices` draws them. Row labels give each cluster's size and
    flagged confounds, if any. If there are too many clusters to read, only the largest are drawn; many features are
    split into bands, one below the other.
    """
    shown = clusters[:_CLUSTERS_AT_MOST]
    text = title(heading, f"Cohen's d of each cluster against random windows of lives{_largest(clusters)}", 100)
    with style():
        if not shown:
            figure = new_figure(11, 3.7)
            axes = figure.add_subplot()
            axes.set_title(text, pad=10)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            _say(axes, "No cluster was found: every record is noise, so there is nothing to compare.")
            return figure
        names = [effect.name for effect in shown[0].effects if not effect.choice]
        effects = np.array([[e.d_baseline for e in cluster.effects if not e.choice] for cluster in shown])
        limit = float(np.clip(np.abs(effects).max(), _LARGE_EFFECT, _COLOUR_LIMIT))
        bands = np.array_split(np.arange(len(names)), -(-len(names) // _FEATURES_IN_A_BAND))
        width = max(11.0, 3 + _INCHES_A_FEATURE * len(bands[0]))
        figure = new_figure(width, len(bands) * (2.8 + 0.3 * max(3, len(shown))))
        panels = figure.subplots(len(bands), squeeze=False).ravel()
        panels[0].set_title(text, pad=10)
        for axes, band in zip(panels, bands, strict=True):
            image = _heat_map(axes, effects[:, band], limit, effects[:, band], format_number)
            _name_columns(axes, [names[i] for i in band])
            axes.set_yticks(range(len(shown)), [_size(cluster, ", ".join(cluster.flagged)) for cluster in shown])
        extend = "both" if np.abs(effects).max() > limit else "neither"
        figure.colorbar(image, ax=panels, extend=extend, label="Cohen's d", fraction=0.03, pad=0.02, aspect=30)
    return figure


def pca_choices(report: ComponentReport, heading: str) -> Figure:
    """Draw the eta-square of each categorical feature and component; a dot marks those that survive given tick and age.

    The report must have a categorical feature; the strongest 30 components are drawn.
    """
    shown = min(_COMPONENTS_AT_MOST, len(report.explained))
    eta = np.array([choice.value[:shown] for choice in report.choices])
    certain = np.array([choice.q_given_time[:shown] <= LEVEL for choice in report.choices])
    with style():
        figure = new_figure(max(8.0, 0.4 * shown + 3.5), 0.3 * len(eta) + 2.0)
        axes = figure.subplots()
        image = axes.imshow(eta, cmap=VALUE_MAP, vmin=0, vmax=max(0.1, float(eta.max())), aspect="auto")
        rows, columns = np.nonzero(certain)
        axes.plot(columns, rows, ".", color="white", markeredgecolor="black", markeredgewidth=0.5, markersize=9)
        axes.set_yticks(range(len(eta)), [choice.name for choice in report.choices])
        axes.set_xticks(range(shown), [f"PC {i + 1}" for i in range(shown)], fontsize=7, rotation=60)
        bare(axes)
        figure.colorbar(image, ax=axes, label="eta-square", fraction=0.03, pad=0.01)
        text = "share of each component's variance between options; a dot: survives given tick and age (q at most 0.05)"
        figure.suptitle(title(heading, text, int(10 * figure.get_figwidth())))
    return figure


def pca_feature_correlations(report: ComponentReport, heading: str) -> Figure:
    """Draw Pearson's r of each feature and component, and next to it the cross-validated R2 of all components.

    The strongest 30 components are drawn, but the R2 uses all of them.
    """
    shown = min(_COMPONENTS_AT_MOST, len(report.explained))
    r, features = report.r[:shown, report.own].T, len(report.own)
    cut = f"; the first {shown} of {len(report.explained)} components" if shown < len(report.explained) else ""
    left_out = f"on {report.plural} left out of the fit"
    text = f"Pearson's r over records; R2 of {len(report.explained)} components, {left_out}{cut}"
    with style():
        wide = max(_CELL_WIDTH * shown, 3.0)
        figure = new_figure(wide + _BAR_INCHES + 3.0, _CELL_HEIGHT * features + 2.0)
        cells, bars = figure.subplots(1, 2, sharey=True, width_ratios=(wide, _BAR_INCHES))
        image = _heat_map(cells, r, 1, r, _correlation, 6.5)
        cells.set_facecolor("#eeeeee")
        shares = [f"PC {i + 1}\n{share:.1%}" for i, share in enumerate(report.explained[:shown])]
        cells.set_xticks(range(shown), shares, fontsize=7)
        cells.set_xlabel("principal component, and its share of the activations' variance")
        cells.set_yticks(range(features), [report.features[i] for i in report.own])
        bare(bars)
        r2 = report.r2[0, report.own]
        bars.barh(range(features), np.clip(np.nan_to_num(r2), 0, 1), 0.7, color=_BAR_COLOUR)
        for place, value in enumerate(r2.tolist()):
            beside = max(0.0, float(np.nan_to_num(value))) + 0.02
            bars.text(beside, place, format_number(value), va="center", fontsize=7.5)
        bars.set(xlim=(0, 1.18), xticks=[0, 0.5, 1], xlabel=f"R2, cross-validated by {report.unit}\n(below 0: no bar)")
        bars.axvline(0, color="black", linewidth=0.8)
        bars.tick_params(axis="y", labelleft=False)
        figure.colorbar(image, ax=cells, label="Pearson's r", fraction=0.03, pad=0.01, aspect=25)
        figure.suptitle(title(heading, text, int(9 * (wide + _BAR_INCHES + 2))))
    return figure


def _correlation(r: float) -> str:
    return f"{r + 0.0:.2f}".replace("-0.00", "0.00").replace("0.", ".", 1) if np.isfinite(r) else "–"
