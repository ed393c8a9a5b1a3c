"""Planes of the same states side by side, coloured by code."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.points import Panel, add_cluster_legend, draw_clusters, legend_width
from analysis.figures.style import new_figure, style, title

_SIDE = 4.6


def code_planes(
    planes: Mapping[str, np.ndarray], captions: Mapping[str, str], label: np.ndarray, heading: str
) -> Figure:
    """Draw planes side by side.

    Args:
        planes: name -> (N, 2).
        captions: name -> what is said of it below its name.
        label: code of each state, (N,).
    """
    with style():
        figure = new_figure((_SIDE + 0.3) * len(planes) + legend_width(label), _SIDE + 1.3)
        panels = figure.subplots(1, len(planes), squeeze=False).ravel()
        for (name, points), axes in zip(planes.items(), panels, strict=True):
            panel = Panel(axes, _SIDE, _SIDE)
            draw_clusters(panel, points, label)
            axes.set(xticks=[], yticks=[], title=f"{name}\n{captions[name]}")
        figure.suptitle(title(heading, f"{len(label):,} states, coloured by code", 120))
        add_cluster_legend(figure, label, crowded=panel.crowded(len(label)))
    return figure
