"""Where the commands of a study run: one after the other on this machine, or side by side on a Ray cluster.

The machines of a cluster need the same Python and packages, this checkout and the study's results at the same paths, on
a file system that they share.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.files import open_to_append
from common.ray_cluster import RAY_ADDRESSES, START_SECONDS, connect, is_ray_address, no_worker
from common.user_error import UserError, one_line

POLL_SECONDS = 0.5
_STOP_SECONDS = 30
_ENDS_WITH_ITS_WORKER = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Starts a command that is killed when the process that started it ends (1: PR_SET_PDEATHSIG), on some cores alone.

Ray's processes block SIGINT, and ignore it if they were started in a shell's background; their children would too."""


class LostError(Exception):
    """A machine was lost, and with it the command that ran there; the message says which."""


class LocalCommand(subprocess.Popen[bytes]):
    """A process of this machine; `begun` is when it began, as `time.monotonic` counts."""

    begun: float | None = None


class LocalCrew:
    """Runs one command at a time, which has the machine for itself."""

    def __init__(self, scripts: Path) -> None:
        self._scripts = scripts

    def size(self) -> int:
        """Return how many run side by side."""
        return 1

    def start(self, words: Sequence[str], log: Path, lock: int) -> LocalCommand:
        """Start a script with its options; its output is appended to a log, and it keeps the lock's descriptor open."""
        return _started([sys.executable, *words], self._scripts, log, [lock])


class RayCrew:
    """Runs as many commands side by side as the cluster has cores for."""

    def __init__(self, scripts: Path, address: str, cores_each: int) -> None:
        """Connect to a cluster.

        Raises:
            UserError: the address or the number of cores is none, no cluster answers there, or it has fewer cores than
                one command needs.
        """
        if not is_ray_address(address):
            raise UserError(f"--ray-address is {address}: must be {RAY_ADDRESSES}")
        if cores_each < 1:
            raise UserError(f"--stage-cores is {cores_each}: must be 1 or more")
        connect(address)
        import ray

        self.cores_each, self.scripts = cores_each, scripts
        if not self.size():
            raise UserError(f"--stage-cores is {cores_each}: no machine of the Ray cluster has so many cores; lower it")
        self.taken: Counter[tuple[str, int]] = Counter()  # of each machine's cores, how often each is given away
        remote: Any = ray.remote(num_cpus=cores_each, scheduling_strategy="SPREAD")
        self._actor = remote(_Worker).options(max_concurrency=2)  # so that a command that runs can be stopped

    def size(self) -> int:
        """Return how many run side by side on the machines that the cluster has now."""
        import ray

        machines = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        return sum(int(there // self.cores_each) for there in machines)

    def start(self, words: Sequence[str], log: Path, lock: int) -> "RayCommand":
        """Start a script as `LocalCrew` does, without the lock; Ray makes it wait until a machine has enough cores."""
        return RayCommand(self, self._actor.remote(), words, log)


class RayCommand:
    """A command on a machine of the cluster, used like a `LocalCommand`; first its worker starts, then the command.

    `begun` is None while it waits for a machine.
    """

    def __init__(self, crew: RayCrew, worker: Any, words: Sequence[str], log: Path) -> None:
        self._crew, self._worker, self._words, self._log = crew, worker, words, log
        self._answer = worker.place.remote([str(crew.scripts), str(log.parent.absolute())])
        self._cores: list[tuple[str, int]] = []
        self._asked = time.monotonic()
        self.begun: float | None = None
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, None while it waits or runs.

        Raises:
            LostError: it ended with its machine.
            UserError: its machine lacks what it needs.
        """
        import ray

        ready, _ = ray.wait([self._answer], timeout=0)
        if not ready:
            if self._crew.taken.total():
                self._asked = time.monotonic()  # it may wait for others of this study
            if time.monotonic() > self._asked + START_SECONDS:
                raise no_worker()
            return None
        try:
            answer = ray.get(ready[0])
        except ray.exceptions.RayTaskError as error:
            self._end()
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise UserError(f"a Ray worker cannot run this project: {one_line(str(error.cause))}") from None
        except ray.exceptions.RayError as error:
            where = f" on {self._cores[0][0]}" if self._cores else ""
            self._end()
            why = "it was killed, lost its machine, or lacks this checkout or its packages"
            raise LostError(f"a Ray worker{where} ended ({type(error).__name__}: {why})") from None
        if self._cores:
            self._end()
            self._code = int(answer)
            return self._code
        (machine, there), taken = answer, self._crew.taken
        least = sorted(there, key=lambda core: (taken[machine, core], core))[: self._crew.cores_each]
        self._cores = [(machine, core) for core in least]
        taken.update(self._cores)
        self.begun = time.monotonic()
        self._answer = self._worker.run.remote(list(self._words), self._crew.scripts, self._log.absolute(), least)
        return None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._cores:
            self._worker.send.remote(int(number))

    def wait(self) -> int | None:
        """Wait for its end after a signal, at the latest that of its worker; return its exit code, if it has one."""
        import ray

        if self._cores:
            with contextlib.suppress(ray.exceptions.RayError):
                self._code = ray.get(self._answer, timeout=_STOP_SECONDS)
        self._end()
        return self._code

    def _end(self) -> None:
        import ray

        self._crew.taken.subtract(self._cores)
        self._cores = []
        ray.kill(self._worker)


Crew = LocalCrew | RayCrew
Running = LocalCommand | RayCommand


class _Worker:
    """Runs one command on a machine of the cluster."""

    def place(self, folders: list[str]) -> tuple[str, list[int]]:
        """Return the machine's name and the numbers of its cores.

        Raises:
            UserError: the machine lacks one of the folders of scripts and results.
        """
        if lacking := [folder for folder in folders if not Path(folder).is_dir()]:
            raise UserError(
                f"{socket.gethostname()} does not have {lacking[0]}: put --results-dir on a file system that all "
                "machines of the cluster share, and this checkout at the same path on each"
            )
        affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        return socket.gethostname(), sorted(affinity)

    def run(self, words: list[str], scripts: Path, log: Path, on: list[int]) -> int:
        """Run a command to its end, and return its exit code."""
        numbers = ",".join(map(str, on))
        launcher = [sys.executable, "-c", _ENDS_WITH_ITS_WORKER, numbers, *words]
        self._process = _started(launcher, scripts, log, [])
        return self._process.wait()

    def send(self, number: int) -> None:
        self._process.send_signal(number)


def _started(words: Sequence[str], scripts: Path, log: Path, kept_open: Sequence[int]) -> LocalCommand:
    with open_to_append(log) as output:
        command = LocalCommand(
            words, cwd=scripts, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | {"PYTHONUNBUFFERED": "1"}, pass_fds=kept_open,
        )  # fmt: skip
    command.begun = time.monotonic()
    return command
