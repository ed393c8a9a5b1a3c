"""`env.food_regrowth` decides how fast eaten food grows back in the running game."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nmmo.lib.material import Foilage

from reinforcement_learning.game.environment import make_environment
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.conftest import AGENT

TICKS, EATEN = 12, 150


def regrown(env: EnvironmentSettings, task: TaskSettings, maps: Path) -> float:
    """Return the share of eaten tiles that have food again after some ticks."""
    world = make_environment(AGENT, env, task, maps)
    world.reset(seed=3)
    ground = world.env.game.realm.map
    tiles = [tile for tile in ground.tiles.ravel() if isinstance(tile.material, Foilage)][:EATEN]
    for tile in tiles:
        ground.harvest(*tile.pos)
    for _ in range(TICKS):
        ground.step()
    assert len(tiles) > 100
    return float(np.mean([not tile.depleted for tile in tiles]))


@pytest.mark.parametrize(("rate", "chance"), [(0, 0), (1, 0.025), (4, 0.1), (40, 1)])
def test_eaten_food_grows_back_at_the_rate(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path, rate: float, chance: float
) -> None:
    expected = 1 - (1 - chance) ** TICKS
    result = regrown(replace(small_world, food_regrowth=rate), task, maps)
    assert result == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 100))
