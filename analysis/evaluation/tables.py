"""What scores come out as: rows for the terminal, tab-separated files for other tools, and a figure."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis.evaluation.held_out_tasks import CATEGORIES, TASK_CATEGORIES, TASK_NAMES, TASK_WEIGHTS
from analysis.evaluation.results import LENGTH, MODES, Mode
from analysis.evaluation.scores import Improvement, PolicyScores, Rating, seed_score
from analysis.figures.style import category_colour, new_figure, style, title
from analysis.statistics.resampling import Estimate
from analysis.tables import Cell, Table
from common.files import write_text

TABLES = (
    "score_summary", "score_category_summary", "score_task_summary", "score_by_seed", "score_by_task_seed",
    "score_improvement", "score_ranking",
)  # fmt: skip
"""The names of all tables there can be."""

_MISSING = "n/a"
_BAR_HEIGHT = 0.62
_INCHES_A_POLICY = 0.34
_INCHES_A_MODE = 0.75
_INCHES_AROUND = 1.3
_ROOM = 1.16
_APART = 0.16
_INK = "#1a1a1a"
_WORLDS = {"pvp": "pvp: all policies share each world", "pve": "pve: each policy alone in its world"}
_MEAN: dict[str, Any] = {"marker": "o", "color": _INK, "markersize": 5, "linestyle": "none"}
_MEDIAN: dict[str, Any] = {**_MEAN, "marker": "D", "markerfacecolor": "white", "markersize": 4.5}


def score_tables(scores: Sequence[PolicyScores]) -> Iterator[Table]:
    """Yield what the scores alone tell; the tables by seed only where there is more than one."""
    yield _summary(scores)
    yield _by_category(scores)
    yield _by_task(scores)
    if len({run.seed for score in scores for run in score.results.runs}) > 1:
        yield _by_seed(scores)
        yield _by_task_seed(scores)


def improvement_tables(improvements: dict[Mode, list[Improvement]]) -> tuple[Table, Table]:
    """Return one row for each pair of policies of a mode, to write and to show."""
    pairs = [(mode, row) for mode, compared in improvements.items() for row in compared]
    heads = "mode", "policy_name", "other_policy_name", *_heads("probability_of_improvement"), "episodes"
    rows = [
        (mode, row.policy, row.other, *_cells(row.probability), row.episodes, row.other_episodes) for mode, row in pairs
    ]
    shown = [(mode, row.policy, row.other, readable(row.probability, 2)) for mode, row in pairs]
    written = Table("score_improvement", (*heads, "other_episodes"), tuple(rows))
    return written, Table("probability of improvement", ("mode", "policy", "over", "probability"), tuple(shown))


def ranking_tables(ratings: Sequence[Rating]) -> tuple[Table, Table]:
    """Return one row for each policy played in pvp, best first, to write and to show."""
    rows = [(row.policy, *_cells(row.rating), row.outcomes, row.won) for row in ratings]
    shown = [(row.policy, readable(row.rating, 0), row.outcomes, _number(row.won, 2)) for row in ratings]
    written = Table("score_ranking", ("policy_name", *_heads("rating"), "outcomes", "won"), tuple(rows))
    return written, Table("ranking in pvp", ("policy", "rating", "outcomes", "won"), tuple(shown))


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Write each table as NAME.tsv, and remove those that an earlier call left (UserError: one cannot be written)."""
    for table in tables:
        write_text(folder / f"{table.name}.tsv", table.as_text())
    for name in set(TABLES) - {table.name for table in tables}:
        (folder / f"{name}.tsv").unlink(missing_ok=True)


def summary_for_terminal(scores: Sequence[PolicyScores]) -> Table:
    """Return the summary with each interval beside its number."""
    heads = "policy", "mode", "weighted score", "task progress", "mean ticks", "median ticks", "seeds", "episodes"
    rows = [
        (
            score.results.policy,
            score.results.mode,
            readable(score.weighted_score, 1),
            readable(score.task_progress, 3),
            readable(score.length, 0),
            readable(score.median_length, 0),
            len(score.results.runs),
            _MISSING if score.results.episodes is None else score.results.episodes,
            score.results.lives,
        )
        for score in scores
    ]
    return Table("scores", (*heads, "lives"), tuple(rows))


def categories_for_terminal(scores: Sequence[PolicyScores]) -> Table:
    """Return each category's part of the score, a column each."""
    rows = [(s.results.policy, s.results.mode, *(f"{e.value:.1f}" for e in s.category_score)) for s in scores]
    return Table("score by category", ("policy", "mode", *CATEGORIES), tuple(rows))


def readable(estimate: Estimate, decimals: int) -> str:
    """Write an estimate for people, for example "34.1 (32.9 to 35.4)"; a missing interval is "n/a"."""
    value, low, high = (_number(number, decimals) for number in _cells(estimate))
    interval = _MISSING if _MISSING in (low, high) else f"{low} to {high}"
    return value if value == _MISSING else f"{value} ({interval})"


