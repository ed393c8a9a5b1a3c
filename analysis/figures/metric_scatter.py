"""The plane, once a feature, coloured by what the agent was doing around that time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from analysis.clusters.projection import Projection
from analysis.features import FEATURES, Feature
from analysis.figures.points import Panel, draw_values
from analysis.figures.style import few_ticks, new_figure, style, title

_COLUMNS = 4
_MANY = 24
_WIDTH, _HEIGHT = 2.6, 2.4


def metric_scatter(
    projection: Projection, rolled: np.ndarray, window: int, heading: str, features: Sequence[Feature] = FEATURES
) -> Figure:
    """Draw one panel a feature: colour and opacity follow the feature's rolling mean within a life.

    The colours span the values from the 1st to the 99th percentile; the highest values are drawn last. Where points
    would hide each other, small cells show their means.

    Args:
        projection: B records in the plane.
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
        for i, (feature, axes) in enumerate(zip(features, panels, strict=False)):
            axes.set(title=f"{feature.name} ({feature.unit})", xticks=[], yticks=[])
            _draw(Panel(axes, _WIDTH, _HEIGHT), projection.points, rolled[:, i])
        for axes in panels[len(features) :]:
            axes.set_axis_off()
        figure.supxlabel(projection.axes[0], fontsize=9)
        figure.supylabel(projection.axes[1], fontsize=9)
        crowded = Panel(panels[0], _WIDTH, _HEIGHT).crowded(len(rolled))
        cells = ", then over the records in a cell" if crowded else ""
        text = f"features as means over {window} kept records of a life{cells}; darker and more opaque is higher"
        figure.suptitle(title(heading, text, 130))
    return figure


def _draw(panel: Panel, points: np.ndarray, values: np.ndarray) -> None:
    colours = draw_values(panel, points, values)
    if values.max() > values.min():
        panel.axes.figure.colorbar(colours, ax=panel.axes, ticks=few_ticks(), fraction=0.05, pad=0.02)
    else:
        text = f"always {values[0]:g}"
        panel.axes.text(0.5, 0.5, text, ha="center", va="center", transform=panel.axes.transAxes, fontsize=11)
