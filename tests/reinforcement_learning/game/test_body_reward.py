"""Rewards for the state of the body equal those from the engine's own players; eaten food grows back at its rate."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from nmmo.lib.material import Foilage

import agent_zoo
from reinforcement_learning.game.body_reward import drive
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.settings import RewardSettings
from tests.conftest import AGENT, random_legal_actions


def test_the_drive_is_the_papers() -> None:
    assert drive(np.ones(3)) == 0
    assert drive(np.zeros(3)) == pytest.approx(3**0.5)
    assert drive(np.array([0.5, 1.0, 0.8])) == pytest.approx((0.5**4 + 0.2**4) ** 0.5)


@pytest.mark.parametrize(
    "agent",
    [pytest.param(name, marks=() if name == "neurips23_start_kit" else pytest.mark.slow) for name in agent_zoo.names()],
)
def test_agents_are_paid_for_their_bodies(small_world, task, maps, agent: str) -> None:
    """The same game with three rewards: the agent's own, for the body alone, and both."""
    settings = [
        RewardSettings(),
        RewardSettings(task_coef=0, bonus_coef=0, hp_coef=2, drive_coef=0.5),
        RewardSettings(task_coef=1, bonus_coef=1, hp_coef=2, drive_coef=0.5),
    ]
    env = replace(small_world, spawn_immunity=0)
    worlds = [make_environment(agent, env, task, maps, reward=setting) for setting in settings]
    deaths = changes = 0
    for before, paid, after, died in play(worlds):
        for slot, (was, now) in enumerate(zip(before, after, strict=True)):
            if was is None:
                continue
            expected = 2 * (now[0] - was[0]) + 0.5 * (drive(was) - drive(now))
            plain, body, both = (float(setting[slot]) for setting in paid)
            assert body == pytest.approx(expected, abs=1e-5)
            assert both == pytest.approx(plain + expected, abs=1e-5)
            changes += expected != 0
            deaths += died[slot]
    assert changes > 100 and deaths > 0


def play(worlds: list) -> Iterator[tuple]:
    """Play the same actions in all worlds; yield bodies before, rewards in each, bodies after, and deaths."""
    layout, random = observation_layout(worlds[0]), np.random.default_rng(0)
    for world in worlds:
        world.reset(seed=3)
    game = worlds[0].env.game
    while game.agents:
        before = [body(game, agent) if agent in game.agents else None for agent in game.possible_agents]
        seen = worlds[0].obs.view(worlds[0].obs_dtype)[:, 0]
        actions = random_legal_actions(seen, layout, random)
        played = [world.step(actions) for world in worlds]
        paid = [list(item[1].values()) for item in played]
        yield before, paid, [body(game, agent) for agent in game.possible_agents], list(played[0][2].values())


def body(game, agent: int) -> np.ndarray:
    player = game.dead_this_tick.get(agent) or game.realm.players.get(agent)
    if player is None:
        return np.zeros(3)
    return np.array([getattr(player.resources, name).val for name in ("health", "food", "water")]) / 100


TICKS, EATEN = 12, 150


@pytest.mark.parametrize(("rate", "chance"), [(0, 0), (1, 0.025), (4, 0.1), (40, 1)])
def test_eaten_food_grows_back_at_the_rate(small_world, task, maps, rate: float, chance: float) -> None:
    world = make_environment(AGENT, replace(small_world, food_regrowth=rate), task, maps)
    world.reset(seed=3)
    ground = world.env.game.realm.map
    tiles = [tile for tile in ground.tiles.ravel() if isinstance(tile.material, Foilage)][:EATEN]
    for tile in tiles:
        ground.harvest(*tile.pos)
    for _ in range(TICKS):
        ground.step()
    expected, result = 1 - (1 - chance) ** TICKS, np.mean([not tile.depleted for tile in tiles])
    assert len(tiles) > 100 and result == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 100))
