"""Mirror training curves of fitted models to Weights & Biases."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from common.user_error import UserError

_WAYS_OUT = "run `wandb login`, or pass --wandb.mode offline, or --no-track"


@dataclass(frozen=True)
class Wandb:
    """Logging of the training curves to Weights & Biases."""

    project: str = "nmmo-interpretability"
    """Name of the project."""
    entity: str | None = None
    """User or team; by default that of your account."""
    mode: Literal["online", "offline"] = "online"
    """online uploads during training; offline writes files that `wandb sync` can upload later."""


def check_login(options: Wandb | None) -> None:
    """Refuse online logging without a login, before anything is written; without options, nothing is logged.

    Raises:
        UserError: says how to log in or to continue without.
    """
    if options is None or options.mode == "offline":
        return
    import wandb

    try:
        wandb.login()
    except wandb.errors.UsageError as error:
        raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None


class Mirror:
    """A run of Weights & Biases, if one is wanted; a context manager."""

    def __init__(self, options: Wandb | None, name: str, config: dict[str, Any], folder: Path):
        """Prepare a run.

        Args:
            options: where it is logged; None for nowhere.
            folder: for the service's local files.
        """
        self._options, self._name, self._config, self._folder = options, name, config, folder
        self._run: Any = None

    def __enter__(self) -> Self:
        """Start the run.

        Raises:
            UserError: the service cannot be reached or refuses.
        """
        options = self._options
        if options is None:
            return self
        import wandb

        try:
            self._run = wandb.init(
                project=options.project, entity=options.entity, mode=options.mode, name=self._name,
                dir=str(self._folder), config=self._config,
            )  # fmt: skip
        except wandb.errors.Error as error:
            raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._run is not None:
            self._run.finish()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Mirror some metrics."""
        if self._run is not None:
            self._run.log(dict(metrics))
