"""Features against each other, every pair of them."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure

from analysis.features import Feature
from analysis.figures.legend import add_cluster_legend, legend_width
from analysis.figures.points import Panel, draw_clusters
from analysis.figures.style import few_ticks, new_figure, style, title

FEATURES_AT_MOST = 14
_COLUMNS = 7
_SIDE = 2.1


def feature_scatter(
    rolled: np.ndarray, features: Sequence[Feature], labels: np.ndarray | None, window: int, heading: str
) -> Figure:
    """Draw a panel for each pair of features, of rolling means within lives, coloured by cluster.

    Only the first fourteen features take part, 91 pairs; the title says so where there are more.

    Args:
        rolled: rolling means, (B, features), two features or more.
        features: the columns of `rolled`.
        labels: (B,) clusters from 0, negative for noise; None where there are no clusters.
        window: kept records that each mean is over, for the title.
        heading: what the figure shows, for its title.
    """
    shown = features[:FEATURES_AT_MOST]
    pairs = list(combinations(range(len(shown)), 2))
    columns = min(_COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    cut = f"; the first {len(shown)} of {len(features)} features" if len(shown) < len(features) else ""
    coloured = ", coloured by cluster" if labels is not None else ""
    legend_rows = int(4 * (_SIDE * rows + 0.9))
    with style():
        legend = legend_width(labels, legend_rows) if labels is not None else 0
        figure = new_figure(max(_SIDE * columns, 5.0) + legend, _SIDE * rows + 0.9)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for (x, y), axes in zip(pairs, panels, strict=False):
            draw_clusters(Panel(axes, _SIDE, _SIDE), rolled[:, [x, y]], labels)
            axes.set(xlabel=_name(shown[x]), ylabel=_name(shown[y]))
            axes.xaxis.set_major_locator(few_ticks())
            axes.yaxis.set_major_locator(few_ticks())
        for axes in panels[len(pairs) :]:
            axes.set_axis_off()
        text = f"{len(pairs)} pairs of features, each a mean over {window} kept records of a life{coloured}{cut}"
        figure.suptitle(title(heading, text, 22 * columns + 20))
        if labels is not None:
            crowded = Panel(panels[0], _SIDE, _SIDE).crowded(len(rolled))
            add_cluster_legend(figure, labels, crowded=crowded, rows=legend_rows)
    return figure


def _name(feature: Feature) -> str:
    return f"{feature.name}\n({feature.unit})"
