"""Which policies play together in which world, and which episodes are played in parallel."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.environment import map_of_episode
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

WORLDS_TOGETHER = 4  # affects the results: rounding depends on which agents are batched together


@dataclass(frozen=True)
class Contest:
    """Policies that share a world, and that world.

    Attributes:
        entrants: policies that share each world.
        env: settings of the world.
        task: settings of the tasks.
        maps: a finished folder from `ensure_maps`.
        device: where the networks run.
        random_actions: probability that an agent acts at random in a tick, by lot among its legal options.
    """

    entrants: tuple[Entrant, ...]
    env: EnvironmentSettings
    task: TaskSettings
    maps: Path
    device: torch.device
    random_actions: float = 0

    def pool(self, worlds: int, specs: Sequence[TaskSpec] | None = None) -> PolicyPool:
        """Build worlds to play in; `specs` as in `PolicyPool`.

        Raises:
            UserError: an entrant does not fit the world.
        """
        return PolicyPool(
            self.entrants, self.env, self.task, self.maps, self.device, worlds, specs, self.random_actions
        )


@dataclass(frozen=True)
class Group:
    """Episodes of one seed that are played in parallel."""

    seed: int
    numbers: tuple[int, ...]


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
