"""Reads the folder of a training run: its settings, and its metrics against agent-steps; and which to compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.argument_checks import did_you_mean
from common.checked_json import read_small_json
from common.files import read_json_lines, sha256
from common.user_error import UserError

SETTINGS_FILE = "settings.json"
_OLDER_REWARDS = {"reward.as_published": False}
"""What a run from before that choice was paid by: unlike other settings, it was not what is now the default."""
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FOLDER = "checkpoints"
AGENT = "agent"
SEED = "train.seed"
BUDGET = "train.total_agent_steps"
_STEPS = "agent_steps"


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training run. U updates.

    Attributes:
        settings: full names such as `train.gamma` to values, and `agent`.
        steps: agent-steps trained after each update, (U,) float64, ascending.
        metrics: name -> (U,) float64, NaN where an update did not report it.
    """

    folder: Path
    settings: dict[str, Any]
    steps: np.ndarray
    metrics: dict[str, np.ndarray]
    sha256: str

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.resolve().name

    @property
    def seed(self) -> int:
        """Of the training."""
        return int(self.settings[SEED])

    @property
    def end(self) -> float:
        """Agent-steps trained so far."""
        return float(self.steps[-1])

    @property
    def finished(self) -> bool:
        """Whether it trained for as long as it was asked to."""
        return self.end >= float(self.settings[BUDGET])


def read_run(folder: Path) -> TrainingRun:
    """Read a run; a last line of metrics that a kill cut short is passed over.

    Raises:
        UserError: there is no run, it has no metrics yet, or a file is damaged.
    """
    settings_file, metrics_file = folder / SETTINGS_FILE, folder / METRICS_FILE
    if not settings_file.is_file():
        state = "is not the folder of a training run" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {state}: give folders that train.py wrote, such as runs/NAME")
    if not metrics_file.is_file():
        raise UserError(f"{folder} has no {METRICS_FILE}: its training ended before the first update; leave it out")
    settings = _settings(settings_file)
    updates = _updates(metrics_file)
    names = sorted({name for update in updates for name in update} - {_STEPS})
    try:
        steps = np.array([update[_STEPS] for update in updates], np.float64)
        table = {name: np.array([update.get(name, np.nan) for update in updates], np.float64) for name in names}
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{metrics_file} is damaged: a line lacks {_STEPS!r} or holds no numbers") from None
    if not (np.diff(steps, prepend=0) > 0).all():
        raise UserError(f"{metrics_file} is damaged: {_STEPS!r} does not grow from line to line")
    return TrainingRun(folder, settings, steps, table, sha256(metrics_file))


def _settings(path: Path) -> dict[str, Any]:
    content = read_small_json(path)
    sections = content.get("settings") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(sections, dict):
        raise UserError(f"{path} is damaged, or not the settings of a training run")
    flat = {
        f"{section}.{key}": value
        for section, values in sections.items()
        if isinstance(values, Mapping)
        for key, value in values.items()
    }
    for name in (SEED, BUDGET):
        if not isinstance(flat.get(name), int):
            raise UserError(f"{path} does not name {name}: it is damaged, or not the settings of a training run")
    return {AGENT: content.get("agent"), **_OLDER_REWARDS, **flat}


def _updates(path: Path) -> list[dict[str, Any]]:
    updates = read_json_lines(path)
    if not updates:
        raise UserError(f"{path} holds no update yet: train for longer, or leave this run out")
    return updates


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
