"""Learning curves of groups: every run on the same stretches of agent-steps, then means over seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.training_runs.groups import Group
from analysis.training_runs.run import TrainingRun


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


Point = tuple[float, float, float, float, int]
"""Agent-steps, mean, low, high, and number of seeds."""


@dataclass(frozen=True)
class SeedCurve:
    """Something of one group against agent-steps. P points, S seeds.

    Attributes:
        steps: agent-steps of each point, (P,).
        runs: a row for each run, (S, P); NaN where it has no value.
        mean, low, high: over seeds, (P,).
        seeds: with a value, (P,).
    """

    group: str
    steps: np.ndarray
    runs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray

    @property
    def points(self) -> Iterator[Point]:
        """The points as plain numbers."""
        for steps, mean, low, high, seeds in zip(self.steps, self.mean, self.low, self.high, self.seeds, strict=True):
            yield float(steps), float(mean), float(low), float(high), int(seeds)


@dataclass(frozen=True)
class Curve(SeedCurve):
    """A metric of training; each point is a mean over the stretch of agent-steps that ends there."""

    metric: str


def curves_of(groups: Sequence[Group], metrics: Sequence[str], points: int, confidence: float) -> list[Curve]:
    """Return each group's curve of each metric, up to the agent-steps that all runs of the group reached."""
    curves = []
    for group in groups:
        edges = np.linspace(0.0, group.end, points + 1)
        for metric in metrics:
            runs = np.array([stretch_means(run, metric, edges) for run in group.runs])  # (S, P)
            curves.append(Curve(group.name, edges[1:], runs, *mean_over_seeds(runs, confidence), metric=metric))
    return curves


def stretch_means(run: TrainingRun, metric: str, edges: np.ndarray) -> np.ndarray:
    """Return a metric's mean over stretches of agent-steps, each update weighted with its agent-steps in the stretch.

    An update's value holds for the agent-steps from the update before to its own.

    Args:
        run: of which updates that did not report the metric are passed over.
        edges: ends of the stretches, (P + 1,) ascending.

    Returns:
        (P,) float64, NaN where no update reported the metric.
    """
    values = run.metrics.get(metric, np.full(len(run.steps), np.nan))
    known = np.isfinite(values)
    starts = np.append(0.0, run.steps)
    # Integrals from 0 to any number of agent-steps are straight lines between updates.
    length = np.append(0.0, np.cumsum(np.where(known, np.diff(starts), 0.0)))
    area = np.append(0.0, np.cumsum(np.where(known, values, 0.0) * np.diff(starts)))
    lengths, areas = (np.diff(np.interp(edges, starts, whole)) for whole in (length, area))
    enough = lengths > 1e-9 * np.diff(edges)
    return np.divide(areas, lengths, out=np.full(len(edges) - 1, np.nan), where=enough)


def fewest_updates(groups: Sequence[Group]) -> int:
    """Return the least number of updates that a run needed for the agent-steps that all runs of its group reached."""
    return min(int(np.searchsorted(run.steps, group.end)) + 1 for group in groups for run in group.runs)
