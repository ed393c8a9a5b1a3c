"""What is predicted of an observation is what it shows, and the policy reads it back as such."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agent_zoo.network_parts.layers import ENTITY_SCALES
from agent_zoo.observation import PackedObservation, legal_options, pack
from agent_zoo.soft_path import softened
from analysis.world_model.policy_interface import (
    Surroundings,
    action_size,
    imagined_actions,
    imagined_view,
    recorded_actions,
)
from analysis.world_model.scene import KINDS, SceneShape, likeliest, own_columns, scene_of, vital_levels


@pytest.fixture(scope="module")
def real(seen: np.ndarray, layout) -> PackedObservation:
    return pack(seen, layout)


def means(layout) -> torch.Tensor:
    return torch.zeros(len(KINDS), len(own_columns(layout)))


def test_planes_hold_every_other_entity_and_nothing_else(real, layout) -> None:
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


def test_entities_can_be_attacked_where_the_game_says_so(real, layout) -> None:
    scene = scene_of(real, layout)
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


@pytest.mark.parametrize(("age", "spared"), [(20, False), (19, True)])
def test_the_likeliest_entities_are_there_for_sure_once_it_is_decided(real, layout, age: int, spared: bool) -> None:
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
    view, soft = (imagined_view(*given, decided=decided) for decided in (True, False))
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


def test_the_shape_counts_what_scenes_hold_and_vitals_have_levels(real, layout) -> None:
    assert vital_levels(torch.tensor([0.0, 0.02, 0.03, 0.5, 1.0])).tolist() == [0, 0, 1, 10, 20]
    shape = SceneShape.of(layout)
    soft = scene_of(real, layout).soft(layout.materials)
    assert soft.planes().shape == (len(real), shape.planes, 225) and soft.numbers().shape == (len(real), shape.numbers)
    blank = shape.blank(3)
    assert blank.planes().shape[1:] == soft.planes().shape[1:] and not blank.numbers().any()


def test_as_many_are_shown_as_are_expected_the_likeliest() -> None:
    """Five places of one third each hold 1.67 entities, none of which is more likely there than not."""
    third = torch.full((5,), 1 / 3)
    presence = torch.stack([third, torch.tensor([0.1, 0.9, 0, 0.3, 0.8]), torch.zeros(5), torch.eye(5)[2]])
    shown = [row.nonzero().flatten().tolist() for row in likeliest(presence)]
    assert shown == [[0, 1], [1, 4], [], [2]]
