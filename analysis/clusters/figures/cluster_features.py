"""How clusters differ: a heat map of effect sizes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from analysis.clusters.summary import ClusterSummary, format_number
from analysis.figures.style import EFFECT_MAP, new_figure, style, title

_CLUSTERS_AT_MOST = 60
_INCHES_A_FEATURE = 0.5
_FEATURES_IN_A_BAND = 27
_LARGE_EFFECT = 0.8
_COLOUR_LIMIT = 3.0
_DARK_CELL = 0.6


def cluster_features(clusters: tuple[ClusterSummary, ...], heading: str) -> Figure:
    """Draw Cohen's d of each cluster and feature against random windows, with its value in each cell.

    Options of categorical features are left out: `cluster_choices` draws them.

    Row labels give each cluster's size and flagged confounds, if any. If there are too many clusters to read, only the
    largest are drawn; many features are split into bands, one below the other.

    Args:
        clusters: largest first.
        heading: what the figure shows, for its title.
    """
    shown = clusters[:_CLUSTERS_AT_MOST]
    more = f"; the {len(shown)} largest of {len(clusters):,} clusters" if len(shown) < len(clusters) else ""
    text = title(heading, f"Cohen's d of each cluster against random windows of lives{more}", 100)
    with style():
        if not shown:
            return _nothing_found(text)
        names = [effect.name for effect in shown[0].effects if not effect.choice]
        effects = np.array([[e.d_baseline for e in cluster.effects if not e.choice] for cluster in shown])
        limit = float(np.clip(np.abs(effects).max(), _LARGE_EFFECT, _COLOUR_LIMIT))
        bands = np.array_split(np.arange(len(names)), -(-len(names) // _FEATURES_IN_A_BAND))
        width = max(11.0, 3 + _INCHES_A_FEATURE * len(bands[0]))
        figure = new_figure(width, len(bands) * (2.8 + 0.3 * max(3, len(shown))))
        panels = figure.subplots(len(bands), squeeze=False).ravel()
        panels[0].set_title(text, pad=10)
        for axes, band in zip(panels, bands, strict=True):
            image = _draw(axes, effects[:, band], [names[i] for i in band], limit)
            axes.set_yticks(range(len(shown)), [_describe(cluster) for cluster in shown])
        extend = "both" if np.abs(effects).max() > limit else "neither"
        figure.colorbar(image, ax=panels, extend=extend, label="Cohen's d", fraction=0.03, pad=0.02, aspect=30)
    return figure


def _draw(axes: Axes, effects: np.ndarray, names: list[str], limit: float) -> AxesImage:
    image = axes.imshow(np.clip(effects, -limit, limit), cmap=EFFECT_MAP, vmin=-limit, vmax=limit, aspect="auto")
    _write_values(image, effects, limit)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _nothing_found(text: str) -> Figure:
    figure = new_figure(11, 3.7)
    axes = figure.add_subplot()
    axes.set_title(text, pad=10)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    message = "No cluster was found: every record is noise, so there is nothing to compare."
    axes.text(0.5, 0.5, message, ha="center", va="center", fontsize=11, transform=axes.transAxes)
    return figure


def _write_values(image: AxesImage, effects: np.ndarray, limit: float) -> None:
    for (row, column), value in np.ndenumerate(effects):
        colour = "white" if abs(value) > _DARK_CELL * limit else "black"
        image.axes.text(column, row, format_number(value), ha="center", va="center", fontsize=8, color=colour)


def _describe(cluster: ClusterSummary) -> str:
    flagged = f"  marks {', '.join(cluster.flagged)}" if cluster.flagged else ""
    return f"cluster {cluster.label}  (n = {cluster.records:,}){flagged}"
