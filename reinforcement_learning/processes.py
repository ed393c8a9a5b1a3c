"""Processes: how many cores they may use, what memory they keep, and how they end."""

import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing import process, util
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from types import FrameType
from typing import Any

PARENT_PROCESS = "NMMO_PARENT_PROCESS"
"""Environment variable that tells a training run the id of the process that started it, with which it ends."""

_TEMPORARY = "nmmo-"
_LONGEST_FOLDER = 70
"""Bytes of a folder's name below which a socket can still have a name: the system allows it about 100 in all."""
_WATCH_SECONDS = 0.2
_EVERY_SECONDS = 30.0
_tidied = time.monotonic()
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX in glibc's malloc.h
_NEVER = -1  # as a threshold for trimming


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


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Let Ctrl-C wait for the end of a block that starts processes; these never see it.

    One that is interrupted as it starts, or whose parent is, would print a traceback of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    handler = signal.signal(signal.SIGINT, lambda *interrupt: received.append(interrupt))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if received and callable(handler):
        handler(*received[0])


@functools.cache  # once is enough
def name_temporary_folder() -> None:
    """Give Python's folder for talking to other processes a name that says whose it is, and remove those of the dead.

    Python would call it pymp-SOMETHING, and nobody could tell later which ones a killed process has left.
    """
    settings: dict[str, Any] = vars(process.current_process())["_config"]
    if "tempdir" in settings:  # made already, or our parent's
        return
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > _LONGEST_FOLDER:
        base = "/tmp"
    for left in Path(base).glob(f"{_TEMPORARY}*-*"):
        owner = left.name.removeprefix(_TEMPORARY).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)  # of another user: nothing happens
    made = tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=base)
    # After all that Python itself cleans up in it, as with its own folder; only in this process, not in its forks.
    util.Finalize(None, shutil.rmtree, (made,), {"ignore_errors": True}, exitpriority=-100)
    settings["tempdir"] = made


@functools.cache  # once is enough
def end_with_parent(parent: int) -> None:
    """Let this process end within moments of its parent, which may be killed and so cannot end it itself."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:  # an orphan gets another parent, on Linux and macOS alike
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


class StopSignal:
    """Within its block, the first SIGINT or SIGTERM is recorded; a second one interrupts at once.

    Attributes:
        received: the signal's number, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self.received is not None

    def end_process(self) -> None:
        """End the process with the signal's exit code: 128 plus its number."""
        if self.received is not None:
            raise SystemExit(128 + self.received)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number


def tidy_memory() -> None:
    """Free what earlier episodes have left, and give it back to the system; do nothing if that was done just before.

    A world is a web of hundreds of thousands of objects that refer to each other. Python looks for such webs the more
    rarely the more objects there are, and the next world is then built around the last one. Looking takes about a
    third of a second.
    """
    global _tidied
    if time.monotonic() - _tidied < _EVERY_SECONDS:
        return
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
    _tidied = time.monotonic()


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees instead of returning it to the system, and tell whether it does.

    Each minibatch frees and allocates the same memory. When it goes back to the system in between, the system has to
    clear every page anew, which for large networks can take longer than learning itself (docs/benchmarks.md). By
    default glibc returns blocks of more than 32 MiB as soon as they are freed, and smaller ones once much is free.
    Works with glibc, as most Linux systems have it; without it, nothing changes.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(set_option(_MMAP_MAX, 0)) and bool(set_option(_TRIM_THRESHOLD, _NEVER))
