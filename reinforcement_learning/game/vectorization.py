"""Many worlds in parallel: in this process, or in worker processes on this machine or on a Ray cluster.

PufferLib 1.0.1 has a backend for processes of this machine, but its workers occupy a core each while they wait, it
builds every world in the main process as well, and it waits forever for a worker that has died. It has one for Ray, but
that gives every worker the seeds of all worlds, discards errors in a tick, and lets Ray put all workers on one machine.
The worlds here have the interface of these backends.
"""

import functools
import os
import signal
import socket
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pufferlib.vector

from agent_zoo.torchrun import number_of_processes, processes_on_this_machine
from common.ray_cluster import START_SECONDS, no_worker
from common.user_error import UserError
from reinforcement_learning.game.environment import (
    AS_THE_AGENT_HAS_IT,
    EpisodeStart,
    World,
    make_environment,
    serial_worlds,
)
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.processes import (
    end_with_parent,
    interrupts_held_back,
    name_temporary_folder,
    usable_cores,
    worker_context,
)
from reinforcement_learning.run_settings import check_workers
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, RolloutSettings, TaskSettings

_Memory = dict[str, tuple[Any, np.dtype, tuple[int, ...]]]
"""Of the arrays of all slots, by the names that PufferLib expects: memory that processes share, type and shape."""


class ProcessWorlds:
    """Worlds in worker processes that share their arrays with this one, and sleep while they have nothing to do.

    Attributes:
        driver_env: a world in this process, as a pattern; it is never played.
        agents_per_batch: slots of all worlds together.
        num_workers: processes.
    """

    def __init__(self, creators: Sequence[Callable[[], Any]], num_workers: int):
        """Start the workers; each builds an equal share of the worlds."""
        name_temporary_folder()
        self.driver_env = creators[0]()
        self.emulated = self.driver_env.emulated
        self.agents_per_batch = self.driver_env.num_agents * len(creators)
        self.num_workers = num_workers
        self._worlds = len(creators)
        memory = _allocated(self.driver_env, self.agents_per_batch)
        self._arrays = _arrays(memory, 0, self.agents_per_batch)
        share = len(creators) // num_workers
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        try:
            for number in range(num_workers):
                self._start(creators[number * share : (number + 1) * share], memory)
        except BaseException:
            self.close()
            raise

    def async_reset(self, seed: int | list[int] = 0) -> None:
        """Begin resetting every world to its start.

        Args:
            seed: of each world, or of the first, from which they count up; worlds with a start of their own ignore it.

        Raises:
            UserError: a worker has ended.
        """
        seeds = pufferlib.vector.make_seeds(seed, self._worlds)
        share = self._worlds // self.num_workers
        for number in range(self.num_workers):
            self._tell(number, seeds[number * share : (number + 1) * share])

    def send(self, actions: np.ndarray) -> None:
        """Begin a tick: (slots, heads) int64, in the order of the worlds (UserError: a worker has ended)."""
        self._arrays.actions[:] = actions
        for number in range(self.num_workers):
            self._tell(number, None)

    def recv(self) -> tuple:
        """Return what PufferLib's backends do; the next tick overwrites the arrays (UserError: a worker has ended)."""
        infos = [info for number in range(self.num_workers) for info in self._answer(number)]
        seen = self._arrays
        slots = np.arange(self.agents_per_batch)
        return seen.observations, seen.rewards, seen.terminals, seen.truncations, infos, slots, seen.masks

    def close(self) -> None:
        """End the workers."""
        for process in self._processes:
            process.kill()  # they have nothing to save
        for process, connection in zip(self._processes, self._connections, strict=True):
            process.join()
            connection.close()
        self._processes, self._connections = [], []

    def _start(self, creators: Sequence[Callable[[], Any]], memory: _Memory) -> None:
        slots = self.agents_per_batch // self.num_workers
        context = worker_context()
        here, there = context.Pipe()
        arguments = (os.getpid(), creators, memory, len(self._processes) * slots, slots, there)
        process = context.Process(target=_work, args=arguments, daemon=True)
        with interrupts_held_back():
            process.start()
        there.close()  # so that only the worker holds it, and its death can be seen here
        self._connections.append(here)
        self._processes.append(process)

    def _tell(self, number: int, message: list[int] | None) -> None:
        try:
            self._connections[number].send(message)
        except OSError:
            raise self._ended(number) from None

    def _answer(self, number: int) -> list[Any]:
        connection, process = self._connections[number], self._processes[number]
        if connection not in wait([connection, process.sentinel]):
            raise self._ended(number)
        try:
            infos: list[Any] = connection.recv()
        except (EOFError, OSError):
            raise self._ended(number) from None
        return infos

    def _ended(self, number: int) -> UserError:
        process = self._processes[number]
        process.join()
        killed = process.exitcode == -9
        advice = "memory probably ran out, try fewer --rollout.num-envs" if killed else "its error stands above"
        return UserError(
            f"worker process {number} ended with exit code {process.exitcode}: {advice}; the last checkpoint is good"
        )


