"""The plane once per feature, coloured by the feature's value around that time."""

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
    """Draw one panel per feature, coloured by the feature's rolling mean within a life.

    Colours span the 1st to the 99th percentile, as each colour bar says; the highest values are drawn last. Where
    points would overlap, small cells show their means.

    Args:
        projection: B records in the plane.
        rolled: rolling means, (B, features).
        window: length of the rolling mean in kept records, for the title.
        heading: what the figure shows, for its title.
        features: the columns of `rolled`.
    """
    across = _COLUMNS if len(features) <= _MANY else 2 * _COLUMNS
    rows = -(-len(features) // across)
    with style():
        figure = new_figure(3.4 * across, 2.9 * rows + 0.7)
        panels = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False).ravel()
        for i, (feature, axes) in enumerate(zip(features, panels, strict=False)):
            axes.set(title=feature.name, xticks=[], yticks=[])
            _draw(Panel(axes, _WIDTH, _HEIGHT), projection.points, rolled[:, i], feature.unit)
        for axes in panels[len(features) :]:
            axes.set_axis_off()
        figure.supxlabel(projection.axes[0], fontsize=9)
        figure.supylabel(projection.axes[1], fontsize=9)
        crowded = Panel(panels[0], _WIDTH, _HEIGHT).crowded(len(rolled))
        cells = ", then over the records in each cell" if crowded else ""
        text = f"each feature's mean over {window} kept records of a life{cells}; yellow is high, dark blue is low"
        figure.suptitle(title(heading, text, 130))
    return figure


def _draw(panel: Panel, points: np.ndarray, values: np.ndarray, unit: str) -> None:
    scale = draw_values(panel, points, values)
    if values.max() > values.min():
        bar = panel.axes.figure.colorbar(
            scale.colours, ax=panel.axes, ticks=few_ticks(), extend=scale.extend, fraction=0.05, pad=0.02
        )
        bar.set_label(f"{unit}, {scale.limits}", fontsize=7.5)
        bar.ax.tick_params(labelsize=8)
    else:
        text = f"always {values[0]:g}"
        panel.axes.text(0.5, 0.5, text, ha="center", va="center", transform=panel.axes.transAxes, fontsize=11)
