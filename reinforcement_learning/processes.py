"""Processes: how many cores they may use, and how they end."""

import functools
import os
import threading
import time

PARENT_PROCESS = "NMMO_PARENT_PROCESS"
"""Environment variable that tells a training run the id of the process that started it, with which it ends."""

_WATCH_SECONDS = 0.2


def usable_cores() -> int:
    """Cores of this machine that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
