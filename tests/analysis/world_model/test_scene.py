"""Predicted observations are what they show, and the game's rules as a prediction hold by hand and in real lives."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from activation_store.schema import METADATA_FILE
from agent_zoo.network_parts.layers import ENTITY_SCALES
from agent_zoo.observation import PackedObservation, legal_options, pack
from agent_zoo.observation_masking import ObservationMask
from agent_zoo.soft_path import softened
from analysis.features.choices import STEPS
from analysis.world_model import network
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import imagine, informed_start
from analysis.world_model.network import spread_levels
from analysis.world_model.policy_interface import (
    Surroundings,
    _in_reach,
    action_size,
    imagined_actions,
    imagined_view,
    recorded_actions,
)
from analysis.world_model.rules import Rules
from analysis.world_model.scene import (
    KINDS,
    MOVES,
    SceneShape,
    SoftScene,
    displacement,
    legal_heads,
    likeliest,
    own_columns,
    scene_of,
    unknown_terrain,
    vital_columns,
    vital_levels,
    with_view,
)
from analysis.world_model.windows import CONTEXT


@pytest.fixture(scope="module")
def real(seen: np.ndarray, layout) -> PackedObservation:
    return pack(seen, layout)


def means(layout) -> torch.Tensor:
    return torch.zeros(len(KINDS), len(own_columns(layout)))


def test_planes_hold_every_other_entity_and_say_who_can_be_attacked(real, layout) -> None:
    scene = scene_of(real, layout)
    kind, health = (layout.entity_columns.index(name) for name in ("npc_type", "health"))
    several = 0
    for agent in range(0, len(real), 7):
        one = real.take(torch.tensor([agent]))
        expected: dict[tuple[int, int], list[int]] = {}
        for row in one.entity.values[one.entity.values[:, 0] != one.agent_id]:
            down, right = (row[2:4] - one.centre[0] + 7).tolist()
            expected.setdefault((int(row[kind]), down * 15 + right), []).append(int(row[health]))
        result = {(int(k), int(cell)) for k, cell in scene.kinds[agent].nonzero()}
        assert result == set(expected)
        for (_, cell), healths in expected.items():
            if len([key for key in expected if key[1] == cell]) == 1:
                assert float(scene.health[agent, cell]) == pytest.approx(np.mean(healths) / 100)
        several += len(result) > 1
    assert several > 5
    view = imagined_view(scene.soft(layout.materials), means(layout), Surroundings(real.market, real.task), layout)
    place = [head.name for head in layout.heads].index("Attack.Target")
    before = sum(head.size for head in layout.heads[:place])
    permitted = legal_options(real, layout)[:, before : before + 101]
    targets = permitted[:, :-1].sum(dim=1)
    result = view.observation.legal["Attack.Target"][:, :-1].sum(dim=1)
    peaceful = view.observation.legal["Attack.Target"][:, -1]
    assert torch.equal(peaceful, permitted[:, -1].float()), "where there is a target, somebody must be attacked"
    assert targets.sum() > 20
    assert (result == targets).float().mean() > 0.95  # entities of one kind on one tile are one row
    assert (result <= targets.float()).all() or (result[result > targets] - targets[result > targets]).max() <= 3


def test_the_policy_reads_back_what_was_seen(real, layout) -> None:
    scene = scene_of(real, layout)
    soft = softened(real, layout)
    around = Surroundings(real.market, real.task.float())
    view = imagined_view(scene.soft(layout.materials), means(layout), around, layout)
    result = view.observation
    torch.testing.assert_close(result.material, soft.material)
    torch.testing.assert_close(result.own.values, soft.own.values)
    torch.testing.assert_close(result.own.category, soft.own.category)
    most = real.inventory.most
    torch.testing.assert_close(result.inventory.values[:, :most], soft.inventory.values)
    torch.testing.assert_close(result.inventory.presence[:, :most], soft.inventory.presence)
    assert (result.inventory.presence[:, most:] == 0).all() and soft.inventory.presence.sum() > 0
    for head in ("Move.Direction", "Attack.Style"):
        torch.testing.assert_close(result.legal[head], soft.legal[head])
    where = [own_columns(layout).index(name) for name in ("row", "col")]
    alone = (scene.kinds.sum(dim=(1, 2)) == soft.entity.presence.sum(dim=1) - 1).nonzero()[:, 0]
    assert len(alone) > 50
    torch.testing.assert_close(result.entity.presence.sum(dim=1)[alone], soft.entity.presence.sum(dim=1)[alone])
    for agent in alone[:40].tolist():
        shown, there = (of.entity.values[agent, of.entity.presence[agent] > 0] for of in (result, soft))
        places, known = ({tuple(row) for row in (of[:, where] * 160).round().int().tolist()} for of in (shown, there))
        assert places == known


@pytest.mark.parametrize(
    ("age", "immunity", "spared"), [(20, None, False), (19, None, True), (19, 0, False), (20, 21, True)]
)
def test_the_likeliest_entities_are_there_for_sure_once_it_is_decided(
    real, layout, age: int, immunity: int | None, spared: bool
) -> None:
    """Two are expected. Of the two likeliest one is in reach; a third, which is too, is not there."""
    scene = scene_of(real, layout).soft(layout.materials).take(torch.zeros(1, dtype=torch.int64))
    kinds, target, middle = torch.zeros_like(scene.kinds), torch.zeros_like(scene.target), layout.tiles // 2
    places = [middle + 4, middle - 3, middle + 1]
    kinds[0, 0, places] = torch.tensor([0.9, 0.8, 0.4])
    target[0, places[1:]] = torch.tensor([0.5, 0.4])
    kinds.requires_grad_()
    own = scene.own.clone()
    own[0, own_columns(layout).index("time_alive")] = age / ENTITY_SCALES["time_alive"]
    around = Surroundings(real.market, real.task).take(torch.zeros(1, dtype=torch.int64))
    given = (replace(scene, kinds=kinds, target=target, own=own), means(layout), around, layout)
    rules = None if immunity is None else Rules.of_game(immunity=immunity)
    view, soft = (imagined_view(*given, decided=decided, rules=rules) for decided in (True, False))
    assert view.cell[0, :3].tolist() == places
    assert view.observation.entity.presence[0, :5].tolist() == pytest.approx([1, 1, 1, 0, 0])
    assert soft.observation.entity.presence[0, :5].tolist() == pytest.approx([1, 0.9, 0.8, 0.4, 0])
    legal, softly = (shown.observation.legal["Attack.Target"][0] for shown in (view, soft))
    assert legal[[1, 2, 3, -1]].tolist() == pytest.approx([0, 1 - spared, 0, int(spared)], abs=1e-6)
    assert softly[[1, 2, 3, -1]].tolist() == pytest.approx([0, 0.5, 0.4, 0.5 * 0.6])
    (slope,) = torch.autograd.grad(view.observation.entity.presence.sum(), kinds)
    assert (slope[0, 0, places] == 1).all(), "gradients are those of the probabilities"


def test_recorded_and_imagined_actions_have_one_code(real, layout) -> None:
    scene = scene_of(real, layout)
    heads = {head.name: index for index, head in enumerate(layout.heads)}
    options = torch.tensor([[head.size - 1 for head in layout.heads]]).repeat(len(real), 1)
    options[:, heads["Attack.Style"]], options[:, heads["Move.Direction"]] = 1, 2
    other = real.entity.values[:, 0] != real.agent_id[real.entity.owner]
    first = torch.full((len(real),), -1)
    for row in other.nonzero()[:, 0].flip(0).tolist():
        first[real.entity.owner[row]] = real.entity.place[row]
    attacks = first >= 0
    options[attacks, heads["Attack.Target"]] = first[attacks]
    codes = recorded_actions(options, real, layout)
    assert codes.shape == (len(real), action_size(layout)) and attacks.sum() > 50
    view = imagined_view(scene.soft(layout.materials), means(layout), Surroundings(real.market, real.task), layout)
    reach = torch.zeros(len(real), view.kind.shape[1] + 2)
    column = layout.entity_columns.index("npc_type")
    for agent in range(len(real)):
        if not attacks[agent]:
            reach[agent, -1] = 1
            continue
        row = real.entity.values[real.entity.starts[agent] + first[agent]]
        cell = int((row[2] - real.centre[agent, 0] + 7) * 15 + row[3] - real.centre[agent, 1] + 7)
        (same,) = ((view.kind[agent] == int(row[column])) & (view.cell[agent] == cell)).nonzero(as_tuple=True)
        reach[agent, 1 + same[0]] = 1
    chosen = {"Attack.Target": reach}
    for name, index in heads.items():
        if name != "Attack.Target":
            size = layout.heads[index].size
            chosen[name] = torch.nn.functional.one_hot(options[:, index], size).float()
    torch.testing.assert_close(imagined_actions(chosen, view.kind, view.cell, layout), codes)


def test_the_shape_counts_what_scenes_hold_and_the_likeliest_are_shown(real, layout) -> None:
    assert vital_levels(torch.tensor([0.0, 0.02, 0.03, 0.5, 1.0])).tolist() == [0, 0, 1, 10, 20]
    shape = SceneShape.of(layout)
    soft = scene_of(real, layout).soft(layout.materials)
    assert soft.planes().shape == (len(real), shape.planes, 225) and soft.numbers().shape == (len(real), shape.numbers)
    blank = shape.blank(3)
    assert blank.planes().shape[1:] == soft.planes().shape[1:] and not blank.numbers().any()
    # Five places of one third each hold 1.67 entities, none of which is more likely there than not.
    third = torch.full((5,), 1 / 3)
    presence = torch.stack([third, torch.tensor([0.1, 0.9, 0, 0.3, 0.8]), torch.zeros(5), torch.eye(5)[2]])
    shown = [row.nonzero().flatten().tolist() for row in likeliest(presence)]
    assert shown == [[0, 1], [1, 4], [], [2]]


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


def test_a_body_follows_the_rules_and_so_do_shares_of_bodies(rules: Rules) -> None:
    for vitals, tiles, expected in (
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
    ):
        before = scene(vitals, tiles)
        assert after(rules, before, STAY).own[0, :3].tolist() == pytest.approx(expected, abs=1e-5)
        levels = rules.body_levels(spread_levels(before.own[:, VITALS]), *rules.meals(before))
        assert network.expected(levels)[0].tolist() == pytest.approx(expected, abs=1e-5)
    # Health returns if food and water are both enough, and falls by both losses if both are used up.
    levels = torch.zeros(1, 3, 21)
    levels[0, 0, 10] = 1
    levels[0, 1, [0, 20]] = torch.tensor([0.25, 0.75])
    levels[0, 2, [0, 20]] = torch.tensor([0.5, 0.5])
    health, food, water = rules.body_levels(levels, torch.tensor([0.0]), torch.tensor([0.1]))[0]
    mean = 0.5 + 0.75 * 0.5 * rules.regrowth - 0.25 * rules.hunger - 0.5 * rules.thirst
    assert health.sum() == pytest.approx(1) and network.expected(health) == pytest.approx(mean)
    assert food[0] == 0.25 and food[19] == 0.75
    assert water[[0, 19, 20]].tolist() == pytest.approx([0.45, 0.45, 0.1])


def test_food_ore_and_fish_are_taken_and_come_back_and_so_does_terrain(rules: Rules) -> None:
    arrived = after(rules, scene((0.5, 0.2, 0.2), {MIDDLE - SIDE: FOLIAGE}), NORTH)
    assert float(arrived.own[0, 1]) == pytest.approx(0.15) and ground(arrived)[MIDDLE] == FOLIAGE
    back = after(rules, arrived, SOUTH)
    assert back.own[0, 1] == 1 and ground(back)[MIDDLE - SIDE] == SCRUB
    again = after(rules, back, NORTH, STAY)
    assert ground(again)[MIDDLE] == SCRUB and float(again.own[0, 1]) == pytest.approx(0.9)
    left = ground(after(rules, scene((1, 1, 1), {MIDDLE: ORE, MIDDLE + 1: FISH, MIDDLE + 2: FISH}), STAY))
    assert left[MIDDLE] == SLAG and left[MIDDLE + 1] != FISH and left[MIDDLE + 2] == FISH
    one = after(rules, scene((1, 1, 1), {0: SCRUB, 1: SLAG, 2: FOLIAGE}), STAY)
    material = one.material[0]
    assert material[[SCRUB, FOLIAGE], 0].tolist() == pytest.approx([0.975, 0.025])
    assert material[[SLAG, ORE], 1].tolist() == pytest.approx([0.9, 0.1]) and material[FOLIAGE, 2] == 1
    assert torch.allclose(material.sum(dim=0), torch.ones(SIDE * SIDE))
    later = after(rules, one, *[STAY] * 6)
    assert ground(later)[:2] == [SCRUB, ORE], "of ore, it is more likely than not after seven ticks"
    start = scene((1, 1, 1), {20: FOLIAGE})  # in the southern row, out of view after a step to the north
    away = after(rules, start, NORTH)
    assert FOLIAGE not in ground(away) and away.own[0, 3] < start.own[0, 3]
    back = after(rules, away, SOUTH)
    assert ground(back)[20] == FOLIAGE and torch.allclose(back.own[0, 3:], start.own[0, 3:])


def test_food_comes_back_as_fast_as_in_the_world_of_the_dump(recorded, tmp_path: Path) -> None:
    assert [Rules.of_game(speed).respawn[SCRUB][1] for speed in (0, 1, 4, 100)] == pytest.approx([0, 0.025, 0.1, 1])
    shutil.copytree(recorded.dump, tmp_path / "dump")
    metadata = recorded.metadata
    faster = replace(metadata, environment={**metadata.environment, "food_regrowth": 4.0})
    (tmp_path / "dump" / METADATA_FILE).write_text(json.dumps(faster.to_json()))
    model = recorded.model()
    HeldOut.of(model, recorded.origin(), tmp_path / "dump")
    assert model.network.rules.respawn[SCRUB][1] == pytest.approx(0.1)


def test_players_are_spared_as_long_as_in_the_world_of_the_dump(recorded, monkeypatch, tmp_path: Path) -> None:
    shutil.copytree(recorded.dump, tmp_path / "dump")
    model, windows, attacked = recorded.model(), recorded.windows(batch=64)[0], {}
    for immunity in (0, 2000):
        environment = {**recorded.metadata.environment, "spawn_immunity": immunity}
        (tmp_path / "dump" / METADATA_FILE).write_text(
            json.dumps(replace(recorded.metadata, environment=environment).to_json())
        )
        HeldOut.of(model, recorded.origin(), tmp_path / "dump")
        with torch.no_grad():
            start = informed_start(model, windows, None)
            (tick,) = imagine(model, start, 1, torch.Generator().manual_seed(0))
        of_players = tick.view.observation.legal["Attack.Target"][:, 1:-1][tick.view.kind == KINDS.index("player")]
        attacked[immunity] = int((of_players > 0.5).sum())
    assert attacked[0] > attacked[2000] == 0
    # A policy that sees no ages: all are 0, and nobody would ever be old enough.
    monkeypatch.setattr(model.policy, "mask", ObservationMask.of({"mask_intrinsics": "strict"}))
    HeldOut.of(model, recorded.origin(), tmp_path / "dump")
    assert model.network.rules.immunity == 0


def test_nobody_walks_on_water_stone_or_beyond_the_map_or_stands_there(rules: Rules) -> None:
    walls = {MIDDLE: WATER, MIDDLE - SIDE: STONE, MIDDLE + SIDE: ORE, MIDDLE - 1: VOID, MIDDLE + 1: WATER}
    walled = scene((1, 1, 1), walls)
    blocked = {MOVES[number] for number in rules.blocked(walled)[0].nonzero()[:, 0].tolist()}
    assert blocked == {(-1, 0), (0, -1), (0, 1)}, "whoever stands in water may stay"
    assert not rules.blocked(replace(walled, terrain=unknown_terrain(1, SIDE))).any(), "it is not known"
    assert rules.walkable(walled)[0].tolist() == [MOVES[number] == (1, 0) for number in range(len(MOVES))]
    halves = replace(walled, material=(walled.material + scene((1, 1, 1)).material) / 2)
    assert rules.walkable(halves)[0].tolist() == pytest.approx([0.5, 0.5, 1, 0.5, 0.5])
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


def test_real_lives_follow_the_rules(rules: Rules, recorded) -> None:
    """Nobody walks there, moves and attacks are legal as in the game's own masks, and food and water follow.

    Another agent may have eaten the food, so not quite all; to expect no change is right in few.
    """
    layout, heads = recorded.info.layout, legal_heads(recorded.info.layout)
    vitals, time_alive = vital_columns(layout)[1:], own_columns(layout).index("time_alive")
    cells = torch.arange(layout.tiles)
    offsets = torch.stack([cells // layout.view_side, cells % layout.view_side], dim=1) - layout.view_side // 2
    blocked = walked = attacked = spared = right = same = ticks = 0
    for windows in recorded.windows():
        last, (_, now), (there, real) = (
            windows.last_given(layout.materials), windows.at(CONTEXT - 1), windows.at(CONTEXT),
        )  # fmt: skip
        moved = displacement(windows.where[:, CONTEXT - 1], windows.where[:, CONTEXT])
        walls = rules.blocked(last)
        assert not walls.gather(1, moved.unsqueeze(1)).any()
        walkable = rules.walkable(last)[:, [MOVES.index(step) for step in STEPS.values()]]
        place = [head.name for head in heads].index("Move.Direction")
        legal = now.legal.split([head.size for head in heads], dim=1)[place]
        assert torch.equal(legal[:, : len(STEPS)], walkable), "the game's own mask"
        blocked += int(walls.sum())
        walked += int(moved.count_nonzero())
        scenes = windows.scene
        alone = scenes.kinds.sum(dim=1) == 1  # tiles with others of one kind
        around = offsets.expand(len(scenes), -1, -1)
        reach = _in_reach(scenes.kinds.argmax(dim=1), around, scenes.own[:, time_alive], rules)
        assert torch.equal(reach[alone], scenes.target[alone] > 0), "the game's own mask"
        attacked += int(reach[alone].sum())
        spared += int((~reach[alone]).sum())
        stores = rules.next_scene(last, moved, vital_columns(layout), None).own[there][:, vitals]
        wanted, before = real.own[:, vitals], last.own[there][:, vitals]
        right += int(torch.isclose(stores, wanted, atol=1e-4).sum())
        same += int(torch.isclose(before, wanted, atol=1e-4).sum())
        ticks += wanted.numel()
    assert min(blocked, walked, attacked, spared) > 20
    assert ticks > 100 and right > 0.98 * ticks and same < 0.6 * ticks, (right, same, ticks)
