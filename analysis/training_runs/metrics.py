"""The metrics that a comparison shows, and what to call them."""

from collections.abc import Sequence

from analysis.training_runs.run import TrainingRun
from common.argument_checks import did_you_mean
from common.user_error import UserError

TITLES = {
    "lives/total_reward": "Return: sum of rewards over a life",
    "lives/ticks": "Ticks lived",
    "lives/task_progress": "Task progress, 0 to 1",
    "lives/task_completed": "Share of lives that completed their task",
    "loss/entropy": "Entropy (nats, all heads together)",
    "loss/explained_variance": "Explained variance of the returns, 1 is all",
    "loss/value": "Value loss: half the squared error",
    "loss/approximate_kl": "KL divergence of an update (nats)",
    "loss/gradient_norm": "Gradient norm before clipping",
}
"""What is compared unless other metrics are asked for."""


def chosen_metrics(runs: Sequence[TrainingRun], requested: Sequence[str]) -> list[str]:
    """Return the metrics asked for, or else those of `TITLES` that any run reported.

    Raises:
        UserError: no run reported a metric that was asked for, or none of the usual ones.
    """
    reported = sorted({name for run in runs for name in run.metrics})
    for name in requested:
        if name not in reported:
            raise UserError(f"no run reported the metric {name!r}{did_you_mean(name, reported)}; see docs/training.md")
    chosen = list(dict.fromkeys(requested)) or [name for name in TITLES if name in reported]
    if not chosen:
        raise UserError(f"the runs report none of the usual metrics: choose with --metrics from {', '.join(reported)}")
    return chosen


def metric_title(name: str) -> str:
    """Return what a metric is called in figures."""
    return TITLES.get(name, name)
