"""One training run in several processes of this machine, started and ended together."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from agent_zoo.torchrun import MEETING_SOCKET, check_started_together, number_of_processes
from common.user_error import UserError
from reinforcement_learning.processes import PARENT_PROCESS, StopSignal, usable_cores
from reinforcement_learning.settings import Settings

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
        started = [running.enter_context(_start(command, shared, rank, meeting)) for rank in range(size)]
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
    return next((code for code in (_exit_code(process) for process in started) if code), 0)


def _start(command: Sequence[str], shared: dict[str, str], rank: int, meeting: socket.socket) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        pass_fds=[] if rank else [meeting.fileno()], stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,  # Ctrl-C reaches it once, from this process
    )  # fmt: skip


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


def _exit_code(process: subprocess.Popen[str]) -> int:
    """Return a process's exit code as a shell tells it: 128 plus the number of the signal that ended it."""
    code = process.returncode
    return code if code >= 0 else 128 - code
