"""The folder of one analysis run: claimed before any work, complete only once it contains `DONE.json`."""

import math
import os
import platform
import shutil
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from activation_store.schema import METADATA_FILE, DumpMetadata
from common.command_line import this_command
from common.figure_settings import save_figure
from common.files import (
    as_json,
    atomic_file,
    is_leftover,
    locked_folder,
    make_folder,
    read_bytes,
    sha256,
    write_json,
    write_text,
)  # fmt: skip
from common.user_error import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_INSTRUCTIONS = ("avx2", "fma", "avx512f", "neon", "sve")
"""Sets of instructions by which compiled code differs between processors of one kind, as LLVM names them."""
RUN_FILE = "run.json"
DONE_FILE = "DONE.json"
_DOTS_AN_INCH = 150
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "umap-learn", "hdbscan", "matplotlib", "torch")


def processor() -> dict[str, str]:
    """Return the processor, the target that numba compiles for, and the kernels of numpy's linear algebra.

    UMAP is compiled by numba for the processor at hand; other instructions round differently, and an embedding grows
    such differences into other clusters.
    """
    from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
    from threadpoolctl import threadpool_info

    has = get_host_cpu_features()
    kernels = {
        f"{library['internal_api']} {library.get('architecture') or ''}".strip()
        for library in threadpool_info()
        if library["user_api"] == "blas" and "numpy" in library["filepath"]  # others depend on what is loaded so far
    }
    return {
        "name": _name() or "unknown",
        "architecture": f"{platform.machine()}, {platform.system()}",
        "instructions": ", ".join(name for name in _INSTRUCTIONS if has.get(name)) or "none of those recorded",
        "numba target": os.environ.get("NUMBA_CPU_NAME") or get_host_cpu_name(),
        "BLAS kernels": ", ".join(sorted(kernels)) or "unknown",
    }


def _name() -> str:
    """Return the processor's name: Python knows it on other systems than Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


class RunFolder:
    """Writes the results of one run as a context manager: an exception removes the folder, success marks it done."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        """Prepare to write to `path`; `run` (arguments, seed, input hashes) is written to `run.json` with versions.

        The processor goes in too, since clusters depend on it.
        """
        self.path = path
        self._run = {**run, "versions": versions(), "processor": processor()}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Claim the folder. What the same run left there when it was killed is removed.

        Raises:
            UserError: the folder holds a run or other files, a run is being written to it, or it cannot be created.
        """
        make_folder(self.path)
        with ExitStack() as stack:
            locked = stack.enter_context(locked_folder(self.path))
            refuse_existing_run(self.path)
            if (self.path / RUN_FILE).exists():
                self._clear(locked)
            self.save_json(RUN_FILE, self._run)
            self._held = stack.pop_all()
        return self

    def _clear(self, locked: bool) -> None:
        """Remove what a run left that did not end; without locks, or with other arguments, it might still be wanted."""
        if not locked or read_bytes(self.path / RUN_FILE) != as_json(self._run):
            raise UserError(f"{self.path} holds another, unfinished run: delete it, or choose another --name")
        self._remove_results()

    def _remove_results(self) -> None:
        """Remove all but what says whose they are: somebody who interrupts once more must not leave them nameless."""
        for path in self.path.iterdir():
            if path.name != RUN_FILE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._held:
            if kind is not None:
                self._remove_results()
                shutil.rmtree(self.path)
                return
            self._finish()

    def _finish(self) -> None:
        files = sorted(path for path in self.path.rglob("*") if path.is_file())
        written = {
            p.relative_to(self.path).as_posix(): {"sha256": sha256(p), "bytes": p.stat().st_size} for p in files
        }  # fmt: skip
        self.save_json(DONE_FILE, {"files": written, "command": this_command()})

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
        save_figure(figure, file, _DOTS_AN_INCH)


def refuse_existing_run(path: Path) -> None:
    """Raise `UserError` if a path cannot take a new run: it is no folder, or holds a finished run or other files."""
    if (path / DONE_FILE).exists():
        raise UserError(f"{path} already holds a run: delete it, or choose another --name")
    if (path / RUN_FILE).exists():
        return  # unfinished: `RunFolder` decides once it has the lock
    # A run that was killed at once leaves no more than a temporary file.
    if path.exists() and (not path.is_dir() or any(not is_leftover(item, RUN_FILE) for item in path.iterdir())):
        raise UserError(f"{path} is not an empty folder: choose another --name")


def versions() -> dict[str, str]:
    """Return the versions of Python and of every library that affects results."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def description(arguments: object, dump: Path, metadata: DumpMetadata, **more: object) -> dict[str, Any]:
    """Return the content of `run.json`: the arguments, a data class with a seed, and the hashes of the dump."""
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    files = {name: file.sha256 for name, file in metadata.files.items()}
    hashes = {METADATA_FILE: sha256(dump / METADATA_FILE), **files}
    return {"arguments": settings, "seed": settings["seed"], "input": hashes, **more}


def plain(value: Any) -> Any:
    """Turn data classes, arrays, dictionaries and lists into values for JSON; numbers that are not finite are None."""
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
