"""Many worlds in parallel: in this process, or in worker processes on this machine or on a Ray cluster."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_zoo.torchrun import number_of_processes, processes_on_this_machine
from common.user_error import UserError
from reinforcement_learning.game.environment import (
    AS_THE_AGENT_HAS_IT,
    EpisodeStart,
    World,
    make_environment,
    serial_worlds,
)
from reinforcement_learning.game.process_worlds import ProcessWorlds, RayWorlds
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.processes import usable_cores
from reinforcement_learning.run_settings import check_workers
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, RolloutSettings, TaskSettings


def make_worlds(
    agent: str, env: EnvironmentSettings, task: TaskSettings, rollout: RolloutSettings, maps: Path,
    starts: Sequence[EpisodeStart], weights_file: Path | None = None, reward: RewardSettings = AS_THE_AGENT_HAS_IT,
) -> Any:  # fmt: skip
    """Start all worlds of a rollout as one group; see `make_groups`."""
    return make_groups(agent, env, task, rollout, maps, starts, weights_file, reward, groups=1)[0]


def make_groups(
    agent: str, env: EnvironmentSettings, task: TaskSettings, rollout: RolloutSettings, maps: Path,
    starts: Sequence[EpisodeStart], weights_file: Path | None = None, reward: RewardSettings = AS_THE_AGENT_HAS_IT,
    groups: int | None = None,
) -> list[Any]:  # fmt: skip
    """Start the worlds of a rollout in groups of equal size, each of which can play while the others wait.

    Each group is one of PufferLib's vectorised environments; close it when done. Tasks are encoded once, here.

    Args:
        starts: where the first reset takes each world.
        groups: their number; None: that of the settings.

    Raises:
        UserError: the worlds cannot be shared evenly among the workers, there are not as many starts as worlds, or Ray
            cannot be used.
    """
    check_workers(rollout)
    if len(starts) != rollout.num_envs:
        raise UserError(f"there are {len(starts)} worlds to go on with, but rollout.num_envs is {rollout.num_envs}")
    maps, specs = maps.resolve(), offered_tasks(task, env)
    creators = [
        functools.partial(make_environment, agent, env, task, maps, start, specs, weights_file, reward)
        for start in starts
    ]
    groups = groups or rollout.groups
    size = len(creators) // groups
    start, made = _starter(rollout, maps, groups), []
    try:
        for first in range(0, len(creators), size):
            made.append(start(creators[first : first + size]))
    except BaseException:
        for worlds in made:
            worlds.close()
        raise
    return made


def connect_workers(rollout: RolloutSettings) -> None:
    """Connect to the Ray cluster, if these settings need one.

    Raises:
        UserError: Ray is not installed, no cluster answers, or it has too few cores.
    """
    if rollout.vectorization == "ray":
        _ray_workers_of_a_group(rollout, rollout.groups)


def first_episodes(seed: int, worlds: int, rank: int = 0) -> list[EpisodeStart]:
    """Return where the worlds of a run start; their seeds are independent of each other and of other runs.

    The process of rank r gets the seeds that follow those of ranks 0 to r - 1.
    """
    states = np.random.SeedSequence(seed).generate_state(worlds * (rank + 1))
    return [EpisodeStart(int(state)) for state in states[worlds * rank :]]


def _starter(rollout: RolloutSettings, maps: Path, groups: int) -> Callable[[Sequence[Callable[[], World]]], Any]:
    if rollout.vectorization == "ray":
        return functools.partial(RayWorlds, num_workers=_ray_workers_of_a_group(rollout, groups), maps=maps)
    chosen = rollout.vectorization == "auto" and rollout.num_envs > 1 and _cores() > 1
    if not (chosen or rollout.vectorization == "multiprocessing"):
        return serial_worlds
    return functools.partial(ProcessWorlds, num_workers=_workers_of_a_group(rollout, groups, _cores()))


def _ray_workers_of_a_group(rollout: RolloutSettings, groups: int) -> int:
    """Connect to the cluster, and return how many of its workers play a group of worlds, each on a core of its own."""
    from common.ray_cluster import connect, cores

    connect(rollout.ray_address)
    local = rollout.ray_address == "local"  # then each machine's processes start clusters on that machine alone
    processes = processes_on_this_machine() if local else number_of_processes()
    least = rollout.num_workers or groups
    if processes * least > cores():
        fewer = f"lower --rollout.num-workers {rollout.num_workers}, " if rollout.num_workers else ""
        raise UserError(
            f"--vectorization ray needs {least} cores for each training process, {processes * least} in all, and the "
            f"Ray cluster has {cores()}: {fewer}add cores, or use --vectorization multiprocessing"
        )
    return _workers_of_a_group(rollout, groups, cores() // processes)


def _cores() -> int:
    return usable_cores() // processes_on_this_machine()


def _workers_of_a_group(rollout: RolloutSettings, groups: int, cores: int) -> int:
    """Return the number asked for, or the largest whose workers have a core each and share the worlds evenly."""
    if rollout.num_workers:
        return rollout.num_workers // groups
    worlds, cores = rollout.num_envs // groups, cores // groups
    return max(workers for workers in range(1, max(1, min(cores, worlds)) + 1) if worlds % workers == 0)
