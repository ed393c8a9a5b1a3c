"""Processes: how many cores they may use, and how they end."""

import functools
import multiprocessing
import os
import sys
import threading
import time
from multiprocessing.context import ForkContext, SpawnContext

PARENT_PROCESS = "NMMO_PARENT_PROCESS"
"""Environment variable that tells a training run the id of the process that started it, with which it ends."""

_WATCH_SECONDS = 0.2


def usable_cores() -> int:
    """Cores of this machine that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_context() -> ForkContext | SpawnContext:
    """How worker processes start that are direct children of this one, as `end_with_parent` needs.

    On Linux they are forks, which have all that is loaded here and so start at once; Python 3.14 starts others there
    unless it is asked.
    """
    if sys.platform == "linux":
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


@functools.cache  # once is enough
def end_with_parent(parent: int) -> None:
    """Let this process end within moments of its parent, which may be killed and so cannot end it itself.

    Args:
        parent: id of the process that started this one.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:  # an orphan gets another parent, on Linux and macOS alike
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
