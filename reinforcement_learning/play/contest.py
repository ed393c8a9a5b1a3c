"""Which policies play together in which world, which episodes are played side by side, and what plays them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.environment import map_of_episode
from reinforcement_learning.game.plain_world import Protocol
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.workers import WORLDS_TOGETHER
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

ORIGINAL_WORLDS = 6
"""Worlds of the published evaluations, each of which played its share of the episodes in turn."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Contest:
    """Policies that share a world, and that world."""

    entrants: tuple[Entrant, ...]
    env: EnvironmentSettings
    task: TaskSettings
    maps: Path  # a finished folder from `ensure_maps`
    device: torch.device
    random_actions: float = 0  # probability that an agent acts at random in a tick, at random among its legal options
    protocol: Protocol = "toolkit"
    """Original: all agents obey the start kit's restrictions, seats are the same in all episodes of a seed, and
    memories are never cleared, as in the published evaluations."""

    @property
    def rules(self) -> dict[str, str]:
        """How the protocol is named in results; nothing for the toolkit's, as before there was another."""
        return {} if self.protocol == "toolkit" else {"protocol": self.protocol}

    def groups(self, seed: int, episodes: int) -> "list[Group]":
        """Return which episodes are played together; this depends only on seed, number of episodes and protocol."""
        if self.protocol == "toolkit":
            return groups(seed, episodes)
        return [
            Group(seed, tuple(range(world, episodes, ORIGINAL_WORLDS)), in_turn=True)
            for world in range(min(ORIGINAL_WORLDS, episodes))
        ]

    def pool(self, worlds: int, specs: Sequence[TaskSpec] | None = None) -> PolicyPool:
        """Build worlds to play in; `specs` as in `PolicyPool`.

        Raises:
            UserError: an entrant does not fit the world.
        """
        world = (self.entrants, self.env, self.task, self.maps, self.device)
        return PolicyPool(*world, worlds, specs, self.random_actions, self.protocol)


@dataclass(frozen=True)
class Group:
    """Episodes of one seed that are played in parallel, or in turn in one world."""

    seed: int
    numbers: tuple[int, ...]
    in_turn: bool = field(default=False, kw_only=True)

    @property
    def rounds(self) -> list[tuple[int, ...]]:
        """The numbers of the episodes that are played in parallel, one round after the other."""
        return [(number,) for number in self.numbers] if self.in_turn else [self.numbers]


def maps_of(env: EnvironmentSettings, seeds: Iterable[int], episodes: int) -> set[int]:
    """Return the numbers of the maps used by the first `episodes` episodes of each seed."""
    return set().union(*(maps_of_group(env, Group(seed, tuple(range(episodes)))) for seed in seeds))


def maps_of_group(env: EnvironmentSettings, group: Group) -> set[int]:
    """Return the numbers of the maps used by a group of episodes."""
    (first,) = first_episodes(group.seed, 1)
    return {map_of_episode(env, first.first_seed, number) for number in group.numbers}


def groups(seed: int, episodes: int) -> list[Group]:
    """Return which episodes are played in parallel; the groups depend only on seed and number of episodes."""
    firsts = range(0, episodes, WORLDS_TOGETHER)
    return [Group(seed, tuple(range(first, min(first + WORLDS_TOGETHER, episodes)))) for first in firsts]


Job = Callable[[PolicyPool, Group], Iterable[Result]]
"""Plays a group of episodes, and yields what it tells."""


@dataclass(frozen=True)
class PlayedAgain:
    """A group of episodes starts over, because its worker was lost: what the group has told so far does not count."""

    reason: str  # one line for the user


def group_player(contest: Contest, specs: Sequence[TaskSpec], job: Job) -> Callable[[Group], Iterable]:
    """Return what runs a job for one group of episodes after the other, with one pool per size of group.

    It gives the results of the job for a group (UserError: an entrant does not fit the world).
    """
    pool = functools.cache(lambda worlds: contest.pool(worlds, specs))
    return lambda group: job(pool(len(group.rounds[0])), group)
