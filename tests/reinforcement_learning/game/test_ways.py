"""Tasks to go to a side of the map, and how long a policy is shown its task."""

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nmmo
import numpy as np
import pytest
import torch

from agent_zoo.observation import pack
from agent_zoo.observation_masking import ObservationMask
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.game.fast_game.ways import (
    REWARD,
    SIDES,
    STEPS_FROM_WATER,
    TILES,
    GoToWater,
    share_of_way,
    share_to_water,
)
from reinforcement_learning.game.maps import MAP_BORDER, ensure_maps
from reinforcement_learning.game.tasks import curriculum
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.conftest import AGENT

SHOWN_FOR = 3
INTERRUPT = 6
CONFIG = SimpleNamespace(MAP_BORDER=MAP_BORDER, MAP_CENTER=128)
MIDDLE = (MAP_BORDER + 64, MAP_BORDER + 64)
STEPS = {"north": (-1, 0), "south": (1, 0), "east": (0, 1), "west": (0, -1)}


def begun(env: EnvironmentSettings, curriculum: str, maps: Path, seed: int = 5) -> tuple[Any, np.ndarray, int]:
    """A world, actions with which nobody does anything, (agents, heads), and the column of moves in them."""
    world = make_environment(AGENT, env, TaskSettings(curriculum=curriculum, embedding_size=16), maps)
    heads = observation_layout(world).heads
    world.reset(seed=seed)
    still = np.array([[head.noop or 0 for head in heads]] * len(world.possible_agents))
    return world, still, [head.name for head in heads].index("Move.Direction")


def water_among(tiles: np.ndarray) -> np.ndarray:
    """Places of water in a rectangle of tiles, (places, 2)."""
    return np.argwhere([[tile.material.index == nmmo.lib.material.Water.index for tile in row] for row in tiles])


@pytest.mark.parametrize("side", SIDES)
def test_only_steps_towards_the_side_count_and_near_the_edge_the_way_is_shorter(side: str) -> None:
    for way, (row, column) in STEPS.items():
        place = (MIDDLE[0] + 8 * row, MIDDLE[1] + 8 * column)
        assert share_of_way(place, MIDDLE, side, TILES, CONFIG) == (8 / TILES if way == side else 0)
    row, column = STEPS[side]
    edge = (MIDDLE[0] + row * 64, MIDDLE[1] + column * 64)
    start = (edge[0] - 4 * row, edge[1] - 4 * column)
    assert share_of_way(edge, start, side, TILES, CONFIG) == 1
    assert share_of_way((edge[0] - 2 * row, edge[1] - 2 * column), start, side, TILES, CONFIG) == 0.5


@pytest.mark.parametrize("side", SIDES)
def test_the_way_ends_on_the_last_tile_of_a_side_that_can_be_walked_on(
    side: str, small_world: EnvironmentSettings, maps
) -> None:
    world, *_ = begun(small_world, "four_ways", maps)
    game, (row, column) = world.env.game, STEPS[side]
    walkable = np.flatnonzero(game.realm.map.habitable_tiles.any(axis=1))
    edge, middle = (walkable[-1] if row + column > 0 else walkable[0]), game.config.MAP_SIZE // 2
    end = (edge, middle) if row else (middle, edge)
    start, before = ((end[0] - steps * row, end[1] - steps * column) for steps in (4, 1))
    assert share_of_way(end, start, side, TILES, game.config) == 1
    assert share_of_way(before, start, side, TILES, game.config) == 0.75


@pytest.mark.parametrize(("name", "number"), [("two_ways", 2), ("four_ways", 4)])
def test_curricula_hold_opposed_goals(name: str, number: int, small_world: EnvironmentSettings) -> None:
    specs = curriculum(TaskSettings(curriculum=name), small_world)
    assert [spec.eval_fn_kwargs["side"] for spec in specs] == list(SIDES[:number])


def test_the_reward_is_the_way_gone(small_world: EnvironmentSettings, maps) -> None:
    """Agents walk at random; what each is paid is the change of its share of the way."""
    world, steps, move = begun(small_world, "four_ways", maps)
    game = world.env.game
    starts = {agent: player.pos for agent, player in game.realm.players.items()}
    rng, gone = np.random.default_rng(0), 0.0
    for _ in range(12):
        steps[:, move] = rng.integers(4, size=len(steps))
        world.step(steps)
    for agent, player in game.realm.players.items():
        task = game.agent_task_map[agent][0]
        side, tiles = task._eval_fn.kwargs["side"], task._eval_fn.kwargs["tiles"]
        own = share_of_way(player.pos, starts[agent], side, tiles, game.config)
        assert task._progress == own or task.completed
        assert task.reward_multiplier == REWARD
        gone += own
    assert gone > 0


def test_a_task_is_hidden_after_its_first_ticks_and_nothing_else_is(small_world: EnvironmentSettings, maps) -> None:
    world, still, _ = begun(small_world, "two_ways", maps, seed=3)
    layout, mask = observation_layout(world), ObservationMask.of({"task_shown_for": SHOWN_FOR})
    for tick in range(2 * SHOWN_FOR):
        observation = pack(world.obs.view(world.obs_dtype)[:, 0], layout)
        masked = mask.apply(observation, layout)
        assert torch.equal(masked.task, observation.task if tick < SHOWN_FOR else torch.zeros_like(observation.task))
        assert observation.task.any()
        others = [part.name for part in fields(masked) if part.name != "task"]
        assert all(getattr(masked, name) is getattr(observation, name) for name in others)
        world.step(still)


