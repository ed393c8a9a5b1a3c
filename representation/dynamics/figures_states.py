"""Figures of single states: what components go with, and the t-SNE plane."""

import numpy as np
from matplotlib.figure import Figure

from analysis.figures.legend import add_cluster_legend
from analysis.figures.points import Panel, draw_clusters
from analysis.figures.style import EFFECT_MAP, new_figure, style, title
from analysis.labels import NOISE
from representation.dynamics.decompositions import TITLES
from representation.dynamics.results import LEVEL, States

_CELL = 0.24


def components_and_features(states: States) -> Figure:
    """Draw the correlation of every component with every feature; a dot marks q < 0.05."""
    names = [feature.name for feature in states.data.features]
    kinds = list(states.decompositions)
    rows = sum(len(states.decompositions[kind].names) for kind in kinds)
    with style():
        figure = new_figure(max(7.0, _CELL * len(names) + 4.5), _CELL * rows + 3.6)
        panels = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0]
        image = None
        for axes, kind in zip(panels, kinds, strict=True):
            found, r = states.decompositions[kind], states.associations[kind]
            image = axes.imshow(r.r, cmap=EFFECT_MAP, vmin=-1, vmax=1, aspect="auto")
            sure_row, sure_column = np.nonzero(r.q < LEVEL)
            axes.scatter(sure_column, sure_row, s=4, c="black", linewidths=0)
            told = zip(found.names, found.explained, found.stability, found.stable, strict=True)
            labels = [f"{name}  {share:.0%}, {again:.2f}{'*' if stable else ''}" for name, share, again, stable in told]
            axes.set_yticks(range(len(labels)), labels, fontsize=7)
            axes.set_ylabel(f"{TITLES[found.kind]}\n(explained, stability;\n* above Gaussians)")
        panels[-1].set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=7)
        if image is not None:
            figure.colorbar(image, ax=panels.tolist(), shrink=0.5, label="Pearson's r within lives")
        text = "Components and features; a dot marks q < 0.05 by circular shifts within lives, given tick and age"
        figure.suptitle(title(states.data.heading, text, 90))
    return figure


def plane(states: States) -> Figure:
    """Draw the t-SNE plane, coloured by Ward cluster; outliers are grey."""
    labels = np.where(states.outlier, NOISE, states.label)[states.plane_records]
    with style():
        figure = new_figure(10.0, 7.0)
        axes = figure.subplots()
        panel = Panel(axes, 7.0, 6.5)
        draw_clusters(panel, states.plane, labels)
        axes.set(xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
        add_cluster_legend(figure, labels, crowded=panel.crowded(len(labels)))
        text = (
            f"Ward clusters on a graph of neighbours; noise: outliers. Trustworthiness {states.trustworthiness:.2f}; a "
            f"second fit keeps {states.plane_agreement:.0%} of the neighbours"
        )
        axes.set_title(title(states.data.heading, text, 80))
    return figure
