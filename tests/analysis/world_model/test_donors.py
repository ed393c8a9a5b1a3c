"""Donors inside a simulation are unedited lives of the same tick that are far, and what they give is taken exactly."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.layers import entity_features
from agent_zoo.observation_masking import ObservationMask
from agent_zoo.soft_path import soft_tick
from analysis.interventions.edits.edit_options import EditOptions
from analysis.world_model.edits import Edits, EditsWithDonors, UneditedLives
from analysis.world_model.imagination import ImaginedTick, imagine, informed_start
from analysis.world_model.model import WorldModel
from analysis.world_model.scene import own_columns
from tests.analysis.world_model.test_edits import assert_same, edits_of, simulated, updates
from tests.command import assert_refuses
from tests.planted_interventions import unit

FEATURE = "self_row"
LIVES, TICKS = 16, 3
TRANSPLANT = EditOptions(edit="transplant", donor=FEATURE)
INTERCHANGE = EditOptions(edit="interchange", direction="one", donor=FEATURE)


@pytest.fixture(scope="module")
def start(model, recorded):
    with torch.no_grad():
        return informed_start(model, recorded.windows(LIVES)[0], torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def plain(model, start) -> list[ImaginedTick]:
    return simulated(model, start, None)


@torch.no_grad()
def unedited_lives(model, start, alive: np.ndarray | None = None) -> UneditedLives:
    result = UneditedLives(("lstm_cell", "encoder_output"))
    for _ in imagine(model, start, TICKS, torch.Generator().manual_seed(2), (), result):
        result.alive.append(np.ones(len(start), bool) if alive is None else alive)
    return result


@pytest.fixture(scope="module")
def unedited(model, start) -> UneditedLives:
    return unedited_lives(model, start)


def one_edit(model, recorded, options: EditOptions, layer: str = "lstm_cell") -> Edits:
    (edits,) = edits_of(model, recorded, [unit(1, 16, "one", layer)], options)
    return edits


def rows(model: WorldModel, own: torch.Tensor) -> np.ndarray:
    """Values of the donors' feature."""
    place = own_columns(model.layout).index(FEATURE.removeprefix("self_"))
    return (own[:, place] * entity_features(model.layout).scale[place]).round().numpy()


def test_keeping_what_lives_can_give_changes_nothing(model, start, plain, unedited) -> None:
    assert_same(plain, simulated(model, start, UneditedLives(("lstm_cell", "encoder_output"))))
    for place, one in enumerate(plain):
        assert torch.equal(unedited.states["lstm_cell"][place], one.memory.cell[-1])
        assert torch.equal(unedited.states["encoder_output"][place], one.layers["encoder_output"])
        if place:
            assert torch.equal(unedited.memory[place].hidden, plain[place - 1].memory.hidden)


def test_without_donors_simulations_are_the_same(model, start, recorded, plain) -> None:
    nobody = unedited_lives(model, start, np.zeros(LIVES, bool))
    for options in (TRANSPLANT, INTERCHANGE):
        made = EditsWithDonors(one_edit(model, recorded, options), nobody, model.layout, 0, 0)
        assert_same(plain, simulated(model, start, made))


def test_donors_are_far_alive_and_another_life(model, start, recorded) -> None:
    alive = np.arange(LIVES) % 3 > 0
    some, place = unedited_lives(model, start, alive), own_columns(model.layout).index("row")
    made = EditsWithDonors(one_edit(model, recorded, TRANSPLANT), some, model.layout, 0, 0)
    chosen = set()
    for tick in range(TICKS):
        own = start.scene.own.clone()
        own[:, place] += 1  # so that each life's own twin differs from it
        made.begin(some.memory[tick], tick, own)
        mine, theirs = rows(model, own), rows(model, some.own[tick])
        (given,) = made.donors.values()
        assert len(given) == len(made.edited) == LIVES
        for life, donor in zip(made.edited.tolist(), given.tolist(), strict=True):
            others = np.abs(theirs - mine[life])[alive & (np.arange(LIVES) != life)]
            assert alive[donor] and donor != life
            assert (others > abs(theirs[donor] - mine[life])).sum() < np.ceil((others > 0).sum() / 4)
        chosen.add(tuple(given.tolist()))
    assert len(chosen) > 1, "lots differ from tick to tick"
    later = EditsWithDonors(one_edit(model, recorded, TRANSPLANT), some, model.layout, 0, 0)
    made.begin(some.memory[0], 0, start.scene.own), later.begin(some.memory[0], 0, start.scene.own)
    assert torch.equal(*(torch.cat(list(item.donors.values())) for item in (made, later)))


