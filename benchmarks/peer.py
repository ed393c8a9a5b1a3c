"""Worlds of the peer's stack: the game's and PufferLib's own code, playing the same ticks as a training run."""

import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pufferlib.vector

from common.user_error import UserError
from reinforcement_learning.game.environment import EpisodeStart, make_plain_environment, serial_worlds
from reinforcement_learning.game.vectorization import ProcessWorlds
from reinforcement_learning.settings import Settings


class RecordedWorlds:
    """One group of a run's worlds, which keeps the actions and rewards of each tick for `Repetition`.

    Use it in place of the run's own.

    Attributes:
        actions: of each tick since the list was last cleared.
    """

    def __init__(self, worlds: Any):
        self.worlds = worlds
        self.actions: list[np.ndarray] = []
        self.rewards: list[np.ndarray] = []
        self.observations: np.ndarray

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worlds, name)

    def send(self, actions: np.ndarray) -> None:
        """Begin the run's next tick."""
        self.actions.append(actions.copy())
        self.worlds.send(actions)

    def recv(self) -> Any:
        """Wait for the results of the run's tick, or of its reset."""
        results = self.worlds.recv()
        self.observations = results[0]
        self.rewards += [results[1].copy()] if len(self.rewards) < len(self.actions) else []
        return results


class Repetition:
    """Other worlds that repeat the ticks of a run's worlds with the same seeds and actions.

    Attributes:
        seconds: wall-clock seconds that each kind of other worlds took since the clock was last reset.
    """

    def __init__(self, groups: Sequence[RecordedWorlds], others: Mapping[str, Any], starts: Sequence[EpisodeStart]):
        """Start the first episodes in the other worlds.

        Args:
            others: kinds of worlds by name, each as many as the run has.
        """
        self.groups, self.others = groups, others
        self.reset_clock()
        for worlds in others.values():
            worlds.async_reset([start.first_seed for start in starts])
            worlds.recv()

    def reset_clock(self) -> None:
        """Set all seconds to zero."""
        self.seconds = dict.fromkeys(self.others, 0.0)

    def repeat(self) -> None:
        """Play all ticks that the run has played since the last call; no tick of the run may be under way.

        Raises:
            UserError: the rewards of any tick, or the observations after the last one, differ from those of the run.
        """
        for kind, worlds in self.others.items():
            observations = np.empty(0)
            for actions, rewards in zip(self._all("actions"), self._all("rewards"), strict=True):
                start = time.perf_counter()
                worlds.send(actions)
                observations, their_rewards, *_ = worlds.recv()
                self.seconds[kind] += time.perf_counter() - start
                _check("rewards", kind, rewards, their_rewards)
            everyones = np.concatenate([group.observations for group in self.groups])
            _check("observations", kind, everyones, observations)
        for group in self.groups:
            group.actions.clear()
            group.rewards.clear()

    def _all(self, name: str) -> list[np.ndarray]:
        ticks = zip(*(getattr(group, name) for group in self.groups), strict=True)
        return [np.concatenate(parts) for parts in ticks]


def _check(what: str, kind: str, own: np.ndarray, others: np.ndarray) -> None:
    if not np.array_equal(own, others):
        raise UserError(f"{what} of the run's and of {kind} worlds differ: run tests/reinforcement_learning/game")


def plain_worlds(agent: str, settings: Settings, maps: Path, like: Sequence[Any]) -> Any:
    """Build plain worlds that run in as many processes as others.

    Args:
        like: vectorised worlds from `make_groups`.

    Raises:
        UserError: the others run on a Ray cluster.
    """
    creators: list[Callable[[], Any]] = [
        functools.partial(make_plain_environment, agent, settings.env, settings.task, maps)
    ] * settings.rollout.num_envs
    gc.collect()
    gc.freeze()  # worker processes inherit the run's objects, which plain worlds have nothing to do with
    if type(like[0]) is pufferlib.vector.Serial:
        worlds = serial_worlds(creators)
    elif isinstance(like[0], ProcessWorlds):  # not PufferLib's, whose waiting workers would slow down the run
        worlds = ProcessWorlds(creators, sum(group.num_workers for group in like))
    else:
        raise UserError("this benchmark needs worlds on this machine: --rollout.vectorization auto")
    gc.collect()
    gc.freeze()  # otherwise garbage collections over all plain tiles would be charged to the run's worlds
    return worlds
