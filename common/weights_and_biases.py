"""Weights & Biases: mirrors numbers that are kept anyway, so nothing that happens to it ends or undoes work.

Trainings of agents and the training curves of fitted models are mirrored.
"""

import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.files import is_folder, read_bytes, visible, write_text
from common.user_error import UserError, one_line

Mode = Literal["online", "offline", "disabled"]
Kind = Literal["policy", "dump", "report"]
"""By which the service sorts artifacts; a report is a folder of results."""

_WAYS_OUT = "run `wandb login`, or pass --wandb.mode offline, or, to train, --no-track"
_MODE = "WANDB_MODE"
_RUN = "WANDB_RUN_ID"
_OFFLINE = ("offline", "dryrun")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_STILL = "work continues without it"


def mode_of(option: Literal["online", "offline"]) -> Mode:
    """Return how a run is mirrored: as --wandb.mode says, unless the user's WANDB_MODE turns more off."""
    wanted = os.environ.get(_MODE, "").lower()
    if wanted == "disabled":
        return "disabled"
    return "offline" if option == "offline" or wanted in _OFFLINE else "online"


def check_login(option: Literal["online", "offline"]) -> None:
    """Refuse online logging without a login, before anything is written."""
    if mode_of(option) == "online" and not _or_refused(_login):
        raise UserError(f"Weights & Biases cannot be used (nobody is logged in): {_WAYS_OUT}")


def can_mirror(option: Literal["online", "offline"], still: str) -> bool:
    """Return whether numbers can be mirrored as wanted; a line says so if nobody is logged in.

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
        option: Literal["online", "offline"] | None,
        folder: Path,
        id_file: Path | None = None,
        *,
        still: str,
        **options: Any,
    ):
        """Start a run, unless the user has disabled all.

        Args:
            option: value of --wandb.mode; None mirrors nothing.
            id_file: keeps the run's id, so that a run that is resumed is the same one there.

        Raises:
            UserError: the service cannot be reached or refuses.
        """
        mode = mode_of(option) if option else "disabled"
        self._run: Any = None
        self._still = still
        if mode == "disabled":
            return
        if id_file is not None and _RUN not in os.environ:  # an agent of a sweep names the run
            options |= {"id": _id_in(id_file), "resume": "allow"}
        self._run = _or_refused(lambda: _wandb().init(mode=mode, dir=str(folder), **options))

    def log(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Mirror some metrics."""
        self._try(lambda: self._run.log(dict(metrics), step=step))

    def keep(self, path: Path, name: str, kind: Kind) -> None:
        """Keep a file, or a folder with all in it, as the newest version of an artifact."""
        self._try(lambda: self._run.log_artifact(_artifact(path, name, kind)))

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
            print(f"Weights & Biases failed ({_text(error)}): {self._still}", file=sys.stderr)


def _wandb() -> Any:
    import wandb

    return wandb


def _login() -> object:
    return _wandb().login(prompt=False)


def share(
    paths: Sequence[Path], option: Literal["online", "offline"], project: str, entity: str | None
) -> dict[Path, Kind]:
    """Keep policies, dumps and folders of results as artifacts of one run; the local files are in `wandb/`.

    Returns:
        What each path is.

    Raises:
        UserError: a path is none of these, the user has disabled all, or the service cannot be reached or refuses.
    """
    if not paths:
        raise UserError("nothing is named: name policies, dumps or folders of results")
    kinds = {path: _kind(path) for path in paths}
    mode = mode_of(option)
    if mode == "disabled":
        raise UserError(f"{_MODE}=disabled: nothing is shared; unset it")

    def share_all() -> None:
        run = _wandb().init(mode=mode, project=project, entity=entity, job_type="share")
        for path, kind in kinds.items():
            whole = path.resolve()
            run.log_artifact(_artifact(path, whole.stem if kind == "policy" else whole.name, kind))
        run.finish()

    check_login(option)
    _or_refused(share_all)
    return kinds


def _kind(path: Path) -> Kind:
    if path.suffix == ".safetensors" and path.is_file():
        return "policy"
    if is_folder(path) and visible(path, "*"):
        return "dump" if (path / "metadata.json").exists() else "report"
    raise UserError(f"{path} is neither a policy (.safetensors) nor a folder of a dump or of results: check the path")


def _artifact(path: Path, name: str, kind: Kind) -> object:
    artifact = _wandb().Artifact(_NOT_IN_NAMES.sub("_", name), type=kind)
    if is_folder(path):
        artifact.add_dir(str(path))
    else:
        artifact.add_file(str(path), name=f"{name}{path.suffix}")
    return artifact


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


@dataclass(frozen=True)
class Wandb:
    """Logging of the training curves to Weights & Biases."""

    project: str = "nmmo-interpretability"
    """Name of the project."""
    entity: str | None = None
    """User or team; by default that of your account."""
    mode: Literal["online", "offline"] = "online"
    """online uploads during training; offline writes files that `wandb sync` can upload later."""


@contextmanager
def mirrored(options: Wandb | None, name: str, config: dict[str, Any], folder: Path) -> Iterator[MirroredRun]:
    """Mirror a run, if one is wanted; if nobody is logged in or the service refuses, one line says so.

    Args:
        folder: for the service's local files.
    """
    run = MirroredRun(None, folder, still=_STILL)
    try:
        if options is not None and can_mirror(options.mode, _STILL):
            run = MirroredRun(
                options.mode, folder, project=options.project, entity=options.entity, name=name, config=config,
                still=_STILL,
            )  # fmt: skip
    except UserError as error:
        print(f"nothing is mirrored: {error}", file=sys.stderr)
    try:
        yield run
    finally:
        run.finish()
