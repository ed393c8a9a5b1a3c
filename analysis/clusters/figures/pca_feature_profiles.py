"""How each feature changes along the principal components that it correlates with most."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from analysis.clusters.components import ComponentReport, Profile, binned_profile
from analysis.clusters.dataset import Dataset
from analysis.figures.points import Panel, draw_clusters
from analysis.figures.style import few_ticks, new_figure, style, title

_COMPONENTS = 3
_FEATURES_AT_MOST = 28
_FEATURES_ACROSS = 2
_WIDTH, _HEIGHT = 2.2, 1.6
_LINE = "#e76300"
_OUTLIERS_PERCENT = 0.5


def pca_feature_profiles(report: ComponentReport, scores: np.ndarray, data: Dataset) -> Figure:
    """Draw each feature against the three components with the largest |r|: its records, and its means in 20 bins.

    Records and means share their axes. The band is the means' 95% interval over lives.

    Args:
        scores: (B, components).
    """
    strength = np.nan_to_num(np.abs(report.r[:, report.own])).max(axis=0)
    shown = report.own[np.sort(np.argsort(-strength, kind="stable")[:_FEATURES_AT_MOST])]
    rows = -(-len(shown) // _FEATURES_ACROSS)
    left_out = len(report.own) - len(shown)
    cut = f"; {left_out} features with smaller |r| are left out" if left_out else ""
    text = f"records, and means of 20 equal shares of them, with 95% intervals over {len(data.lives)} lives{cut}"
    with style():
        figure = new_figure((_WIDTH + 0.25) * _COMPONENTS * _FEATURES_ACROSS, (_HEIGHT + 0.45) * rows + 0.9)
        grid = figure.subplots(rows, _COMPONENTS * _FEATURES_ACROSS, squeeze=False)
        panels = grid.reshape(rows * _FEATURES_ACROSS, _COMPONENTS)
        for axes in panels.ravel():
            axes.set_axis_off()
        for feature, row in zip(shown, panels, strict=False):
            _draw_feature(list(row), int(feature), report, scores, data)
        figure.suptitle(title(data.heading, text, 110))
    return figure


def _draw_feature(row: list[Axes], feature: int, report: ComponentReport, scores: np.ndarray, data: Dataset) -> None:
    values = data.values[:, feature]
    name = f"{data.features[feature].name}\n({data.features[feature].unit})"
    components = report.strongest(feature, _COMPONENTS)
    if not components:
        row[0].text(0, 0.5, f"{name}\nalways {values[0]:g}", va="center", fontsize=9)
        return
    low, high = np.percentile(values, [_OUTLIERS_PERCENT, 100 - _OUTLIERS_PERCENT])
    if low == high:
        low, high = values.min(), values.max()
    room = 0.06 * (high - low)
    for axes, component in zip(row, components, strict=False):
        axes.set_axis_on()
        draw_clusters(Panel(axes, _WIDTH, _HEIGHT), np.stack([scores[:, component], values], axis=1), None)
        _draw_profile(axes, binned_profile(scores[:, component], values, data.lives))
        axes.set_ylim(low - room, high + room)
        axes.set_xlabel(f"PC {component + 1}  (r = {report.r[component, feature]:+.2f})", fontsize=8)
        axes.xaxis.set_major_locator(few_ticks())
        axes.yaxis.set_major_locator(few_ticks())
        axes.tick_params(labelsize=7)
    row[0].set_ylabel(name, fontsize=8)


def _draw_profile(axes: Axes, profile: Profile) -> None:
    axes.fill_between(profile.place, profile.low, profile.high, color=_LINE, alpha=0.35, linewidth=0)
    halo = [withStroke(linewidth=3, foreground="white")]
    axes.plot(profile.place, profile.mean, color=_LINE, linewidth=1.4, path_effects=halo)
