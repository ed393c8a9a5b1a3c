"""Mirrors the local metrics on Weights & Biases."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reinforcement_learning.settings import Settings, WandbSettings
from user_error import UserError

_WAYS_OUT = "run `wandb login`, or pass --wandb.mode offline, or --no-track"


def check_login(settings: WandbSettings) -> None:
    """Refuse to mirror metrics online for somebody who is not logged in, before anything is made.

    Raises:
        UserError: says how to log in or do without.
    """
    if settings.mode == "offline":
        return
    import wandb

    try:
        wandb.login()
    except wandb.errors.UsageError as error:
        raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None


class NoTracker:
    """Mirrors nothing."""

    def log(self, metrics: dict[str, float]) -> None:
        """Ignore one update's metrics."""

    def finish(self) -> None:
        """Do nothing."""


class WandbTracker:
    """Sends each update's metrics to Weights & Biases, or to files for `wandb sync` in offline mode."""

    def __init__(self, name: str, agent: str, settings: Settings, folder: Path):
        """Start a run.

        Raises:
            UserError: the service cannot be reached or refuses.
        """
        import wandb

        try:
            self._run: Any = wandb.init(
                project=settings.wandb.project,
                entity=settings.wandb.entity,
                mode=settings.wandb.mode,
                name=name,
                dir=str(folder),
                config={"agent": agent, **asdict(settings)},
            )
        except wandb.errors.Error as error:
            raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None

    def log(self, metrics: dict[str, float]) -> None:
        """Mirror one update's metrics against agent-steps."""
        self._try(lambda: self._run.log(metrics, step=int(metrics["agent_steps"])))

    def finish(self) -> None:
        """Flush and close."""
        self._try(lambda: self._run.finish())

    def _try(self, mirror: Callable[[], None]) -> None:
        """Do without the mirror once its service process has died: training must not end with it."""
        import wandb

        if self._run is None:
            return
        try:
            mirror()
        except (OSError, wandb.errors.Error) as error:
            self._run = None
            print(
                f"Weights & Biases is gone ({error}): training continues, see metrics.jsonl",
                file=sys.stderr,
            )


Tracker = NoTracker | WandbTracker
