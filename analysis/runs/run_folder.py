"""The folder of one analysis run: claimed before any work, complete only once it contains `DONE.json`."""

import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from activation_store.files import atomic_file, sha256, write_json, write_text
from activation_store.schema import METADATA_FILE, DumpMetadata
from user_error import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUN_FILE = "run.json"
DONE_FILE = "DONE.json"
_DOTS_AN_INCH = 150
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "umap-learn", "hdbscan", "matplotlib", "torch")


class RunFolder:
    """Writes the results of one run as a context manager: an exception removes the folder, success marks it done."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        """Prepare to write to `path`; `run` (arguments, seed, input hashes) is written to `run.json` with versions."""
        self.path = path
        self._run = {**run, "versions": versions()}

    def __enter__(self) -> Self:
        """Claim the folder.

        Raises:
            UserError: the folder is not empty, for example holds a run, or cannot be created.
        """
        refuse_existing_run(self.path)
        self.save_json(RUN_FILE, self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            shutil.rmtree(self.path)
            return
        files = sorted(path for path in self.path.rglob("*") if path.is_file())
        told = {
            p.relative_to(self.path).as_posix(): {"sha256": sha256(p), "bytes": p.stat().st_size} for p in files
        }  # fmt: skip
        self.save_json(DONE_FILE, {"files": told})

    def save_json(self, name: str, content: object) -> None:
        """Write a JSON file."""
        write_json(self.path / name, content)

    def save_text(self, name: str, content: str) -> None:
        """Write a text file."""
        write_text(self.path / name, content)

    def save_bytes(self, name: str, content: bytes) -> None:
        """Write a file of another library's format."""
        with atomic_file(self.path / name) as file:
            file.write(content)

    def save_array(self, name: str, array: np.ndarray) -> None:
        """Write one array as .npy, never pickled."""
        with atomic_file(self.path / name) as file:
            np.save(file, array, allow_pickle=False)

    def save_arrays(self, name: str, **arrays: np.ndarray) -> None:
        """Write named arrays as .npz, never pickled."""
        with atomic_file(self.path / name) as file:
            np.savez(file, allow_pickle=False, **arrays)

    def save_figure(self, name: str, figure: "Figure") -> None:
        """Write a figure as PNG."""
        write_figure(self.path / name, figure)


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a figure as PNG, whole or not at all."""
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=_DOTS_AN_INCH)


def refuse_existing_run(path: Path) -> None:
    """Raise `UserError` if a path cannot take a new run: it is not a folder, or not empty."""
    if (path / DONE_FILE).exists():
        raise UserError(f"{path} already holds a run: delete it, or choose another --output-dir")
    if (path / RUN_FILE).exists():
        raise UserError(f"{path} holds an unfinished run: delete it once that run has ended, or change --output-dir")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is not an empty folder: choose another --output-dir")


def versions() -> dict[str, str]:
    """Return the versions of Python and of every library that affects results."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def description(arguments: object, dump: Path, metadata: DumpMetadata, **more: object) -> dict[str, Any]:
    """Return the content of `run.json`: the arguments, a data class with a seed, and the hashes of the dump."""
    told = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    files = {name: file.sha256 for name, file in metadata.files.items()}
    hashes = {METADATA_FILE: sha256(dump / METADATA_FILE), **files}
    return {"arguments": told, "seed": told["seed"], "input": hashes, **more}
