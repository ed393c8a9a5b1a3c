"""Many worlds in parallel: in this process, or in worker processes on this machine or on a Ray cluster."""

import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pufferlib.vector

from agent_zoo.torchrun import number_of_processes, processes_on_this_machine
from reinforcement_learning.game.environment import AS_THE_AGENT_HAS_IT, EpisodeStart, World, make_environment
from reinforcement_learning.game.serial_worlds import no_arguments, serial_worlds
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.processes import (
    end_with_parent,
    usable_cores,
)
from reinforcement_learning.settings import (
    EnvironmentSettings,
    RewardSettings,
    RolloutSettings,
    TaskSettings,
    check_workers,
)
from user_error import UserError

FEWEST_CORES_FOR_PROCESSES = 4
_POLL_SECONDS = 0.0002
_LIVENESS_SECONDS = 1.0


class WatchedMultiprocessing(pufferlib.vector.Multiprocessing):
    """PufferLib's worker processes, but waiting does not occupy a core and detects dead workers.

    PufferLib itself would wait forever for a dead worker.
    """

    def recv(self) -> Any:
        """Wait for all workers and return their worlds' results.

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
    starts: Sequence[EpisodeStart], weights_file: Path | None = None, reward: RewardSettings = AS_THE_AGENT_HAS_IT,
) -> Any:  # fmt: skip
    """Start the worlds of a rollout and return PufferLib's vectorised environment; close it when done.

    Tasks are encoded once, here.

    Args:
        agent: whose reward is used.
        env: the world.
        task: settings of the tasks.
        rollout: number of worlds and processes.
        maps: a finished folder from `ensure_maps`.
        starts: where the first reset takes each world.
        weights_file: as in `make_environment`.
        reward: as in `make_environment`.

    Raises:
        UserError: the worlds cannot be shared evenly among the workers, or Ray cannot be used.
    """
    check_workers(rollout)
    maps, specs = maps.resolve(), offered_tasks(task, env)
    creators = [
        functools.partial(make_environment, agent, env, task, maps, start, specs, weights_file, reward)
        for start in starts
    ]
    if rollout.vectorization == "ray":
        return _on_ray(creators, rollout, maps)
    if not _in_processes(rollout):
        return serial_worlds(creators)
    workers = rollout.num_workers or _workers_that_fit(rollout.num_envs, _cores())
    creators = [functools.partial(_make_in_worker, os.getpid(), create) for create in creators]
    return WatchedMultiprocessing(creators, *no_arguments(creators), rollout.num_envs, num_workers=workers)


def connect_workers(rollout: RolloutSettings) -> None:
    """Connect to the Ray cluster, if these settings need one.

    Raises:
        UserError: Ray is not installed, or no cluster answers.
    """
    if rollout.vectorization == "ray":
        from reinforcement_learning.ray_cluster import connect

        connect(rollout.ray_address)


def first_episodes(seed: int, worlds: int, rank: int = 0) -> list[EpisodeStart]:
    """Return where the worlds of a run start; their seeds are independent of each other and of other runs.

    The process of rank r gets the seeds that follow those of ranks 0 to r - 1.
    """
    states = np.random.SeedSequence(seed).generate_state(worlds * (rank + 1))
    return [EpisodeStart(int(state)) for state in states[worlds * rank :]]


def _make_in_worker(parent: int, create: Callable[[], World]) -> World:
    """Make a world in a worker process, which ends with its parent; the parent makes one too, as a pattern."""
    if os.getpid() != parent:
        end_with_parent(parent)
    return create()


def _on_ray(creators: Sequence[Callable[[], World]], rollout: RolloutSettings, maps: Path) -> Any:
    from reinforcement_learning.game.ray_worlds import RayWorlds
    from reinforcement_learning.ray_cluster import cores

    connect_workers(rollout)
    workers = rollout.num_workers or _workers_that_fit(rollout.num_envs, cores() // number_of_processes())
    return RayWorlds(creators, workers, maps)


def _in_processes(rollout: RolloutSettings) -> bool:
    if rollout.vectorization == "auto":
        return rollout.num_envs > 1 and _cores() >= FEWEST_CORES_FOR_PROCESSES
    return rollout.vectorization == "multiprocessing"


def _cores() -> int:
    """This process's share of the machine's cores."""
    return usable_cores() // processes_on_this_machine()


def _workers_that_fit(worlds: int, cores: int) -> int:
    """Return the largest number of workers with a core each that share the worlds evenly; at least one."""
    return max(workers for workers in range(1, max(1, min(cores, worlds)) + 1) if worlds % workers == 0)
