"""What groups reached: curves with means over seeds, levels in the last stretch of agent-steps, and differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from analysis.statistics.inference import false_discovery
from analysis.statistics.over_trainings import ByWorld, OverTrainings, Worlds, in_worlds, over_trainings
from analysis.training_runs.run import ComparedRun, RunGroup


def mean_over_seeds(values: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return means over seeds, and Student's t intervals; NaN in a row is a seed without a value there.

    Args:
        values: a row for each seed, (S, P).

    Returns:
        Means, lower ends, upper ends and numbers of seeds, (P,) each. The mean is NaN without any seed, the ends with
        fewer than two.
    """
    from scipy import stats

    known = np.isfinite(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    squares = np.where(known, values - mean, 0.0) ** 2
    many = count > 1
    variance = np.divide(squares.sum(axis=0), count - 1, out=np.full(len(count), np.nan), where=many)
    reach = stats.t.ppf((1 + confidence) / 2, np.maximum(count - 1, 1)) * np.sqrt(variance / np.maximum(count, 1))
    return mean, mean - reach, mean + reach, count


Maps = Literal["held-out", "training"]
"""Maps that a checkpoint was evaluated on: seen in its training, or not."""
Point = tuple[float, float, float, float, int]
"""Agent-steps, mean, low, high, and number of seeds."""


@dataclass(frozen=True)
class Curve:
    """A metric of training, or a score of checkpoints, of one group against agent-steps. P points, S seeds."""

    group: str
    steps: np.ndarray
    """Agent-steps of each point, (P,): the end of the stretch over which a metric is a mean; of checkpoints, means over
    seeds."""
    runs: np.ndarray  # a row for each run, (S, P); NaN where it has no value
    mean: np.ndarray  # over seeds, (P,)
    low: np.ndarray  # ends of its interval, (P,) each
    high: np.ndarray
    seeds: np.ndarray  # with a value, (P,)
    measure: str  # a metric in metrics.jsonl, or one of `held_out.MEASURES`
    maps: Maps | Literal[""] = ""  # that checkpoints were evaluated on; empty for a metric
    by_world: tuple[tuple[ByWorld, ...], ...] = ()
    """Of checkpoints, what each run reached in each world at each point, (P,) of (S,); empty for a run without a
    value."""

    @property
    def points(self) -> Iterator[Point]:
        """The points as plain numbers."""
        for steps, mean, low, high, seeds in zip(self.steps, self.mean, self.low, self.high, self.seeds, strict=True):
            yield float(steps), float(mean), float(low), float(high), int(seeds)


def curves_of(groups: Sequence[RunGroup], metrics: Sequence[str], points: int, confidence: float) -> list[Curve]:
    """Return each group's curve of each metric, up to the agent-steps that all runs of the group reached."""
    curves = []
    for group in groups:
        edges = np.linspace(0.0, group.end, points + 1)
        for metric in metrics:
            runs = np.array([stretch_means(run, metric, edges) for run in group.runs])  # (S, P)
            curves.append(Curve(group.name, edges[1:], runs, *mean_over_seeds(runs, confidence), metric))
    return curves


def stretch_means(run: ComparedRun, metric: str, edges: np.ndarray) -> np.ndarray:
    """Return a metric's mean over stretches of agent-steps.

    An update's value holds for the agent-steps from the update before to its own. It weighs as much as what it is a
    mean over: lives that ended, deaths, or agent-steps. Otherwise rollouts in which few lives ended would count for too
    much, and their lives are longer than others.

    Args:
        run: of which updates that did not report the metric are passed over.
        edges: ends of the stretches, (P + 1,) ascending.

    Returns:
        (P,) float64, NaN where no update reported the metric.
    """
    values = run.metrics.get(metric, np.full(len(run.steps), np.nan))
    known = np.isfinite(values)
    weights = np.where(known, _weights(run, metric), 0.0)
    starts = np.append(0.0, run.steps)
    # Integrals from 0 to any number of agent-steps are straight lines between updates.
    weight = np.append(0.0, np.cumsum(weights))
    area = np.append(0.0, np.cumsum(np.where(known, values, 0.0) * weights))
    totals, areas = (np.diff(np.interp(edges, starts, whole)) for whole in (weight, area))
    enough = totals > 1e-9 * weight[-1]
    return np.divide(areas, totals, out=np.full(len(edges) - 1, np.nan), where=enough)


def _weights(run: ComparedRun, metric: str) -> np.ndarray:
    """What an update's value is a mean over: lives that ended, deaths, or agent-steps (U,)."""
    kind = metric.partition("/")[0]
    over = {"lives": ("lives/ended",), "events": ("lives/ended",), "death": ("lives/ended", "lives/died")}.get(kind, ())
    if not over or metric == "lives/ended" or not all(name in run.metrics for name in over):
        return np.diff(run.steps, prepend=0.0)
    return np.prod([np.nan_to_num(run.metrics[name]) for name in over], axis=0)


@dataclass(frozen=True)
class Level:
    """What one group reached in one metric. S runs with a value."""

    group: str
    metric: str
    agent_steps: float  # at which it was reached
    training_seeds: tuple[int, ...]  # of these runs, (S,), ascending
    values: np.ndarray  # mean of each run over the stretch, (S,)
    by_world: tuple[ByWorld, ...]
    """What each of these runs reached in each world that its checkpoint played; of a metric of training, each run is a
    world of its own."""
    mean: float  # over these runs
    low: float  # end of its interval; NaN with fewer than two runs
    high: float


@dataclass(frozen=True)
class Comparison:
    """`group` minus `other` in one metric."""

    metric: str
    group: str
    other: str
    paired: bool  # whether runs with the same seed were compared with each other
    worlds: Worlds  # which runs played the same
    difference: OverTrainings
    corrected_p: float  # allows for all metrics and pairs of groups compared


def levels_of(
    groups: Sequence[RunGroup], metrics: Sequence[str], stretch: tuple[float, float], confidence: float
) -> list[Level]:
    """Return the mean over a stretch of each metric and group, metric by metric."""
    edges = np.array(stretch)
    return [
        level_of(group, metric, stretch[1], by_run, confidence)
        for metric in metrics
        for group in groups
        for by_run in [[{str(run.folder): float(stretch_means(run, metric, edges)[0])} for run in group.runs]]
    ]


def level_of(group: RunGroup, metric: str, agent_steps: float, by_world: Sequence[ByWorld], confidence: float) -> Level:
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


def comparisons_of(levels: Sequence[Level], confidence: float, against: str | None) -> list[Comparison]:
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
        difference(one.by_world, two.by_world, confidence, alike)
        for (one, two), alike in zip(pairs, paired, strict=True)
    ]
    corrected = false_discovery(np.array([over.p for _, over in differences]))
    return [
        Comparison(one.metric, one.group, two.group, alike, worlds, over, float(p))
        for (one, two), alike, (worlds, over), p in zip(pairs, paired, differences, corrected, strict=True)
    ]


def difference(
    one: Sequence[ByWorld], two: Sequence[ByWorld], confidence: float, paired: bool
) -> tuple[Worlds, OverTrainings]:
    """Return which runs of two groups played the same worlds, and the difference of means; NaN without any run."""
    if not one or not two:
        return "own", OverTrainings(np.nan, np.nan, np.nan, np.nan)
    kinds, worlds = in_worlds([one, two], paired)
    return worlds, over_trainings(kinds, worlds, confidence, paired)
