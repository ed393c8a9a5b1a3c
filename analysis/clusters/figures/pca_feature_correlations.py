"""Correlations of principal components with features, and how well all components predict each feature."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.clusters.components import ComponentReport
from analysis.clusters.summary import format_number
from analysis.figures.style import EFFECT_MAP, new_figure, style, title

_COMPONENTS_AT_MOST = 30
_CELL_WIDTH, _CELL_HEIGHT = 0.4, 0.27
_BAR_INCHES = 2.2
_DARK_CELL = 0.6
_BAR_COLOUR = "#33475b"


def pca_feature_correlations(report: ComponentReport, heading: str) -> Figure:
    """Draw Pearson's r of each feature and component, and next to it the cross-validated R2 of all components.

    Args:
        report: of components and features; the strongest 30 components are drawn, but the R2 uses all of them.
        heading: what the figure shows, for its title.
    """
    shown = min(_COMPONENTS_AT_MOST, len(report.explained))
    r, features = report.r[:shown, report.own].T, len(report.own)
    cut = f"; the first {shown} of {len(report.explained)} components" if shown < len(report.explained) else ""
    text = f"Pearson's r over records; R2 of {len(report.explained)} components, on lives left out of the fit{cut}"
    with style():
        wide = max(_CELL_WIDTH * shown, 3.0)
        figure = new_figure(wide + _BAR_INCHES + 3.0, _CELL_HEIGHT * features + 2.0)
        cells, bars = figure.subplots(1, 2, sharey=True, width_ratios=(wide, _BAR_INCHES))
        image = cells.imshow(r, cmap=EFFECT_MAP, vmin=-1, vmax=1, aspect="auto")
        cells.set_facecolor("#eeeeee")
        _write_values(cells, r)
        shares = [f"PC {i + 1}\n{share:.1%}" for i, share in enumerate(report.explained[:shown])]
        cells.set_xticks(range(shown), shares, fontsize=7)
        cells.set_xlabel("principal component, and its share of the activations' variance")
        cells.set_yticks(range(features), [report.features[i] for i in report.own])
        for axes in (cells, bars):
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        _draw_bars(bars, report.r2.value[report.own])
        figure.colorbar(image, ax=cells, label="Pearson's r", fraction=0.03, pad=0.01, aspect=25)
        figure.suptitle(title(heading, text, int(9 * (wide + _BAR_INCHES + 2))))
    return figure


def _write_values(axes: Axes, r: np.ndarray) -> None:
    for (row, column), value in np.ndenumerate(r):
        text = f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("0.", ".", 1) if np.isfinite(value) else "–"
        colour = "white" if abs(value) > _DARK_CELL else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)


def _draw_bars(axes: Axes, r2: np.ndarray) -> None:
    places = np.arange(len(r2))
    axes.barh(places, np.clip(np.nan_to_num(r2), 0, 1), 0.7, color=_BAR_COLOUR)
    for place, value in enumerate(r2.tolist()):
        axes.text(max(0.0, float(np.nan_to_num(value))) + 0.02, place, format_number(value), va="center", fontsize=7.5)
    axes.set(xlim=(0, 1.18), xticks=[0, 0.5, 1])
    axes.set_xlabel("R2, cross-validated by life\n(below 0: no bar)")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelleft=False)