@torch.no_grad()
def test_lives_begin_ticks_with_exactly_their_donors_memories(model, start, recorded, unedited) -> None:
    edits = one_edit(model, recorded, replace(TRANSPLANT, every=2))
    assert edits.name == f"transplant-every_2-{FEATURE}"
    assert edits.described == ({"edit": "transplant", "every": 2, "donor": FEATURE},)
    made, before = EditsWithDonors(edits, unedited, model.layout, 0, 0), start.memory
    for number, tick in enumerate(imagine(model, start, TICKS, torch.Generator().manual_seed(2), (), made)):
        begun = MemoryState(before.hidden.clone(), before.cell.clone())
        assert len(made.edited) > LIVES / 2
        if number % 2 == 0:
            (given,) = made.donors.values()
            begun.put(made.edited, unedited.memory[number].take(given))
        _, wanted = soft_tick(model.policy, tick.view.observation, begun)
        assert torch.equal(tick.memory.cell, wanted.cell) and torch.equal(tick.memory.hidden, wanted.hidden)
        assert number or not torch.equal(begun.cell, before.cell)
        before = tick.memory


@torch.no_grad()
def test_read_outs_are_exactly_those_of_the_donors(model, start, recorded, unedited) -> None:
    edits = one_edit(model, recorded, INTERCHANGE)
    assert edits.name == f"interchange-one-{FEATURE}"
    made = EditsWithDonors(edits, unedited, model.layout, 0, 0)
    ticks = imagine(model, start, TICKS, torch.Generator().manual_seed(2), (), made)
    for number, (_, computed, memory) in enumerate(updates(model, start, ticks)):
        wanted = computed.cell[-1].clone()
        (given,) = made.donors.values()
        wanted[made.edited, 1] = unedited.states["lstm_cell"][number][given, 1]
        torch.testing.assert_close(memory.cell[-1], wanted, rtol=1e-5, atol=1e-5)


def test_a_life_that_lacks_one_donor_is_not_edited(model, start, recorded) -> None:
    """All agents have the same gold here, so nobody differs in it."""
    place = own_columns(model.layout).index("gold")
    same = replace(start, scene=replace(start.scene, own=start.scene.own.index_fill(1, torch.tensor([place]), 0.0)))
    transplant = EditOptions(edit="transplant", donor="self_gold")
    (edits,) = edits_of(model, recorded, [unit(1, 16, "one", "lstm_cell")], INTERCHANGE, transplant)
    made = EditsWithDonors(edits, unedited_lives(model, same), model.layout, 0, 0)
    made.begin(same.memory, 0, same.scene.own)
    assert not len(made.edited) and not made.hooks(same.memory)


@pytest.mark.parametrize(
    ("donor", "message"),
    [
        ("self_rwo", "did you mean self_row"), ("tick", "the same tick"),
        ("self_npc_type", "simulated lives do not have it"),
        ("self_food", "--donor self_food: simulated lives do not have it"),
    ],
)  # fmt: skip
def test_features_that_lives_cannot_differ_in_are_refused(model, recorded, donor, message) -> None:
    policy = copy.deepcopy(model.policy)
    policy.mask = ObservationMask(own=("food",))  # what the policy does not see no simulated life has
    blind = replace(model, policy=policy) if donor == "self_food" else model
    assert_refuses(message, one_edit, blind, recorded, replace(TRANSPLANT, donor=donor))
