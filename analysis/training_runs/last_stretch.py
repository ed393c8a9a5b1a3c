"""What groups reached: means over the last stretch of agent-steps that all runs reached, and their differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from analysis.statistics.inference import false_discovery
from analysis.training_runs.curves import stretch_means
from analysis.training_runs.groups import Group
from analysis.training_runs.intervals import Difference, mean_over_seeds, welch


@dataclass(frozen=True)
class Level:
    """What one group reached in one metric.

    Attributes:
        by_seed: mean of each run over the stretch, (S,), NaN where it reported nothing.
        mean, low, high: over seeds; the ends are NaN with fewer than two.
        seeds: with a value.
    """

    group: str
    metric: str
    by_seed: np.ndarray
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """`group` minus `other` in one metric; `corrected_p` allows for all metrics and pairs compared."""

    metric: str
    group: str
    other: str
    difference: Difference
    corrected_p: float


def last_stretch(groups: Sequence[Group], share: float) -> tuple[float, float]:
    """Return where the last stretch begins and ends, in agent-steps: a share of what all runs of all groups reached."""
    end = min(group.end for group in groups)
    return (1 - share) * end, end


def levels_of(
    groups: Sequence[Group], metrics: Sequence[str], stretch: tuple[float, float], confidence: float
) -> list[Level]:
    """Return the mean over a stretch of each metric and group, metric by metric."""
    edges = np.array(stretch)
    levels = []
    for metric in metrics:
        for group in groups:
            by_seed = np.concatenate([stretch_means(run, metric, edges) for run in group.runs])  # (S,)
            mean, low, high, seeds = (each[0] for each in mean_over_seeds(by_seed[:, None], confidence))
            levels.append(Level(group.name, metric, by_seed, float(mean), float(low), float(high), int(seeds)))
    return levels


def comparisons_of(levels: Sequence[Level], confidence: float) -> list[Comparison]:
    """Compare each pair of groups in each metric, and correct the p-values for all of these tests together."""
    pairs = [(one, two) for one, two in combinations(levels, 2) if one.metric == two.metric]
    differences = [
        welch(*(each.by_seed[np.isfinite(each.by_seed)] for each in pair), confidence) for pair in pairs
    ]
    corrected = false_discovery(np.array([each.p for each in differences]))
    return [
        Comparison(one.metric, one.group, two.group, difference, float(p))
        for (one, two), difference, p in zip(pairs, differences, corrected, strict=True)
    ]
