"""Processes: their cores, memory and end; and one training run in several of them, started and ended together."""

import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import process, util
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from types import FrameType
from typing import Any

from agent_zoo.torchrun import MEETING_SOCKET, check_started_together, number_of_processes
from common.user_error import UserError
from reinforcement_learning.settings import Settings

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


LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_LOOK_EVERY = 0.2
_SECONDS_TO_END = 30
"""Time that processes have to end once one of them has failed."""
_LAST_WORDS = ("error:", "interrupted")
_ABOUT_OTHERS = "error: another process of this run"


def must_start(settings: Settings) -> bool:
    """Return whether this process is to start those that train, and not one of them.

    Raises:
        UserError: `torchrun` has started another number of processes, or none although WORLD_SIZE says so; or there
            are fewer cores than processes.
    """
    check_started_together()
    wanted, started = settings.train.processes, number_of_processes()
    if wanted == 1 or started == wanted:
        return False
    if started > 1:
        raise UserError(f"torchrun started {started} processes: leave out --processes {wanted}, or pass {started}")
    if wanted > usable_cores():
        raise UserError(f"--processes {wanted} needs as many cores, and this process may use {usable_cores()}")
    return True


def share_of_work(settings: Settings) -> Settings:
    """Return the settings of one of `train.processes` processes: its worlds, and its part of batch and minibatch."""
    size = settings.train.processes
    batch_size, minibatch_rows = settings.train.batch_size // size, settings.train.minibatch_rows // size
    train = replace(settings.train, batch_size=batch_size, minibatch_rows=minibatch_rows)
    rollout = replace(settings.rollout, num_envs=settings.rollout.num_envs // size)
    return replace(settings, train=train, rollout=rollout)


def run_together(command: Sequence[str], size: int) -> int:
    """Run a command in several processes that learn together, and return the exit code of the run.

    Signals are passed on to all of them. If one fails, the others end too. An error that several of them report is
    shown once, and that another process ended only if none says why.
    """
    last_words: list[str] = []
    with StopSignal() as stop, ExitStack() as running:
        meeting = running.enter_context(socket.create_server(("127.0.0.1", 0)))
        shared = _shared_environment(size, meeting)
        started = [
            running.enter_context(
                subprocess.Popen(
                    command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    pass_fds=[] if rank else [meeting.fileno()], stderr=subprocess.PIPE, text=True, errors="replace",
                    start_new_session=True,  # Ctrl-C reaches it once, from this process
                )
            )
            for rank in range(size)
        ]  # fmt: skip
        meeting.close()
        readers = [threading.Thread(target=_pass_on, args=(process, last_words)) for process in started]
        for reader in readers:
            reader.start()
        _wait(started, stop)
        for reader in readers:
            reader.join()
    reasons = [line for line in dict.fromkeys(last_words) if not line.startswith(_ABOUT_OTHERS)]
    for line in reasons or last_words[:1]:
        print(line, end="", file=sys.stderr)
    codes = [process.returncode for process in started]
    return next((code if code > 0 else 128 - code for code in codes if code), 0)  # as a shell tells a signal


def _shared_environment(size: int, meeting: socket.socket) -> dict[str, str]:
    """Return the environment variables that PyTorch reads, and one for a child to end with this process.

    All that the processes listen at is on the loopback interface, which other machines cannot reach.

    Args:
        meeting: the socket at which the first process will listen; it is open, so nobody else can take its port.
    """
    return {
        "OMP_NUM_THREADS": str(max(1, usable_cores() // size)),
        **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), LOOPBACK),
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(meeting.getsockname()[1]),
        MEETING_SOCKET: str(meeting.fileno()),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        PARENT_PROCESS: str(os.getpid()),
    }


def _pass_on(process: subprocess.Popen[str], last_words: list[str]) -> None:
    """Show what a process writes to its standard error, except the line with which it ends."""
    assert process.stderr
    for line in process.stderr:
        if line.startswith(_LAST_WORDS):
            last_words.append(line)
        else:
            sys.stderr.write(line)
            sys.stderr.flush()


def _wait(started: Sequence[subprocess.Popen[str]], stop: StopSignal) -> None:
    """Wait until all have ended; pass a signal on, and end those that outlive one that failed."""
    passed_on = False
    deadline = None
    while None in [process.poll() for process in started]:
        time.sleep(_LOOK_EVERY)
        if stop.received and not passed_on:
            passed_on = True
            for process in started:
                process.send_signal(stop.received)
        if deadline is None and any(process.returncode for process in started):
            deadline = time.monotonic() + _SECONDS_TO_END
        if deadline and time.monotonic() > deadline:
            for process in started:
                process.kill()
