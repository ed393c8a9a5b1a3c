"""Policies' scores by category, and how long their agents live."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis.evaluation.held_out_tasks import CATEGORIES
from analysis.evaluation.results import MODES
from analysis.evaluation.scores import PolicyScores
from analysis.figures.style import category_colour, new_figure, style, title
from analysis.statistics.resampling import Estimate

_BAR_HEIGHT = 0.62
_INCHES_A_POLICY = 0.34
_INCHES_A_MODE = 0.75
_INCHES_AROUND = 1.3
_ROOM = 1.16
_APART = 0.16
_INK = "#1a1a1a"
_WORLDS = {"pvp": "pvp: all policies share each world", "pve": "pve: each policy alone in its world"}


def score_summary(scores: Sequence[PolicyScores], confidence: float) -> Figure:
    """Draw each policy's weighted score, stacked by category, and the mean and median ticks lived.

    Args:
        scores: in the order in which each mode's policies are drawn, the first on top.
    """
    groups = [group for mode in MODES if (group := [score for score in scores if score.results.mode == mode])]
    heights = [_INCHES_A_MODE + _INCHES_A_POLICY * len(group) for group in groups]
    with style():
        figure = new_figure(10, _INCHES_AROUND + sum(heights))
        grid = figure.subplots(
            len(groups), 2, squeeze=False, sharex="col", height_ratios=heights, width_ratios=(1.7, 1)
        )  # fmt: skip
        for group, (left, right) in zip(groups, grid, strict=True):
            _draw_scores(left, group)
            _draw_ticks(right, group)
            left.set_title(_WORLDS[group[0].results.mode], loc="left")
        _start_at_zero(grid[0, 0], [score.weighted_score for score in scores])
        _start_at_zero(grid[0, 1], [estimate for score in scores for estimate in (score.length, score.median_length)])
        grid[-1, 0].set_xlabel("weighted score (0 to 100)")
        grid[-1, 1].set_xlabel("ticks lived")
        figure.suptitle(title("Scores on the 63 held-out tasks", _explain(scores, confidence), 110))
        _add_legend(figure)
    return figure


def _draw_scores(axes: Axes, group: Sequence[PolicyScores]) -> None:
    places = np.arange(len(group))
    ends = np.zeros(len(group))
    for category in range(len(CATEGORIES)):
        parts = np.array([score.category_score[category].value for score in group])
        axes.barh(
            places, parts, _BAR_HEIGHT, left=ends, color=category_colour(category), edgecolor="white", linewidth=0.5
        )
        ends += parts
    _draw_intervals(axes, [score.weighted_score for score in group], places)
    for place, score in enumerate(group):
        at = _end(score.weighted_score)
        axes.annotate(
            f"{score.weighted_score.value:.1f}", (at, place), (5, 0), textcoords="offset points", va="center",
            fontsize=8,
        )  # fmt: skip
    axes.set_yticks(places, [score.results.policy.replace("$", r"\$") for score in group])
    _tidy(axes, len(group))


def _draw_ticks(axes: Axes, group: Sequence[PolicyScores]) -> None:
    places = np.arange(len(group))
    for estimates, shift, look in (
        ([score.length for score in group], -_APART, _MEAN),
        ([score.median_length for score in group], _APART, _MEDIAN),
    ):
        _draw_intervals(axes, estimates, places + shift)
        axes.plot([estimate.value for estimate in estimates], places + shift, **look, zorder=3)
    axes.grid(axis="x", linewidth=0.5, color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_yticks(places, [""] * len(group))
    _tidy(axes, len(group))


_MEAN: dict[str, Any] = {"marker": "o", "color": _INK, "markersize": 5, "linestyle": "none"}
_MEDIAN: dict[str, Any] = {**_MEAN, "marker": "D", "markerfacecolor": "white", "markersize": 4.5}


def _draw_intervals(axes: Axes, estimates: Sequence[Estimate], places: np.ndarray) -> None:
    ends = np.array([(estimate.low, estimate.high) for estimate in estimates])
    known = np.isfinite(ends).all(axis=1)
    halo = [withStroke(linewidth=2.6, foreground="white")]
    for side in ends[known].T:
        axes.plot(side, places[known], "|", color=_INK, markersize=5, zorder=2, path_effects=halo)
    axes.hlines(places[known], *ends[known].T, color=_INK, linewidth=1.1, zorder=2, path_effects=halo)


def _start_at_zero(axes: Axes, estimates: Sequence[Estimate]) -> None:
    end = _ROOM * max(1.0, *map(_end, estimates))
    axes.set_xlim(0, end)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= end])


def _tidy(axes: Axes, policies: int) -> None:
    axes.set_ylim(policies - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=True)
    axes.spines["left"].set_visible(False)


def _add_legend(figure: Figure) -> None:
    colours = [
        Line2D([], [], marker="s", markersize=7, linestyle="none", color=category_colour(place), label=category)
        for place, category in enumerate(CATEGORIES)
    ]
    looks = [Line2D([], [], label=label, **look) for label, look in (("mean", _MEAN), ("median", _MEDIAN))]
    figure.legend(handles=[*colours, *looks], loc="outside lower center", ncols=len(colours) + len(looks))


def _explain(scores: Sequence[PolicyScores], confidence: float) -> str:
    known = [np.isfinite(score.weighted_score.low) for score in scores]
    if not any(known):
        return "no intervals: too few episodes, or files that do not tell them"
    missing = "" if all(known) else "; where one is missing, there are too few episodes, or the files do not tell them"
    return f"with {100 * confidence:g}% intervals, bootstrapped over seeds and episodes{missing}"


def _end(estimate: Estimate) -> float:
    return float(np.nanmax([estimate.value, estimate.high]))
