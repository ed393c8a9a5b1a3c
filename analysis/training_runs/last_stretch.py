"""What groups reached: means over the last stretch of agent-steps that all runs reached, and their differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from analysis.statistics.inference import false_discovery
from analysis.statistics.over_trainings import ByWorld, OverTrainings, Worlds, in_worlds, over_trainings
from analysis.training_runs.curves import stretch_means
from analysis.training_runs.groups import Group


@dataclass(frozen=True)
class Level:
    """What one group reached in one metric. S runs with a value.

    Attributes:
        training_seeds: of these runs, (S,), ascending.
        values: mean of each run over the stretch, (S,).
        by_world: what each of these runs reached in each world that its checkpoint played; of a metric of training,
            each run is a world of its own.
        mean, low, high: over these runs; the ends are NaN with fewer than two.
        agent_steps: at which it was reached.
    """

    group: str
    metric: str
    agent_steps: float
    training_seeds: tuple[int, ...]
    values: np.ndarray
    by_world: tuple[ByWorld, ...]
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """`group` minus `other` in one metric.

    Attributes:
        paired: whether runs with the same seed were compared with each other.
        worlds: which runs played the same.
        corrected_p: allows for all metrics and pairs of groups compared.
    """

    metric: str
    group: str
    other: str
    paired: bool
    worlds: Worlds
    difference: OverTrainings
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
        level_of(group, metric, stretch[1], by_run, confidence)
        for metric in metrics
        for group in groups
        for by_run in [[{str(run.folder): float(stretch_means(run, metric, edges)[0])} for run in group.runs]]
    ]


def level_of(group: Group, metric: str, agent_steps: float, by_world: Sequence[ByWorld], confidence: float) -> Level:
    """Return a group's level from what each run reached in each world; a run without any number is left out."""
    known = [
        (run.seed, scores) for run, scores in zip(group.runs, by_world, strict=True) if np.isfinite(mean_of(scores))
    ]
    worlds = tuple(scores for _, scores in known)
    over = mean_over_runs(worlds, confidence)
    values = np.array([mean_of(scores) for scores in worlds])
    seeds = tuple(seed for seed, _ in known)
    return Level(group.name, metric, agent_steps, seeds, values, worlds, over.value, over.low, over.high)


def mean_of(by_world: ByWorld) -> float:
    """Return the mean over the worlds of one run; NaN without any, or where one has none."""
    return float(np.mean(list(by_world.values()))) if by_world else np.nan


def mean_over_runs(by_world: Sequence[ByWorld], confidence: float) -> OverTrainings:
    """Return the mean over runs with its interval, which allows for the worlds that they share."""
    if not by_world:
        return OverTrainings(np.nan, np.nan, np.nan, np.nan)
    return over_trainings(*in_worlds([by_world]), confidence)


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
    differences = [difference(one, two, confidence) for one, two in pairs]
    corrected = false_discovery(np.array([over.p for *_, over in differences]))
    return [
        Comparison(one.metric, one.group, two.group, paired, worlds, over, float(p))
        for (one, two), (paired, worlds, over), p in zip(pairs, differences, corrected, strict=True)
    ]


def difference(one: Level, two: Level, confidence: float) -> tuple[bool, Worlds, OverTrainings]:
    """Return whether two groups are paired by seed, which runs played the same worlds, and the difference of means."""
    paired = one.training_seeds == two.training_seeds
    if not one.by_world or not two.by_world:
        return paired, "own", OverTrainings(np.nan, np.nan, np.nan, np.nan)
    kinds, worlds = in_worlds([one.by_world, two.by_world], paired)
    return paired, worlds, over_trainings(kinds, worlds, confidence, paired)
