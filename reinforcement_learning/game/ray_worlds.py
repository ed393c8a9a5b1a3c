"""Worlds spread over the machines of a Ray cluster, with the interface of PufferLib's own backends.

PufferLib 1.0.1 has a backend for Ray, but it gives every worker the seeds of all worlds, discards errors in a tick, and
lets Ray put all workers on one machine.
"""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.ray_cluster import cores, free_cores
from common.user_error import UserError
from reinforcement_learning.game.environment import serial_worlds

_START_SECONDS = 300


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
            self._wait(_START_SECONDS)
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
        """Wait for all workers and return the same as PufferLib's backends, in the order of the worlds.

        Raises:
            UserError: a worker has ended.
        """
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
                raise UserError(
                    f"a Ray worker did not start within {seconds:.0f} s; of the cluster's {cores()} cores "
                    f"{free_cores()} are free: wait for other jobs, or use fewer --rollout.num-workers"
                ) from None
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
