"""How much of each principal component lies between the options of what agents choose and have around them."""

import numpy as np
from matplotlib.figure import Figure

from analysis.clusters.components import ComponentReport
from analysis.figures.style import VALUE_MAP, new_figure, style, title
from analysis.statistics.inference import LEVEL

_COMPONENTS_AT_MOST = 30


def pca_choices(report: ComponentReport, heading: str) -> Figure:
    """Draw the eta-square of each categorical feature and component; a dot marks those that survive given tick and age.

    Args:
        report: with at least one categorical feature; the strongest 30 components are drawn.
        heading: what the figure shows, for its title.
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
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label="eta-square", fraction=0.03, pad=0.01)
        text = "share of each component's variance between options; a dot: survives given tick and age (q < 0.05)"
        figure.suptitle(title(heading, text, int(10 * figure.get_figwidth())))
    return figure