def _allocated(world: Any, slots: int) -> _Memory:
    """Allocate the arrays of as many slots, with observations and actions as in a world."""
    seen, chosen, context = world.single_observation_space, world.single_action_space, worker_context()
    flag = (np.dtype(bool), ())
    kinds = {
        "observations": (seen.dtype, seen.shape),
        "rewards": (np.dtype(np.float32), ()),
        **dict.fromkeys(("terminals", "truncations", "masks"), flag),
        "actions": (chosen.dtype, chosen.shape),
    }
    return {
        name: (context.RawArray("B", int(np.prod((slots, *shape))) * dtype.itemsize), dtype, (slots, *shape))
        for name, (dtype, shape) in kinds.items()
    }


def _arrays(memory: _Memory, first: int, count: int) -> SimpleNamespace:
    whole = {name: np.frombuffer(block, dtype).reshape(shape) for name, (block, dtype, shape) in memory.items()}
    return SimpleNamespace(**{name: array[first : first + count] for name, array in whole.items()})


def _work(
    parent: int, creators: Sequence[Callable[[], Any]], memory: _Memory, first: int, slots: int, pipe: Connection
) -> None:
    """Build worlds and play them whenever the parent asks, until it ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the workers as well; the parent decides what it means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent)
    worlds, arrays = serial_worlds(creators), _arrays(memory, first, slots)
    arrays.masks[:] = True
    worlds._assign_buffers(arrays)
    while True:
        seeds = pipe.recv()
        if seeds is None:
            worlds.send(arrays.actions)
        else:
            worlds.async_reset(seeds)
        *_, infos, _, _ = worlds.recv()
        pipe.send(infos)


class RayWorlds:
    """Worlds in Ray workers, each of which reserves a core; workers are spread over machines if possible."""

    def __init__(self, creators: Sequence[Callable[[], Any]], num_workers: int, maps: Path):
        """Start the workers and build their worlds; call `ray_cluster.connect` first.

        Args:
            creators: each builds one world; their code and files must be available on all machines.
            maps: absolute path of the maps folder; must exist on each worker's machine.

        Raises:
            UserError: a worker cannot start or does not see the maps.
        """
        import ray

        actor: Any = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_Worker)
        self._workers: list[Any] = [actor.remote() for _ in range(num_workers)]
        share = len(creators) // num_workers
        self._pending = [
            worker.start.remote(creators[number * share : (number + 1) * share], maps)
            for number, worker in enumerate(self._workers)
        ]
        try:
            self.driver_env = creators[0]()  # meanwhile
            self._wait(START_SECONDS)
        except BaseException:
            self.close()
            raise
        self.emulated = self.driver_env.emulated
        self.agents_per_batch = self.driver_env.num_agents * len(creators)

    def async_reset(self) -> None:
        """Begin resetting every world to its start."""
        self._pending = [worker.reset.remote() for worker in self._workers]

    def send(self, actions: np.ndarray) -> None:
        """Begin a tick: (slots, heads) int64, in the order of the worlds."""
        shares = np.split(actions, len(self._workers))
        self._pending = [worker.step.remote(share) for worker, share in zip(self._workers, shares, strict=True)]

    def recv(self) -> tuple:
        """Return what PufferLib's backends do, in the order of the worlds (UserError: a worker has ended)."""
        *seen, infos, _, masks = zip(*self._wait(), strict=True)
        everyones = [info for of_worker in infos for info in of_worker]
        return *map(np.concatenate, seen), everyones, np.arange(self.agents_per_batch), np.concatenate(masks)

    def close(self) -> None:
        """End the workers."""
        import ray

        for worker in self._workers:
            ray.kill(worker)
        self._workers = []

    def _wait(self, seconds: float | None = None) -> list[Any]:
        """Return the results of all workers, in order."""
        import ray

        results = []
        for result in self._pending:
            try:
                results.append(ray.get(result, timeout=seconds))
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, UserError):
                    raise error.cause from None
                raise
            except ray.exceptions.GetTimeoutError:
                raise no_worker("wait for other jobs, or use fewer --rollout.num-workers") from None
            except ray.exceptions.RayError as error:
                raise UserError(
                    f"a Ray worker ended ({type(error).__name__}: it was killed, ran out of memory, lost its "
                    "machine, or cannot import this project there): the last checkpoint is good"
                ) from None
        return results


class _Worker:
    """Some worlds in a separate process; each call returns the same as `pufferlib.vector.Serial.recv`."""

    def start(self, creators: Sequence[Callable[[], Any]], maps: Path) -> None:
        # Not in __init__: Ray reports errors there as a dead worker.
        if not maps.is_dir():
            raise UserError(
                f"a Ray worker on {socket.gethostname()} does not see the maps in {maps}: put --env.maps-dir on a file "
                "system that all machines share"
            )
        self.worlds = serial_worlds(creators)

    def reset(self) -> tuple:
        self.worlds.async_reset()
        return self.worlds.recv()

    def step(self, actions: np.ndarray) -> tuple:
        self.worlds.send(actions)
        return self.worlds.recv()


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
    """Connect to the Ray cluster, if these settings need one (UserError: it cannot be used, or has too few cores)."""
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
