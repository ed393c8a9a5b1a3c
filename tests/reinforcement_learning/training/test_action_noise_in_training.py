"""The random numbers of a training run's actions depend on its worlds' positions in their episodes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.base import RecurrentPolicy
from reinforcement_learning.game.environment import EpisodeStart
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.tiny_policies import tiny_entrant
from tests.watched import stepper

TICKS = 50
Place = tuple[int, int, int]
"""First seed, number of the episode, tick."""


class Played:
    """The results of some ticks in some worlds.

    Attributes:
        noise: of each world's agents, at each position in its episodes, (agents, heads).
        starts: that take the worlds to their final state.
    """

    def __init__(self, env: EnvironmentSettings, task: TaskSettings, maps: Path, starts: list[EpisodeStart]):
        self.env, self.task, self.maps = env, task, maps
        self.noise: dict[Place, np.ndarray] = {}
        self.starts = starts

    def play(self, policy: RecurrentPolicy, ticks: int) -> None:
        player = stepper(policy, self.env, self.task, self.maps, self.starts)
        worlds = player.worlds
        for _ in range(ticks):
            noise = np.split(player.action_noise(), len(worlds.envs))
            for world, numbers in zip(worlds.envs, noise, strict=True):
                episode = world.episodes.episode
                if not world.done:
                    self.noise[episode.first_seed, episode.number, world.game.realm.tick] = numbers
            decision = player.decide()
            actions = decision.over_slots(decision.sample(player.action_noise()))
            player.begin(decision, actions)
            player.end(actions)
        self.starts = player.journal.starts()
        worlds.close()


@pytest.fixture(scope="module")
def env(small_world: EnvironmentSettings) -> EnvironmentSettings:
    return replace(small_world, horizon=20)


@pytest.fixture(scope="module")
def policy(env: EnvironmentSettings, task: TaskSettings, maps: Path) -> RecurrentPolicy:
    torch.manual_seed(0)
    return tiny_entrant(env, task, maps).policy


@pytest.fixture(scope="module")
def together(env: EnvironmentSettings, task: TaskSettings, maps: Path, policy: RecurrentPolicy) -> Played:
    """Two worlds, played through several episodes."""
    played = Played(env, task, maps, first_episodes(0, 2))
    played.play(policy, TICKS)
    return played


def same(one: dict[Place, np.ndarray], other: dict[Place, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[place], other[place]) for place in one)


def test_every_place_has_numbers_of_its_own_and_a_world_has_the_same_alone(
    together: Played, env: EnvironmentSettings, task: TaskSettings, maps: Path, policy: RecurrentPolicy
) -> None:
    assert {number for _, number, _ in together.noise} == {0, 1, 2}
    numbers = np.stack(list(together.noise.values()))
    assert len(np.unique(numbers)) == numbers.size
    alone = Played(env, task, maps, first_episodes(0, 2)[1:])
    alone.play(policy, TICKS)
    (seed,) = {seed for seed, *_ in alone.noise}
    assert same(alone.noise, {place: numbers for place, numbers in together.noise.items() if place[0] == seed})


def test_numbers_go_on_in_the_middle_of_an_episode(
    env: EnvironmentSettings, task: TaskSettings, maps: Path, policy: RecurrentPolicy, together: Played
) -> None:
    parts = Played(env, task, maps, first_episodes(0, 2))
    parts.play(policy, TICKS // 2)
    assert all(start.number == 1 and len(start.actions) > 2 for start in parts.starts), (
        "not inside an episode: too easy"
    )
    before = len(parts.noise)
    parts.play(policy, TICKS // 2)
    common = parts.noise.keys() & together.noise.keys()
    assert len(common) > before + 10
    assert same({place: parts.noise[place] for place in common}, {place: together.noise[place] for place in common})
