"""Worlds in worker processes of this machine, with the interface of PufferLib's own backends.

PufferLib 1.0.1 has such a backend, but its workers occupy a core each while they wait, it builds every world in the
main process as well, and it waits forever for a worker that has died.
"""

import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pufferlib.vector

from common.user_error import UserError
from reinforcement_learning.game.environment import serial_worlds
from reinforcement_learning.processes import (
    end_with_parent,
    interrupts_held_back,
    name_temporary_folder,
    worker_context,
)

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
        """Start the workers; each builds its worlds.

        Args:
            num_workers: processes; they share the worlds evenly.
        """
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
        """Wait for all workers and return the same as PufferLib's backends; the next tick overwrites the arrays.

        Raises:
            UserError: a worker has ended.
        """
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
