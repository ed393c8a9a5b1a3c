"""Mirror the local metrics to Weights & Biases."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common.user_error import UserError
from reinforcement_learning.settings import Settings, WandbSettings

_WAYS_OUT = "run `wandb login`, or pass --wandb.mode offline, or --no-track"


def check_login(settings: WandbSettings) -> None:
    """Refuse online logging without a login, before anything is written.

    Raises:
        UserError: says how to log in or to continue without.
    """
    if settings.mode == "offline":
        return
    import wandb

    try:
        wandb.login()
    except wandb.errors.UsageError as error:
        raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None


class NoTracker:
    """Does not mirror metrics."""

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
                group=settings.wandb.group,
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
        """Stop mirroring once its service process has died, since training must not end because of it."""
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
