"""Prints one line with instructions if a script is started outside this project's environment; imported first.

It uses only the standard library, with syntax that every Python 3 understands.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("numpy", "tyro", "rich", "orjson", "pydantic", "yaml", "filelock", "safetensors", "torch", "nmmo")
OLDEST = (3, 11)
EXIT_BAD_INPUT = 2


def fault() -> str:
    """Return one line that says what is wrong here and what to do; "" if nothing is wrong."""
    try:
        Path.cwd()
    except OSError:
        return "the current folder does not exist any more: change to another one, as with `cd`"
    missing = [name for name in NEEDED if find_spec(name) is None]
    if sys.version_info >= OLDEST and not missing:
        return ""
    too_old = "Python {}.{} is too old".format(*sys.version_info[:2])
    why = too_old if sys.version_info < OLDEST else "it lacks " + ", ".join(missing)
    has_environment = (Path(__file__).resolve().parents[1] / ".venv" / "bin" / "python").exists()
    first = "" if has_environment else "run `make setup`, then "
    return "{} is not this project's Python ({}): {}use `.venv/bin/python`, or `source .venv/bin/activate`".format(
        sys.executable or "this", why, first
    )


def bound_numba() -> None:
    """Let numba use as many threads as OMP_NUM_THREADS says; torch, too, has as many as numba once UMAP was used."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > 0:
        os.environ.setdefault("NUMBA_NUM_THREADS", threads)


def end_unless_complete() -> None:
    """End the process with one line on standard error and exit code 2 if something is wrong."""
    message = fault()
    if message:
        sys.stderr.write("error: " + message + "\n")
        sys.exit(EXIT_BAD_INPUT)


bound_numba()
end_unless_complete()
