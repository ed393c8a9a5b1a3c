"""Mirrors the local metrics on Weights & Biases."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from reinforcement_learning.settings import Settings


class NoTracker:
    """Mirrors nothing."""

    def log(self, metrics: dict[str, float]) -> None:
        """Ignore one update's metrics."""

    def finish(self) -> None:
        """Do nothing."""


class WandbTracker:
    """Sends each update's metrics to Weights & Biases, or to files for `wandb sync` in offline mode."""

    def __init__(self, name: str, agent: str, settings: Settings, folder: Path):
        import wandb

        self._run: Any = wandb.init(
            project=settings.wandb.project,
            entity=settings.wandb.entity,
            mode=settings.wandb.mode,
            name=name,
            dir=str(folder),
            config={"agent": agent, **asdict(settings)},
        )

    def log(self, metrics: dict[str, float]) -> None:
        """Mirror one update's metrics against agent-steps."""
        self._run.log(metrics, step=int(metrics["agent_steps"]))

    def finish(self) -> None:
        """Flush and close."""
        self._run.finish()


Tracker = NoTracker | WandbTracker
