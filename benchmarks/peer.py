"""Worlds of the peer's stack: the game's and PufferLib's own code, playing the same ticks as a training run."""

import functools
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pufferlib.vector

from reinforcement_learning.game.environment import EpisodeStart, make_plain_environment
from reinforcement_learning.game.process_worlds import ProcessWorlds
from reinforcement_learning.game.serial_worlds import serial_worlds
from reinforcement_learning.settings import Settings
from user_error import UserError


class RepeatedWorlds:
    """A run's worlds, and plain worlds that repeat each of their ticks with the same seeds and actions.

    Use it in place of the run's worlds, and call `repeat` after each tick. Both kinds of worlds run alternately, in as
    many processes.

    Attributes:
        seconds: wall-clock seconds that the plain worlds took since the attribute was last set.
    """

    def __init__(self, worlds: Any, plain: Any, starts: Sequence[EpisodeStart]):
        """Repeat the given worlds, which have not been reset.

        Args:
            worlds: of the run.
            plain: from `plain_worlds`.
            starts: of the run's worlds, each at the start of an episode.
        """
        self.worlds, self.plain = worlds, plain
        self.seconds = 0.0
        self._starts = starts
        self._actions: np.ndarray

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worlds, name)

    def async_reset(self) -> None:
        """Start the first episodes of both kinds of worlds."""
        self.worlds.async_reset()
        self.plain.async_reset([start.first_seed for start in self._starts])
        self.plain.recv()

    def send(self, actions: np.ndarray) -> None:
        """Start the run's next tick."""
        self._actions = actions.copy()
        self.worlds.send(actions)

    def recv(self) -> Any:
        """Wait for the results of the run's tick."""
        self._results = self.worlds.recv()
        return self._results

    def repeat(self) -> None:
        """Play the last tick in the plain worlds.

        Raises:
            UserError: their observations or rewards differ from those of the run's worlds.
        """
        start = time.perf_counter()
        self.plain.send(self._actions)
        results = self.plain.recv()
        self.seconds += time.perf_counter() - start
        for own, others in zip(self._results[:2], results[:2], strict=True):
            if not np.array_equal(own, others):
                raise UserError("plain and vectorised worlds differ: run tests/reinforcement_learning/game")


def plain_worlds(agent: str, settings: Settings, maps: Path, like: Any) -> Any:
    """Build plain worlds that run in as many processes as others.

    Args:
        agent: whose reward is used.
        settings: of the worlds and tasks.
        maps: a finished folder from `ensure_maps`.
        like: vectorised worlds from `make_worlds`.

    Raises:
        UserError: the others run on a Ray cluster.
    """
    creators: list[Callable[[], Any]] = [
        functools.partial(make_plain_environment, agent, settings.env, settings.task, maps)
    ] * settings.rollout.num_envs
    gc.collect()
    gc.freeze()  # worker processes inherit the run's objects, which plain worlds have nothing to do with
    if type(like) is pufferlib.vector.Serial:
        worlds = serial_worlds(creators)
    elif isinstance(like, ProcessWorlds):  # not PufferLib's, whose waiting workers would slow down the run
        worlds = ProcessWorlds(creators, like.num_workers)
    else:
        raise UserError("this benchmark needs worlds on this machine: --rollout.vectorization auto")
    gc.collect()
    gc.freeze()  # otherwise garbage collections over all plain tiles would be charged to the run's worlds
    return worlds
