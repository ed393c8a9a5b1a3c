"""Mirror training curves of fitted models to Weights & Biases."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from common.user_error import UserError
from common.weights_and_biases import MirroredRun, can_mirror

_STILL = "work continues without it"


@dataclass(frozen=True)
class Wandb:
    """Logging of the training curves to Weights & Biases."""

    project: str = "nmmo-interpretability"
    """Name of the project."""
    entity: str | None = None
    """User or team; by default that of your account."""
    mode: Literal["online", "offline"] = "online"
    """online uploads during training; offline writes files that `wandb sync` can upload later."""


class Mirror:
    """A run of Weights & Biases, if one is wanted; a context manager that never ends what is mirrored."""

    def __init__(self, options: Wandb | None, name: str, config: dict[str, Any], folder: Path):
        """Prepare a run. Without options it is logged nowhere. The folder is for the service's local files."""
        self._options, self._name, self._config, self._folder = options, name, config, folder
        self._run: MirroredRun | None = None

    def __enter__(self) -> Self:
        """Start the run; if nobody is logged in or the service refuses, one line says so."""
        options = self._options
        try:
            if options is None or not can_mirror(options.mode, _STILL):
                return self
            self._run = MirroredRun(
                options.mode, self._folder, project=options.project, entity=options.entity, name=self._name,
                config=self._config, still=_STILL,
            )  # fmt: skip
        except UserError as error:
            print(f"nothing is mirrored: {error}", file=sys.stderr)
        return self

    def __exit__(self, *_: object) -> None:
        if self._run is not None:
            self._run.finish()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Mirror some metrics."""
        if self._run is not None:
            self._run.log(metrics)
