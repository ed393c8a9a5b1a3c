"""Many worlds in parallel: in this process, or in worker processes on this machine or on a Ray cluster."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_zoo.torchrun import number_of_processes, processes_on_this_machine
from reinforcement_learning.game.environment import AS_THE_AGENT_HAS_IT, EpisodeStart, World, make_environment
from reinforcement_learning.game.process_worlds import ProcessWorlds
from reinforcement_learning.game.serial_worlds import serial_worlds
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.processes import usable_cores
from reinforcement_learning.settings import (
    EnvironmentSettings,
    RewardSettings,
    RolloutSettings,
    TaskSettings,
    check_workers,
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
    return ProcessWorlds(creators, workers)


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


def _on_ray(creators: Sequence[Callable[[], World]], rollout: RolloutSettings, maps: Path) -> Any:
    from reinforcement_learning.game.ray_worlds import RayWorlds
    from reinforcement_learning.ray_cluster import cores

    connect_workers(rollout)
    workers = rollout.num_workers or _workers_that_fit(rollout.num_envs, cores() // number_of_processes())
    return RayWorlds(creators, workers, maps)


def _in_processes(rollout: RolloutSettings) -> bool:
    if rollout.vectorization == "auto":
        return rollout.num_envs > 1 and _cores() > 1
    return rollout.vectorization == "multiprocessing"


def _cores() -> int:
    """This process's share of the machine's cores."""
    return usable_cores() // processes_on_this_machine()


def _workers_that_fit(worlds: int, cores: int) -> int:
    """Return the largest number of workers with a core each that share the worlds evenly; at least one."""
    return max(workers for workers in range(1, max(1, min(cores, worlds)) + 1) if worlds % workers == 0)
