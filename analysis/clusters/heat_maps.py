"""Heat maps of clusters and principal components: effect sizes, options, correlations and eta-squares."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from analysis.clusters.components import ComponentReport
from analysis.clusters.summary import ClusterSummary, FeatureEffect
from analysis.figures.style import EFFECT_MAP, VALUE_MAP, bare, new_figure, style, title
from analysis.statistics.inference import LEVEL
from common.number_text import format_number

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
    columns = [i for i, option in enumerate(zip(*table, strict=True)) if _common(option)]
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


def _common(option: tuple[FeatureEffect, ...]) -> bool:
    return max(option[0].overall_mean, *(effect.mean for effect in option)) >= _RARE


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
            return _no_cluster(text)
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


def _no_cluster(text: str) -> Figure:
    figure = new_figure(11, 3.7)
    axes = figure.add_subplot()
    axes.set_title(text, pad=10)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    message = "No cluster was found: every record is noise, so there is nothing to compare."
    axes.text(0.5, 0.5, message, ha="center", va="center", fontsize=11, transform=axes.transAxes)
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
    text = f"Pearson's r over records; R2 of {len(report.explained)} components, on lives left out of the fit{cut}"
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
        _draw_bars(bars, report.r2[0, report.own])
        figure.colorbar(image, ax=cells, label="Pearson's r", fraction=0.03, pad=0.01, aspect=25)
        figure.suptitle(title(heading, text, int(9 * (wide + _BAR_INCHES + 2))))
    return figure


def _correlation(r: float) -> str:
    return f"{r + 0.0:.2f}".replace("-0.00", "0.00").replace("0.", ".", 1) if np.isfinite(r) else "–"


def _draw_bars(axes: Axes, r2: np.ndarray) -> None:
    places = np.arange(len(r2))
    axes.barh(places, np.clip(np.nan_to_num(r2), 0, 1), 0.7, color=_BAR_COLOUR)
    for place, value in enumerate(r2.tolist()):
        axes.text(max(0.0, float(np.nan_to_num(value))) + 0.02, place, format_number(value), va="center", fontsize=7.5)
    axes.set(xlim=(0, 1.18), xticks=[0, 0.5, 1])
    axes.set_xlabel("R2, cross-validated by life\n(below 0: no bar)")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelleft=False)
