"""Learning curves of groups: every run on the same stretches of agent-steps, then means over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.training_runs.groups import Group
from analysis.training_runs.intervals import mean_over_seeds
from analysis.training_runs.run import TrainingRun


@dataclass(frozen=True)
class Curve:
    """One metric of one group. P points, S seeds.

    Attributes:
        steps: agent-steps at the end of each stretch, (P,).
        runs: mean of each run over each stretch, (S, P); NaN where it reported nothing.
        mean, low, high: over seeds, (P,).
        seeds: with a value, (P,).
    """

    group: str
    metric: str
    steps: np.ndarray
    runs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray


def curves_of(groups: Sequence[Group], metrics: Sequence[str], points: int, confidence: float) -> list[Curve]:
    """Return each group's curve of each metric, up to the agent-steps that all runs of the group reached."""
    curves = []
    for group in groups:
        edges = np.linspace(0.0, group.end, points + 1)
        for metric in metrics:
            runs = np.array([stretch_means(run, metric, edges) for run in group.runs])  # (S, P)
            curves.append(Curve(group.name, metric, edges[1:], runs, *mean_over_seeds(runs, confidence)))
    return curves


def stretch_means(run: TrainingRun, metric: str, edges: np.ndarray) -> np.ndarray:
    """Return a metric's mean over stretches of agent-steps, each update weighted with its agent-steps in the stretch.

    An update's value holds for the agent-steps from the update before to its own.

    Args:
        run: of which updates that did not report the metric are passed over.
        metric: name.
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
