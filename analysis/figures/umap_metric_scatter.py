"""The embedding, once a feature, coloured by what the agent was doing around that time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from analysis.features import FEATURES, Feature
from analysis.figures.style import MANY_POINTS, VALUE_MAP, few_ticks, new_figure, point_area, style, title

_COLUMNS = 4
_MANY = 24
_FAINTEST, _STRONGEST = 0.12, 0.9
_OUTLIERS_PERCENT = 1.0


def umap_metric_scatter(
    embedding: np.ndarray, rolled: np.ndarray, window: int, heading: str, features: Sequence[Feature] = FEATURES
) -> Figure:
    """Draw one panel a feature: colour and opacity follow the feature's rolling mean within a life.

    The colours span the values from the 1st to the 99th percentile; the highest values are drawn last.

    Args:
        embedding: (B, 2).
        rolled: rolling means, (B, features).
        window: kept records that each mean is over, for the title.
        heading: what the figure shows, for its title.
        features: the columns of `rolled`.
    """
    across = _COLUMNS if len(features) <= _MANY else 2 * _COLUMNS
    rows = -(-len(features) // across)
    with style():
        figure = new_figure(3.4 * across, 2.9 * rows + 0.7)
        panels = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False).ravel()
        for i, (feature, panel) in enumerate(zip(features, panels, strict=False)):
            panel.set(title=f"{feature.name} ({feature.unit})", xticks=[], yticks=[])
            _draw(panel, embedding, rolled[:, i])
        for panel in panels[len(features) :]:
            panel.set_axis_off()
        figure.supxlabel("UMAP 1", fontsize=9)
        figure.supylabel("UMAP 2", fontsize=9)
        text = f"features as means over {window} kept records of a life; darker and more opaque is higher"
        figure.suptitle(title(heading, text, 110))
    return figure


def _draw(axes: Axes, embedding: np.ndarray, values: np.ndarray) -> None:
    low, high = np.percentile(values, [_OUTLIERS_PERCENT, 100 - _OUTLIERS_PERCENT])
    if low == high:
        # A rare event can leave both percentiles equal; the extremes still tell it from a feature that never changes.
        low, high = values.min(), values.max()
    magnitude = Normalize(low, high, clip=True)(values).filled(0) if high > low else np.zeros(len(values))
    order = np.argsort(magnitude, kind="stable")
    points = axes.scatter(
        embedding[order, 0],
        embedding[order, 1],
        c=values[order],
        s=point_area(len(values)),
        cmap=VALUE_MAP,
        vmin=low,
        vmax=high,
        linewidths=0,
        rasterized=len(values) > MANY_POINTS,
    )
    if high > low:
        axes.figure.colorbar(points, ax=axes, ticks=few_ticks(), fraction=0.05, pad=0.02)
        # Set after the bar is made, whose colours must stay opaque.
        points.set_alpha((_FAINTEST + (_STRONGEST - _FAINTEST) * magnitude[order]).tolist())
    else:
        axes.text(0.5, 0.5, f"always {low:g}", ha="center", va="center", transform=axes.transAxes, fontsize=11)
