"""The folder of one analysis run: claimed before any work, complete only once it contains `DONE.json`.

Results of long stages are kept beside it until it is finished, so that the same command goes on after a stop.
"""

import math
import os
import platform
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import orjson

from activation_store.schema import METADATA_FILE, DumpMetadata
from common.array_files import arrays_of
from common.command_line import this_command
from common.figure_settings import save_figure
from common.files import (
    PARTIAL_SUFFIX,
    as_json,
    atomic_file,
    is_leftover,
    locked_folder,
    make_folder,
    read_bytes,
    read_json,
    sha256,
    visible,
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
_KEY_FILE = "key.json"
T = TypeVar("T")


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
            if (self.path / RUN_FILE).exists():  # without locks, or of other arguments, it might still be wanted
                if not locked or read_bytes(self.path / RUN_FILE) != as_json(self._run):
                    raise UserError(f"{self.path} holds another, unfinished run: delete it, or choose another --name")
                self._remove_results()
            self.save_json(RUN_FILE, self._run)
            self._held = stack.pop_all()
        return self

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
            files = sorted(path for path in self.path.rglob("*") if path.is_file())
            written = {p.relative_to(self.path).as_posix(): proof_of(p) for p in files}
            self.save_json(DONE_FILE, {"files": written, "command": this_command()})

    def save_json(self, name: str, content: object) -> None:
        """Write a JSON file."""
        write_json(self.path / name, content)

    def save_text(self, name: str, content: str) -> None:
        """Write a text file."""
        write_text(self.path / name, content)

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


def proof_of(path: Path) -> dict[str, Any]:
    """Return what DONE.json says of a file: its hash and its size."""
    return {"sha256": sha256(path), "bytes": path.stat().st_size}


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
    """Turn data classes, arrays, dictionaries, lists and paths into values for JSON; numbers not finite are None."""
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Parts:
    """Arrays of finished stages in a hidden folder beside the run's own, valid for one set of arguments and inputs."""

    def __init__(self, run_folder: Path, key: Mapping[str, Any]) -> None:
        """Open the parts of a run; those of other arguments or inputs are removed.

        Parts lie in `.NAME.parts` next to the run's folder. The key is everything that results depend on, as JSON
        values.

        Raises:
            UserError: a folder of that name was not made for parts.
        """
        self.folder = run_folder.parent / f".{run_folder.name}.parts"
        self._key = orjson.loads(orjson.dumps(key))
        if self.folder.exists() and self._stored_key() != self._key:
            if not (self.folder / _KEY_FILE).exists() and any(
                not path.name.endswith(PARTIAL_SUFFIX) for path in self.folder.iterdir()
            ):  # a run that was killed may have written no key yet
                raise UserError(f"{self.folder} holds other files, and would be removed: move it away")
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / _KEY_FILE).exists():
            write_json(self.folder / _KEY_FILE, self._key)

    @property
    def there(self) -> list[str]:
        """Names of the finished stages."""
        return [path.stem for path in visible(self.folder, "*.npz")]

    def arrays(
        self, name: str, compute: Callable[[], dict[str, np.ndarray]], names: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a stage: read if it was finished before, else computed and stored.

        Args:
            names: of the arrays, where they are known; those with others are of an earlier version.
        """
        path = self.folder / f"{name}.npz"
        if path.exists():
            stored = self._read(path)
            if stored is not None and (names is None or stored.keys() == set(names)):
                return stored
        # In the order in memory that a file gives them: sums would differ in their last digits otherwise.
        arrays = {name: np.array(array, order="C") for name, array in compute().items()}
        with atomic_file(path) as file:
            np.savez(file, allow_pickle=False, names=np.array(list(arrays)), **arrays)
        return arrays

    def data(self, name: str, kind: type[T], compute: Callable[[], T]) -> T:
        """Return what a stage finds, a data class of arrays and numbers, as `arrays` does."""

        def compute_arrays() -> dict[str, np.ndarray]:
            return {field: np.asarray(value) for field, value in vars(compute()).items()}

        stored = self.arrays(name, compute_arrays, [field.name for field in fields(kind)])  # type: ignore[arg-type]
        return kind(**{field: array if array.ndim else array.item() for field, array in stored.items()})

    def remove(self) -> None:
        """Remove everything: the run is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, path: Path) -> dict[str, np.ndarray] | None:
        """Return the arrays of a file; None if it is damaged, so that its stage is computed again."""
        try:
            content = read_bytes(path)
            return arrays_of(content, arrays_of(content, ["names"])["names"].tolist())
        except (UserError, ValueError):
            return None

    def _stored_key(self) -> object:
        try:
            return read_json(self.folder / _KEY_FILE)
        except UserError:
            return None
