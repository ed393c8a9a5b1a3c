"""Many worlds at once, through PufferLib: in this process, or spread over worker processes."""

import functools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pufferlib.vector

from reinforcement_learning.environment import make_environment
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, TaskSettings, check_workers
from reinforcement_learning.tasks import offered_tasks
from user_error import UserError

FEWEST_CORES_FOR_PROCESSES = 4
_POLL_SECONDS = 0.0002
_LIVENESS_SECONDS = 1.0


class WatchedMultiprocessing(pufferlib.vector.Multiprocessing):
    """PufferLib's worker processes, waited for without keeping a core busy, and noticed when one of them is gone.

    PufferLib itself would wait for a dead worker for ever.
    """

    def recv(self) -> Any:
        """Wait for all workers and return what their worlds sent.

        Raises:
            UserError: a worker process has ended.
        """
        next_check = time.monotonic() + _LIVENESS_SECONDS
        while (self.buf.semaphores < pufferlib.vector.MAIN).any():
            time.sleep(_POLL_SECONDS)
            if time.monotonic() > next_check:
                self._check_workers()
                next_check = time.monotonic() + _LIVENESS_SECONDS
        return super().recv()

    def _check_workers(self) -> None:
        for number, process in enumerate(self.processes):
            if not process.is_alive():
                raise UserError(
                    f"worker process {number} ended (exit code {process.exitcode}; -9 usually means that memory ran "
                    "out): the last checkpoint is good, try fewer --rollout.num-envs"
                )


def make_worlds(
    agent: str, env: EnvironmentSettings, task: TaskSettings, rollout: RolloutSettings, maps: Path,
    weights_file: Path | None = None,
) -> Any:  # fmt: skip
    """Start the worlds of a rollout and return PufferLib's vectorised environment; close it when done.

    Tasks are encoded once, here; `weights_file` as in `make_environment`.

    Raises:
        UserError: the worlds cannot be shared evenly among the workers.
    """
    check_workers(rollout)
    creator = functools.partial(make_environment, agent, env, task, maps, offered_tasks(task, env), weights_file)
    if not _in_processes(rollout):
        return pufferlib.vector.make(creator, num_envs=rollout.num_envs, backend=pufferlib.vector.Serial)
    return pufferlib.vector.make(
        creator,
        num_envs=rollout.num_envs,
        num_workers=rollout.num_workers or _workers_that_fit(rollout.num_envs),
        backend=WatchedMultiprocessing,
    )


def world_seeds(seed: int, worlds: int) -> list[int]:
    """First seeds of the worlds of a run: independent of each other, and of those of runs with other seeds."""
    return [int(state) for state in np.random.SeedSequence(seed).generate_state(worlds)]


def _in_processes(rollout: RolloutSettings) -> bool:
    if rollout.vectorization == "auto":
        return rollout.num_envs > 1 and _cores() >= FEWEST_CORES_FOR_PROCESSES
    return rollout.vectorization == "multiprocessing"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _workers_that_fit(worlds: int) -> int:
    return max(workers for workers in range(1, min(_cores(), worlds) + 1) if worlds % workers == 0)
