"""The game's rules as a prediction: each rule by hand, and against a real recording."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from activation_store.schema import METADATA_FILE
from analysis.features.choices import STEPS
from analysis.world_model import network
from analysis.world_model.held_out import HeldOut
from analysis.world_model.network import spread_levels
from analysis.world_model.policy_interface import _in_reach
from analysis.world_model.rules import Rules
from analysis.world_model.scene import (
    MOVES,
    SceneShape,
    SoftScene,
    displacement,
    legal_heads,
    own_columns,
    unknown_terrain,
    vital_columns,
    with_view,
)
from analysis.world_model.windows import CONTEXT

VOID, WATER, GRASS, SCRUB, FOLIAGE, STONE, SLAG, ORE, FISH = 0, 1, 2, 3, 4, 5, 6, 7, 15
SIDE, MIDDLE = 5, 12
STAY, NORTH, SOUTH = 0, MOVES.index((-1, 0)), MOVES.index((1, 0))
VITALS = [0, 1, 2]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules.of_game()


def scene(vitals: tuple[float, float, float], tiles: dict[int, int] | None = None) -> SoftScene:
    """An agent with these vitals on grass, with other materials on some of the 25 tiles."""
    ground = torch.full((1, SIDE * SIDE), GRASS)
    for tile, material in (tiles or {}).items():
        ground[0, tile] = material
    blank = SceneShape(SIDE, 16, own=5, slots=1, item=1, legal=1).blank(1)
    return replace(
        blank, material=functional.one_hot(ground, 16).float().transpose(1, 2),
        own=torch.tensor([[*vitals, 0.1, 0.2]]), terrain=with_view(unknown_terrain(1, SIDE), ground),
    )  # fmt: skip


def after(rules: Rules, before: SoftScene, *moves: int) -> SoftScene:
    for move in moves:
        before = rules.next_scene(before, torch.tensor([move]), VITALS, [3, 4])
    return before


def ground(scene: SoftScene) -> list[int]:
    materials: list[int] = scene.material[0].argmax(dim=0).tolist()
    return materials


@pytest.mark.parametrize(
    ("vitals", "tiles", "expected"),
    [
        ((0.5, 0.8, 0.7), {}, (0.6, 0.75, 0.65)),  # well: health returns
        ((0.5, 0.5, 0.7), {}, (0.5, 0.45, 0.65)),  # food is not above half
        ((0.95, 0.8, 0.7), {}, (1.0, 0.75, 0.65)),
        ((0.5, 0.0, 0.7), {}, (0.4, 0.0, 0.65)),  # starves
        ((0.15, 0.0, 0.0), {}, (0.0, 0.0, 0.0)),  # starves and is thirsty
        ((0.5, 0.05, 0.7), {}, (0.5, 0.0, 0.65)),  # what counts for health is the food before the tick
        ((0.5, 0.2, 0.2), {MIDDLE: FOLIAGE}, (0.5, 1.0, 0.15)),
        ((0.5, 0.2, 0.2), {MIDDLE + 1: WATER}, (0.5, 0.15, 1.0)),
        ((0.5, 0.2, 0.2), {MIDDLE - SIDE: WATER, MIDDLE: FOLIAGE}, (0.5, 1.0, 1.0)),
        ((0.5, 0.2, 0.2), {MIDDLE - SIDE - 1: WATER, MIDDLE + 1: FOLIAGE}, (0.5, 0.15, 0.15)),  # neither is in reach
    ],
)
def test_a_body_follows_the_rules(
    rules: Rules, vitals: tuple[float, float, float], tiles: dict[int, int], expected: tuple[float, float, float]
) -> None:
    before = scene(vitals, tiles)
    assert after(rules, before, STAY).own[0, :3].tolist() == pytest.approx(expected, abs=1e-5)
    levels = rules.body_levels(spread_levels(before.own[:, VITALS]), *rules.meals(before))
    assert network.expected(levels)[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_what_is_not_sure_of_a_body_is_shared_among_its_outcomes(rules: Rules) -> None:
    """Health returns if food and water are both enough, and falls by both losses if both are used up."""
    levels = torch.zeros(1, 3, 21)
    levels[0, 0, 10] = 1
    levels[0, 1, [0, 20]] = torch.tensor([0.25, 0.75])
    levels[0, 2, [0, 20]] = torch.tensor([0.5, 0.5])
    health, food, water = rules.body_levels(levels, torch.tensor([0.0]), torch.tensor([0.1]))[0]
    mean = 0.5 + 0.75 * 0.5 * rules.regrowth - 0.25 * rules.hunger - 0.5 * rules.thirst
    assert health.sum() == pytest.approx(1) and network.expected(health) == pytest.approx(mean)
    assert food[0] == 0.25 and food[19] == 0.75
    assert water[[0, 19, 20]].tolist() == pytest.approx([0.45, 0.45, 0.1])


def test_it_eats_in_the_tick_after_it_arrives_and_leaves_scrub_behind(rules: Rules) -> None:
    arrived = after(rules, scene((0.5, 0.2, 0.2), {MIDDLE - SIDE: FOLIAGE}), NORTH)
    assert float(arrived.own[0, 1]) == pytest.approx(0.15) and ground(arrived)[MIDDLE] == FOLIAGE
    back = after(rules, arrived, SOUTH)
    assert back.own[0, 1] == 1 and ground(back)[MIDDLE - SIDE] == SCRUB
    again = after(rules, back, NORTH, STAY)
    assert ground(again)[MIDDLE] == SCRUB and float(again.own[0, 1]) == pytest.approx(0.9)


def test_ore_underfoot_and_fish_beside_are_taken(rules: Rules) -> None:
    left = ground(after(rules, scene((1, 1, 1), {MIDDLE: ORE, MIDDLE + 1: FISH, MIDDLE + 2: FISH}), STAY))
    assert left[MIDDLE] == SLAG and left[MIDDLE + 1] != FISH and left[MIDDLE + 2] == FISH


def test_what_was_harvested_comes_back_with_the_games_probability(rules: Rules) -> None:
    one = after(rules, scene((1, 1, 1), {0: SCRUB, 1: SLAG, 2: FOLIAGE}), STAY)
    material = one.material[0]
    assert material[[SCRUB, FOLIAGE], 0].tolist() == pytest.approx([0.975, 0.025])
    assert material[[SLAG, ORE], 1].tolist() == pytest.approx([0.9, 0.1]) and material[FOLIAGE, 2] == 1
    assert torch.allclose(material.sum(dim=0), torch.ones(SIDE * SIDE))
    later = after(rules, one, *[STAY] * 6)
    assert ground(later)[:2] == [SCRUB, ORE], "of ore, it is more likely than not after seven ticks"


def test_food_comes_back_as_fast_as_in_the_world_of_the_dump(recorded, tmp_path: Path) -> None:
    assert [Rules.of_game(speed).respawn[SCRUB][1] for speed in (0, 1, 4, 100)] == pytest.approx([0, 0.025, 0.1, 1])
    shutil.copytree(recorded.dump, tmp_path / "dump")
    metadata = recorded.metadata
    faster = replace(metadata, environment={**metadata.environment, "food_regrowth": 4.0})
    (tmp_path / "dump" / METADATA_FILE).write_text(json.dumps(faster.to_json()))
    model = recorded.model()
    HeldOut.of(model, recorded.origin(), tmp_path / "dump")
    assert model.network.rules.respawn[SCRUB][1] == pytest.approx(0.1)


def test_terrain_comes_back_as_it_was_and_the_place_follows_from_the_move(rules: Rules) -> None:
    start = scene((1, 1, 1), {20: FOLIAGE})  # in the southern row, out of view after a step to the north
    away = after(rules, start, NORTH)
    assert FOLIAGE not in ground(away) and away.own[0, 3] < start.own[0, 3]
    back = after(rules, away, SOUTH)
    assert ground(back)[20] == FOLIAGE and torch.allclose(back.own[0, 3:], start.own[0, 3:])


WALLS = {MIDDLE: WATER, MIDDLE - SIDE: STONE, MIDDLE + SIDE: ORE, MIDDLE - 1: VOID, MIDDLE + 1: WATER}


def test_nobody_walks_on_water_stone_or_beyond_the_map(rules: Rules) -> None:
    walled = scene((1, 1, 1), WALLS)
    blocked = {MOVES[number] for number in rules.blocked(walled)[0].nonzero()[:, 0].tolist()}
    assert blocked == {(-1, 0), (0, -1), (0, 1)}, "whoever stands in water may stay"
    assert not rules.blocked(replace(walled, terrain=unknown_terrain(1, SIDE))).any(), "it is not known"
    assert rules.walkable(walled)[0].tolist() == [MOVES[number] == (1, 0) for number in range(len(MOVES))]
    halves = replace(walled, material=(walled.material + scene((1, 1, 1)).material) / 2)
    assert rules.walkable(halves)[0].tolist() == pytest.approx([0.5, 0.5, 1, 0.5, 0.5])


def test_ground_on_which_an_agent_stands_is_none_of_these(rules: Rules) -> None:
    unsure = torch.zeros(3, 16, SIDE * SIDE)
    unsure[:, WATER], unsure[:, GRASS], unsure[:, ORE] = 0.5, 0.3, 0.2
    unsure[1, :, MIDDLE] = functional.one_hot(torch.tensor(WATER), 16)  # as where a simulation begins in water
    unsure[2, :, MIDDLE] = functional.one_hot(torch.tensor(ORE), 16)
    here = rules.stood_on(unsure)
    wanted = torch.zeros(16)
    wanted[GRASS], wanted[ORE] = 0.6, 0.4
    torch.testing.assert_close(here[0, :, MIDDLE], wanted)
    assert torch.equal(here[1:, :, MIDDLE], unsure[1:, :, MIDDLE])
    elsewhere = torch.arange(SIDE * SIDE) != MIDDLE
    assert torch.equal(here[:, :, elsewhere], unsure[:, :, elsewhere])


def test_nobody_in_real_lives_walks_there_and_moves_are_legal_elsewhere(rules: Rules, recorded) -> None:
    layout, blocked, walked = recorded.info.layout, 0, 0
    for windows in recorded.windows():
        last, (_, now) = windows.last_given(layout.materials), windows.at(CONTEXT - 1)
        moved = displacement(windows.where[:, CONTEXT - 1], windows.where[:, CONTEXT])
        walls = rules.blocked(last)
        assert not walls.gather(1, moved.unsqueeze(1)).any()
        walkable = rules.walkable(last)[:, [MOVES.index(step) for step in STEPS.values()]]
        heads = legal_heads(layout)
        legal = dict(
            zip([head.name for head in heads], now.legal.split([head.size for head in heads], dim=1), strict=True)
        )
        assert torch.equal(legal["Move.Direction"][:, : len(STEPS)], walkable), "the game's own mask"
        blocked += int(walls.sum())
        walked += int(moved.count_nonzero())
    assert blocked > 20 and walked > 20


def test_whom_agents_of_real_lives_can_attack_follows_from_kind_place_and_age(recorded) -> None:
    layout, attacked, spared = recorded.info.layout, 0, 0
    cells, time_alive = torch.arange(layout.tiles), own_columns(layout).index("time_alive")
    offsets = torch.stack([cells // layout.view_side, cells % layout.view_side], dim=1) - layout.view_side // 2
    for windows in recorded.windows():
        scenes = windows.scene
        alone = scenes.kinds.sum(dim=1) == 1  # tiles with others of one kind
        reach = _in_reach(scenes.kinds.argmax(dim=1), offsets.expand(len(scenes), -1, -1), scenes.own[:, time_alive])
        assert torch.equal(reach[alone], scenes.target[alone] > 0), "the game's own mask"
        attacked += int(reach[alone].sum())
        spared += int((~reach[alone]).sum())
    assert attacked > 20 and spared > 20


def test_food_and_water_of_real_lives_follow_them(rules: Rules, recorded) -> None:
    """Another agent may have eaten the food, so not quite all; to expect no change is right in few."""
    vitals, right, same, ticks = vital_columns(recorded.info.layout), 0, 0, 0
    for windows in recorded.windows():
        before = windows.last_given(recorded.info.layout.materials)
        there, real = windows.at(CONTEXT)
        moved = displacement(windows.where[:, CONTEXT - 1], windows.where[:, CONTEXT])
        stores = rules.next_scene(before, moved, vitals, None).own[there][:, vitals[1:]]
        wanted, last = real.own[:, vitals[1:]], before.own[there][:, vitals[1:]]
        right += int(torch.isclose(stores, wanted, atol=1e-4).sum())
        same += int(torch.isclose(last, wanted, atol=1e-4).sum())
        ticks += wanted.numel()
    assert ticks > 100 and right > 0.98 * ticks and same < 0.6 * ticks, (right, same, ticks)
