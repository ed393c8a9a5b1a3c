"""What groups reached: means over the last stretch of agent-steps that all runs reached, and their differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from analysis.statistics.inference import false_discovery
from analysis.training_runs.curves import stretch_means
from analysis.training_runs.groups import Group
from analysis.training_runs.intervals import Difference, difference, mean_over_seeds


@dataclass(frozen=True)
class Level:
    """What one group reached in one metric. S runs with a value.

    Attributes:
        training_seeds: of these runs, (S,), ascending.
        values: mean of each run over the stretch, (S,).
        mean, low, high: over these runs; the ends are NaN with fewer than two.
        agent_steps: at which it was reached.
    """

    group: str
    metric: str
    agent_steps: float
    training_seeds: tuple[int, ...]
    values: np.ndarray
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """`group` minus `other` in one metric.

    Attributes:
        paired: whether runs with the same seed were compared with each other.
        corrected_p: allows for all metrics and pairs of groups compared.
    """

    metric: str
    group: str
    other: str
    paired: bool
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
    return [
        level_of(group, metric, stretch[1], values, confidence)
        for metric in metrics
        for group in groups
        for values in [np.concatenate([stretch_means(run, metric, edges) for run in group.runs])]  # (S,)
    ]


def level_of(group: Group, metric: str, agent_steps: float, values: np.ndarray, confidence: float) -> Level:
    """Return a group's level from a value for each run, (S,), NaN for a run without one."""
    known = np.isfinite(values)
    seeds = tuple(run.seed for run, is_known in zip(group.runs, known, strict=True) if is_known)
    mean, low, high, _ = (float(each[0]) for each in mean_over_seeds(values[:, None], confidence))
    return Level(group.name, metric, agent_steps, seeds, values[known], mean, low, high)


def comparisons_of(levels: Sequence[Level], confidence: float, against: str | None = None) -> list[Comparison]:
    """Compare each pair of groups in each metric, and correct the p-values for all of these tests together.

    With `against`, the name of a group, each other group is compared with that one only.

    Groups with the same seeds are compared seed by seed: runs with the same seed share what chance decides alike in
    both, such as the networks' first weights.
    """
    order = sorted(levels, key=lambda level: level.group == against)  # that group is the one subtracted
    pairs = [
        (one, two) for one, two in combinations(order, 2) if one.metric == two.metric and against in (None, two.group)
    ]
    paired = [one.training_seeds == two.training_seeds for one, two in pairs]
    differences = [
        difference(one.values, two.values, together, confidence)
        for (one, two), together in zip(pairs, paired, strict=True)
    ]
    corrected = false_discovery(np.array([each.p for each in differences]))
    return [
        Comparison(one.metric, one.group, two.group, together, found, float(p))
        for (one, two), together, found, p in zip(pairs, paired, differences, corrected, strict=True)
    ]
