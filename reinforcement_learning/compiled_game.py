"""The game's hottest modules, compiled by Cython for this computer when they are first used.

    python -m reinforcement_learning.compiled_game    # compile now, and say where the result is kept

Each module of `fast_game/` that has a `.pxd` file beside it, with the types of its variables, is compiled. Without a
compiler, or with `NMMO_COMPILED_GAME=0`, the same files run as plain Python and give the same results more slowly.

The compiled modules are kept in the user's cache folder, in a folder named after a hash of all that they depend on, so
one of another version of Python, Neural MMO or this project is never loaded. Neither is one that other users could
have written.
"""

import hashlib
import multiprocessing
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from filelock import FileLock

from common.files import SUMS_FILE, sums_hold, sync, write_sums
from common.user_error import UserError, one_line

SWITCH = "NMMO_COMPILED_GAME"
_SOURCES = Path(__file__).parent / "game" / "fast_game"
_PACKAGE = Path("reinforcement_learning", "game", "fast_game")
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
# Without -ffp-contract, some processors would round differently than Python does.
_FLAGS = "-O2 -g0 -ffp-contract=off"
_OPTIONS = ("-3", "--inplace", "-X", "annotation_typing=False")
_LONGEST_SECONDS = 1800
_FAILED = "failed.txt"
_SCRATCH = ".compiling."
_LAYOUT = "with hashes"


class NotCompiledError(Exception):
    """The game cannot be compiled, or its compiled modules cannot be trusted; the message says why."""


# `RuntimeError`: there is no home folder, or the file system has no locks (`NotImplementedError`).
_EXPECTED = (NotCompiledError, OSError, RuntimeError, UserError, subprocess.TimeoutExpired)


def compiled_modules() -> list[str]:
    """Return the folder of the compiled modules, compiling them first if need be; [] if plain Python is to be used.

    The first process that needs them compiles them while others wait.
    """
    if os.environ.get(SWITCH) == "0" or not _files():  # a copy of the project may lack the types
        return []
    try:
        return [str(_ensure(_cache(), retry=False))]
    except _EXPECTED as error:
        _tell(f"the game runs as plain Python, which is slower: {error}")
        return []


def _ensure(cache: Path, retry: bool) -> Path:
    """Return the folder of the compiled modules in a cache folder; `retry` compiles again what failed before."""
    folder = cache / _key()
    failed = folder / _FAILED
    if retry or not (failed.exists() or _is_whole(folder)):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(cache)
        with FileLock(cache / "lock"):
            if (retry or not failed.exists()) and not _is_whole(folder):
                _remove(folder)
                _compile(folder)
    if failed.exists():
        raise NotCompiledError(
            f"compiling it failed ({failed}); `python -m reinforcement_learning.compiled_game` tries again"
        )
    for path in (folder, *folder.iterdir()):
        _check_private(path)
    return folder


def _is_whole(folder: Path) -> bool:
    """Return whether a folder holds the modules as they were compiled, and nothing else that could be loaded."""
    names = _module_names()
    return {path.name for path in folder.glob(f"*{_SUFFIX}")} == set(names) and sums_hold(folder, names)


def _module_names() -> list[str]:
    return [f"{path.stem}{_SUFFIX}" for path in _files() if path.suffix == ".py"]


def _remove(folder: Path) -> None:
    """Remove a folder of modules that were damaged, cut off or could not be compiled, if there is one."""
    if folder.is_dir() and not folder.is_symlink():
        if not (folder / _FAILED).exists():
            _tell(f"the compiled game in {folder} is damaged")
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").resolve() / "nmmo-interpretability" / "compiled_game"


def _key() -> str:
    try:
        cython = version("cython")
    except PackageNotFoundError:
        raise NotCompiledError("Cython is not installed; `make setup` installs it") from None
    parts = [sys.version, _SUFFIX, platform.machine(), version("nmmo"), cython, _FLAGS, *_OPTIONS, _LAYOUT]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in _files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files() -> list[Path]:
    """Return the sources of the compiled modules, and their types."""
    types = sorted(_SOURCES.glob("*.pxd"))
    return [*types, *(path.with_suffix(".py") for path in types)]


def _compile(folder: Path) -> None:
    """Compile all modules into a new folder; on failure it holds the compiler's output instead."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise NotCompiledError(f"there is no C compiler ({compiler})")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise NotCompiledError("Python's header files are not installed (on Debian and Ubuntu: python3-dev)")
    _tell("compiling the game for this computer, once; this takes about a minute")
    for leftover in folder.parent.glob(f"{_SCRATCH}*"):  # of a process that was killed: whoever compiles has the lock
        shutil.rmtree(leftover, ignore_errors=True)
    # Where Ctrl-C ends it, compilers may still write there, and what cannot be removed must not hide the interrupt.
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        package = Path(scratch) / _PACKAGE
        package.mkdir(parents=True)
        for parent in (package, *package.parents[:2]):
            (parent / "__init__.py").touch()
        for path in _files():
            shutil.copy(path, package)
        sources = [str(_PACKAGE / path.name) for path in _files() if path.suffix == ".py"]
        jobs = str(os.cpu_count() or 1)
        run = subprocess.run(
            [sys.executable, "-m", "Cython.Build.Cythonize", *_OPTIONS, "-j", jobs, *sources],
            cwd=scratch, env={**os.environ, "CFLAGS": _FLAGS}, capture_output=True, text=True, errors="replace",
            timeout=_LONGEST_SECONDS, check=False,
        )  # fmt: skip
        result = Path(scratch) / "result"
        result.mkdir(mode=0o700)
        names = _module_names()
        if run.returncode or not all((package / name).exists() for name in names):
            (result / _FAILED).write_text(run.stdout + run.stderr)
        else:
            for name in names:
                shutil.move(package / name, result)
                (result / name).chmod(0o700)
            write_sums(result, names)
            (result / SUMS_FILE).chmod(0o600)
        result.rename(folder)
    sync(folder.parent)


def _check_private(path: Path) -> None:
    """Raise `NotCompiledError` if another user could have written a file, or could replace it."""
    for place in (path, *path.resolve().parents):
        status = place.lstat()
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # others cannot replace what is in it
        if status.st_uid not in (0, os.getuid()) or (status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky):
            raise NotCompiledError(f"other users can write to {place}, so compiled code is not loaded from there")


def _tell(line: str) -> None:
    """Print one line, in the main process only."""
    if multiprocessing.parent_process() is None:
        print(one_line(line), file=sys.stderr)


def main() -> None:
    """Compile if need be, and print one line about the result."""
    try:
        print(f"the compiled game is kept in {_ensure(_cache(), retry=True)}")
    except _EXPECTED as error:
        _tell(f"the game will run as plain Python, which is slower: {error}")


if __name__ == "__main__":
    from common import command_line

    command_line.run(main)
