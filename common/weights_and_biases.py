"""Weights & Biases: mirrors numbers that are kept anyway, so nothing that happens to it ends or undoes work."""

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from common.files import read_bytes, write_text
from common.user_error import UserError, one_line

Mode = Literal["online", "offline", "disabled"]

_WAYS_OUT = "run `wandb login`, or pass --wandb.mode offline, or --no-track"
_MODE = "WANDB_MODE"
_RUN = "WANDB_RUN_ID"
_OFFLINE = ("offline", "dryrun")


def mode_of(option: Literal["online", "offline"]) -> Mode:
    """Return how a run is mirrored: as --wandb.mode says, unless the user's WANDB_MODE turns more off."""
    wanted = os.environ.get(_MODE, "").lower()
    if wanted == "disabled":
        return "disabled"
    return "offline" if option == "offline" or wanted in _OFFLINE else "online"


def check_login(option: Literal["online", "offline"]) -> None:
    """Refuse online logging without a login, before anything is written.

    Raises:
        UserError: says how to log in or to continue without.
    """
    if mode_of(option) == "online" and not _or_refused(_login):
        raise UserError(f"Weights & Biases cannot be used (nobody is logged in): {_WAYS_OUT}")


def can_mirror(option: Literal["online", "offline"], still: str) -> bool:
    """Return whether numbers can be mirrored as wanted; a line says so if nobody is logged in.

    Args:
        still: what goes on without the service.

    Raises:
        UserError: the service cannot be reached.
    """
    if mode_of(option) != "online" or _or_refused(_login):
        return True
    print(f"nothing is mirrored to Weights & Biases, where nobody is logged in ({_WAYS_OUT}): {still}", file=sys.stderr)
    return False


class MirroredRun:
    """A run of Weights & Biases. Once its service fails, one line says so, and nothing more is mirrored."""

    def __init__(
        self,
        option: Literal["online", "offline"],
        folder: Path,
        id_file: Path | None = None,
        *,
        still: str,
        **options: Any,
    ):
        """Start a run, unless the user has disabled all.

        Args:
            option: value of --wandb.mode.
            folder: for the service's local files.
            id_file: keeps the run's id, so that a run that is resumed is the same one there.
            still: what goes on without the service, for the line that says so.
            options: passed to `wandb.init`.

        Raises:
            UserError: the service cannot be reached or refuses.
        """
        mode = mode_of(option)
        self._run: Any = None
        self._still = still
        if mode == "disabled":
            return
        if id_file is not None and _RUN not in os.environ:  # an agent of a sweep names the run
            options |= {"id": _id_in(id_file), "resume": "allow"}
        self._run = _or_refused(lambda: _start(mode=mode, dir=str(folder), **options))

    def log(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Mirror some metrics."""
        self._try(lambda: self._run.log(dict(metrics), step=step))

    def finish(self) -> None:
        """Flush and close."""
        self._try(lambda: self._run.finish())

    def _try(self, mirror: Callable[[], None]) -> None:
        if self._run is None:
            return
        try:
            mirror()
        except Exception as error:  # of the service, its network or its process: work must not end because of it
            self._run = None
            print(f"Weights & Biases is gone ({_text(error)}): {self._still}", file=sys.stderr)


def _login() -> object:
    import wandb

    return wandb.login(prompt=False)


def _start(**options: Any) -> object:
    import wandb

    return wandb.init(**options)


def _or_refused(call: Callable[[], object]) -> object:
    """Call the service; whatever it raises becomes one line."""
    try:
        return call()
    except Exception as error:  # its own errors, and those of the network libraries below it
        raise UserError(f"Weights & Biases cannot be used ({_text(error)}): {_WAYS_OUT}") from None


def _text(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__


def _id_in(file: Path) -> str:
    """Return the id that a file holds, made if there is none."""
    if file.exists() and (kept := read_bytes(file).decode("ascii", "ignore").strip()).isalnum():
        return kept
    made = secrets.token_hex(4)
    write_text(file, made)
    return made