def test_an_interrupt_moves_everybody_and_ways_begin_there(small_world: EnvironmentSettings, maps) -> None:
    """Nothing is paid up to the interrupt; later, only the way from the new place."""
    moved, steps, move = begun(replace(small_world, interrupt=INTERRUPT), "four_ways", maps)
    undisturbed, *_ = begun(small_world, "four_ways", maps)
    rng, starts, first, stay = np.random.default_rng(0), {}, None, steps[0, move]
    for tick in range(3 * INTERRUPT):
        players = moved.env.game.realm.players
        if tick == INTERRUPT:
            before = {agent: player.pos for agent, player in players.items()}
            steps[:, move] = stay  # so that nobody leaves the new place at once
        moved.step(steps)
        if tick < INTERRUPT:
            undisturbed.step(steps)
            assert np.array_equal(moved.obs, undisturbed.obs)
        if tick == INTERRUPT:
            starts = {agent: player.pos for agent, player in players.items()}
            apart = [max(abs(a - b) for a, b in zip(before[agent], starts[agent], strict=True)) for agent in starts]
            assert max(apart) > TILES / 2 and np.mean(np.array(apart) > 0) > 0.9
        for agent, player in players.items():
            task = moved.env.game.agent_task_map[agent][0]
            side, tiles = task._eval_fn.kwargs["side"], task._eval_fn.kwargs["tiles"]
            own = share_of_way(player.pos, starts[agent], side, tiles, moved.env.game.config) if starts else 0
            assert task._progress == own or task.completed
            first = first or task._progress
        steps[:, move] = rng.integers(4, size=len(steps))
    assert first


def test_the_way_to_water_is_to_the_nearest_and_ends_beside_it() -> None:
    water = np.array([(10, 14), (10, 30)])
    assert share_to_water((10, 10), (10, 10), water) == 0
    assert share_to_water((10, 11), (10, 10), water) == pytest.approx(1 / 3)
    assert share_to_water((10, 13), (10, 10), water) == 1
    assert share_to_water((10, 29), (10, 10), water) == 1, "other water in view is as good"
    assert share_to_water((10, 8), (10, 10), water) == 0
    assert share_to_water((10, 20), (10, 13), water) == 0, "the way began beside water"
    assert share_to_water((10, 13), (10, 10), np.empty((0, 2))) == 0


@pytest.mark.parametrize("interrupt", [None, INTERRUPT])
def test_agents_are_paid_for_the_way_to_water_that_they_had_in_view(
    small_world: EnvironmentSettings, maps, interrupt: int | None
) -> None:
    """Agents walk at random; water that comes into view later does not count."""
    world, steps, move = begun(replace(small_world, interrupt=interrupt), "to_water", maps)
    game, rng, paid, stay = world.env.game, np.random.default_rng(0), 0.0, steps[0, move]
    starts, water = {}, {}
    for tick in range(3 * INTERRUPT):
        begins = tick == (interrupt or 0)
        steps[:, move] = stay if begins else rng.integers(4, size=len(steps))
        world.step(steps)
        if begins:  # nobody has left the place since
            for agent, player in game.realm.players.items():
                row, column = starts[agent] = player.pos
                view = game.realm.map.tiles[row - 7 : row + 8, column - 7 : column + 8]
                water[agent] = water_among(view) + np.array([row - 7, column - 7])
        state = game._gamestate_generator.generate(game.realm, game.obs)
        for agent, player in game.realm.players.items():
            (task,) = game.agent_task_map[agent]
            own = share_to_water(player.pos, starts[agent], water[agent]) if starts else 0
            assert task._progress == own or task.completed
            where = SimpleNamespace(agents=(agent,), health=np.ones(1), row=[player.pos[0]], col=[player.pos[1]])
            assert GoToWater(state, where) == (own if state.current_tick > state.config.INTERRUPTED_AT else 0)
            paid += task._progress
    assert paid > 0 and sum(len(seen) > 0 for seen in water.values()) > 1


def test_the_way_to_water_begins_far_from_it_and_in_sight_of_it(small_world: EnvironmentSettings) -> None:
    """On maps with little water: with the game's own there are few such places, or none on a small map."""
    dry = replace(small_world, interrupt=1, water=0.05, horizon=8)
    shares = []
    for env in (dry, replace(dry, water=0.3)):
        world, still, _ = begun(env, "to_water", ensure_maps(env))
        water = water_among(world.env.game.realm.map.tiles)
        shares.append(len(water) / env.map_size**2)
        for _ in range(2):
            world.step(still)
        if env is dry:
            far = [np.abs(water - player.pos) for player in world.env.game.realm.players.values()]
            assert min(apart.sum(axis=1).min() for apart in far) > STEPS_FROM_WATER
            assert max(apart.max(axis=1).min() for apart in far) < world.env.game.config.PLAYER_VISION_RADIUS
    assert 0 < shares[0] < shares[1] / 2
