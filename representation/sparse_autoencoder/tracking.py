"""Mirror training curves to Weights & Biases."""

from pathlib import Path
from typing import Any, Self

from representation.sparse_autoencoder.settings import SparseSettings
from representation.sparse_autoencoder.training import Epoch
from user_error import UserError

_WAYS_OUT = "run `wandb login`, or pass --wandb.mode offline, or --no-track"


def check_login(settings: SparseSettings) -> None:
    """Refuse online logging without a login, before anything is written.

    Raises:
        UserError: says how to log in or to continue without.
    """
    if not settings.track or settings.wandb.mode == "offline":
        return
    import wandb

    try:
        wandb.login()
    except wandb.errors.UsageError as error:
        raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None


class Curves:
    """Takes the epochs of all autoencoders of a run; a context manager."""

    def __init__(self, settings: SparseSettings, config: dict[str, Any], folder: Path):
        """Prepare a run of Weights & Biases, if one is wanted."""
        self._settings, self._config, self._folder = settings, config, folder
        self._run: Any = None

    def __enter__(self) -> Self:
        """Start the run.

        Raises:
            UserError: the service cannot be reached or refuses.
        """
        if not self._settings.track:
            return self
        import wandb

        options = self._settings.wandb
        try:
            self._run = wandb.init(
                project=options.project, entity=options.entity, mode=options.mode, name=self._settings.run_folder.name,
                dir=str(self._folder), config=self._config,
            )  # fmt: skip
        except wandb.errors.Error as error:
            raise UserError(f"Weights & Biases cannot be used ({error}): {_WAYS_OUT}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._run is not None:
            self._run.finish()

    def log(self, name: str, epoch: Epoch) -> None:
        """Mirror one epoch of one autoencoder."""
        if self._run is not None:
            self._run.log({f"{name}/{key}": value for key, value in vars(epoch).items()})
