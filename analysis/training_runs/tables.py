"""A comparison as tab-separated tables, and as short tables for the terminal."""

import math
from collections.abc import Sequence

from analysis.evaluation.tables import Cell, Table
from analysis.statistics.over_trainings import OverTrainings
from analysis.training_runs.curves import Curve
from analysis.training_runs.held_out import EvaluationCurve
from analysis.training_runs.last_stretch import Comparison, Level

_MISSING = "n/a"


def curve_table(curves: Sequence[Curve]) -> Table:
    """Return one row for each point of each curve."""
    rows: list[tuple[Cell, ...]] = [(curve.metric, curve.group, *point) for curve in curves for point in curve.points]
    return Table("curves", ("metric", "group", "agent_steps", "mean", "low", "high", "seeds"), tuple(rows))


def level_table(levels: Sequence[Level]) -> Table:
    """Return one row for each metric and group: means over the last stretch, and scores of the last checkpoint."""
    rows = [
        (level.metric, level.group, level.agent_steps, level.mean, level.low, level.high, len(level.training_seeds))
        for level in levels
    ]
    return Table("last_stretch", ("metric", "group", "agent_steps", "mean", "low", "high", "seeds"), tuple(rows))


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return one row for each metric and pair of groups."""
    rows: list[tuple[Cell, ...]] = [
        (
            comparison.metric,
            comparison.group,
            comparison.other,
            *_numbers(estimate),
            _test(comparison),
            estimate.p,
            comparison.corrected_p,
        )
        for comparison in comparisons
        for estimate in [comparison.difference]
    ]
    heads = "metric", "group", "other_group", "difference", "low", "high", "test", "p", "corrected_p"
    return Table("differences", heads, tuple(rows))


def evaluation_table(curves: Sequence[EvaluationCurve], gaps: Sequence[EvaluationCurve]) -> Table:
    """Return one row for each evaluated checkpoint, measure and kind of maps, and for each gap between them."""
    kinds = [(curve, curve.maps) for curve in curves] + [(gap, "training - held-out") for gap in gaps]
    rows: list[tuple[Cell, ...]] = [
        (curve.measure, curve.group, kind, *point) for curve, kind in kinds for point in curve.points
    ]
    heads = "measure", "group", "maps", "agent_steps", "mean", "low", "high", "seeds"
    return Table("evaluations", heads, tuple(rows))


def levels_for_terminal(levels: Sequence[Level]) -> Table:
    """Return the last stretch, with each interval beside its mean."""
    rows = [
        (level.metric, level.group, _readable(level.mean, level.low, level.high), len(level.training_seeds))
        for level in levels
    ]
    return Table("last stretch", ("metric", "group", "mean (interval)", "seeds"), tuple(rows))


def comparisons_for_terminal(comparisons: Sequence[Comparison]) -> Table:
    """Return the differences, with each interval beside its number."""
    rows = [
        (
            comparison.metric,
            f"{comparison.group} - {comparison.other}",
            _readable(*_numbers(comparison.difference)),
            _test(comparison),
            _p(comparison.corrected_p),
        )
        for comparison in comparisons
    ]
    return Table("differences", ("metric", "groups", "difference (interval)", "test", "corrected p"), tuple(rows))


def _numbers(difference: OverTrainings) -> tuple[float, float, float]:
    return difference.value, difference.low, difference.high


def _test(comparison: Comparison) -> str:
    if not math.isfinite(comparison.difference.p):
        return "none"
    test = "paired t" if comparison.paired else "Welch t"
    return (
        test if comparison.worlds == "own" else f"{'paired' if comparison.paired else 'unpaired'}, crossed with worlds"
    )


def _readable(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return _MISSING
    interval = f"{low:.4g} to {high:.4g}" if math.isfinite(low) else _MISSING
    return f"{value:.4g} ({interval})"


def _p(p: float) -> str:
    return f"{p:.3g}" if math.isfinite(p) else _MISSING