def _summary(scores: Sequence[PolicyScores]) -> Table:
    progress, weighted, length = (_heads(name) for name in ("task_progress", "weighted_score", LENGTH))
    heads = "policy_name", "mode", progress[0], weighted[0], *progress[1:], *weighted[1:], "seeds", "episodes", "lives"
    rows: list[tuple[Cell, ...]] = []
    for score in scores:
        results, mean, total = score.results, _cells(score.task_progress), _cells(score.weighted_score)
        played = len(results.runs), results.episodes, results.lives
        ticks = *_cells(score.length), *_cells(score.median_length)
        rows.append((results.policy, results.mode, mean[0], total[0], *mean[1:], *total[1:], *played, *ticks))
    heads_of_all = *heads, *length, *_heads("median_length")
    return Table("score_summary", heads_of_all, tuple(rows))


def _by_category(scores: Sequence[PolicyScores]) -> Table:
    heads = "mode", "category", "policy_name", *_heads("task_progress"), *_heads("weighted_score")
    rows: list[tuple[Cell, ...]] = [
        (score.results.mode, category, score.results.policy, *_cells(progress), *_cells(part))
        for score in scores
        for category, progress, part in zip(CATEGORIES, score.category_progress, score.category_score, strict=True)
    ]
    return Table("score_category_summary", heads, _sorted(rows, 3))


def _by_task(scores: Sequence[PolicyScores]) -> Table:
    heads = "mode", "category", "task_name", "policy_name", *_heads("task_progress"), "weight", "lives"
    rows: list[tuple[Cell, ...]] = []
    for score in scores:
        lives = sum(run.progress_lives.sum(axis=0) for run in score.results.runs)
        tasks = zip(TASK_CATEGORIES, TASK_NAMES, score.progress_at, TASK_WEIGHTS.tolist(), lives.tolist(), strict=True)
        for category, name, progress, weight, count in tasks:
            rows.append(
                (score.results.mode, category, name, score.results.policy, *_cells(progress), weight, round(count))
            )
    return Table("score_task_summary", heads, _sorted(rows, 4))


def _by_seed(scores: Sequence[PolicyScores]) -> Table:
    heads = "policy_name", "mode", "seed", "count", LENGTH, "task_progress", "weighted_score"
    rows: list[tuple[Cell, ...]] = []
    for score in scores:
        for run in score.results.runs:
            rows.append((run.policy, run.mode, run.seed, len(run.ticks), float(run.ticks.mean()), *seed_score(run)))
    return Table("score_by_seed", heads, _sorted(rows, 3))


def _by_task_seed(scores: Sequence[PolicyScores]) -> Table:
    heads = "category", "task_name", "weight", "policy_name", "mode", "seed", "count", "task_progress"
    rows: list[tuple[Cell, ...]] = []
    for run in (run for score in scores for run in score.results.runs):
        lives, progress = run.progress_lives.sum(axis=0).tolist(), run.task_progress.tolist()
        tasks = zip(TASK_CATEGORIES, TASK_NAMES, TASK_WEIGHTS.tolist(), lives, progress, strict=True)
        for category, name, weight, count, mean in tasks:
            rows.append((category, name, weight, run.policy, run.mode, run.seed, round(count), mean))
    rows.sort(key=lambda row: (row[4], row[0], row[1], row[3], row[5]))
    return Table("score_by_task_seed", heads, tuple(rows))


def _sorted(rows: list[tuple[Cell, ...]], columns: int) -> tuple[tuple[Cell, ...], ...]:
    return tuple(sorted(rows, key=lambda row: row[:columns]))


def _heads(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


def _cells(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _number(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else _MISSING


def score_summary(scores: Sequence[PolicyScores], confidence: float) -> Figure:
    """Draw each policy's weighted score, stacked by category, and ticks lived; the first of each mode is on top."""
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
        known = [np.isfinite(score.weighted_score.low) for score in scores]
        about = "no intervals: too few episodes, or files that do not tell them"
        if any(known):
            about = f"with {100 * confidence:g}% intervals, bootstrapped over seeds and episodes"
            if not all(known):
                about += "; where one is missing, there are too few episodes, or the files do not tell them"
        figure.suptitle(title("Scores on the 63 held-out tasks", about, 110))
        handles = [
            Line2D([], [], marker="s", markersize=7, linestyle="none", color=category_colour(place), label=category)
            for place, category in enumerate(CATEGORIES)
        ]
        handles += [Line2D([], [], label=label, **look) for label, look in (("mean", _MEAN), ("median", _MEDIAN))]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
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


def _end(estimate: Estimate) -> float:
    return float(np.nanmax([estimate.value, estimate.high]))
