"""Edits inside a simulation do what they do in the game, also with donors, and leave starts and dice as they are."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from activation_store.directions import Directions
from activation_store.reader import read_dump
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.layers import ENTITY_SCALES, entity_features
from agent_zoo.observation_masking import ObservationMask
from agent_zoo.soft_path import soft_tick
from analysis.features.observed import Observed
from analysis.interventions.edits.edit_options import EditOptions
from analysis.interventions.edits.state_edits import Eraser, Untouched
from analysis.world_model.edits import Edits, EditsWithDonors, UneditedLives, requested_edits
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import ImaginedTick, imagine, informed_start
from analysis.world_model.model import WorldModel
from analysis.world_model.outcomes import Outcomes, OutcomeSums, effects, over_lives
from analysis.world_model.scene import MOVES, own_columns
from tests.command import assert_refuses
from tests.planted_features import axes
from tests.planted_interventions import direction, unit

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
TICKS = 3


def edits_of(
    model: WorldModel, recorded, directions, *options: EditOptions, dictionary: SparseDictionary | None = None
) -> list[Edits]:
    named = Directions(recorded.dump, tuple(directions))
    return requested_edits(options, recorded.held_out(model), named, dictionary)


@torch.no_grad()
def simulated(model: WorldModel, start, edits: Edits | None) -> list[ImaginedTick]:
    return list(imagine(model, start, TICKS, torch.Generator().manual_seed(2), (), edits))


def assert_same(ticks: list[ImaginedTick], others: list[ImaginedTick]) -> None:
    """Check that two simulations are equal bit for bit."""
    for one, other in zip(ticks, others, strict=True):
        assert torch.equal(one.choices.value, other.choices.value) and torch.equal(one.end, other.end)
        assert all(torch.equal(one.options[head], other.options[head]) for head in one.options)


@torch.no_grad()
def updates(model: WorldModel, start, ticks: Iterable[ImaginedTick]) -> Iterator[tuple[MemoryState, ...]]:
    """Each tick's memory before it, what the policy makes of it, and what was made of it in the simulation."""
    before = start.memory
    for tick in ticks:
        yield before, soft_tick(model.policy, tick.view.observation, before)[1], tick.memory
        before = tick.memory


def outcomes(model: WorldModel, ticks: list[ImaginedTick]) -> Outcomes:
    sums = OutcomeSums(len(ticks[0].end), model.network.vitals)
    for tick in ticks:
        sums.add(tick, np.ones(len(tick.end), bool))
    return sums.finish()


def critic_direction(model: WorldModel):
    """The read-out of this direction is the value, so that steering it plants the value."""
    weight, bias = (item.detach().numpy() for item in model.policy.policy.critic.parameters())
    return direction(weight[0].tolist(), "value", "action_decoder", bias=float(bias[0]), mean=5.0, spread=2.0)


def test_a_planted_value_is_found_in_the_table(model, start, recorded) -> None:
    """Steered to 5 + 1.5 * 2 in each tick, so the table must say 8, whatever the world model has learnt."""
    options = EditOptions(edit="steer", direction="value", dose="-1,1.5")
    made = edits_of(model, recorded, [critic_direction(model)], options)
    assert [item.name for item in made] == ["steer-value-dose-1", "steer-value-dose+1.5"]
    before, lives = outcomes(model, simulated(model, start, None)), over_lives(np.arange(len(start)), 0)
    for edits, wanted in zip(made, (3.0, 8.0), strict=True):
        rows = {
            item["outcome"]: item for item in effects(before, outcomes(model, simulated(model, start, edits)), lives)
        }
        for name in ("value", "value in the first tick"):
            assert rows[name]["after"] == pytest.approx(wanted, abs=1e-3)
            assert rows[name]["difference"] == pytest.approx(wanted - rows[name]["before"], abs=1e-3)
            assert rows[name]["low"] <= rows[name]["difference"] <= rows[name]["high"] and rows[name]["lives"] == len(
                start
            )
        moved = [item["difference"] for name, item in rows.items() if name.startswith("probability")]
        assert len(moved) == 5 and sum(moved) == pytest.approx(0, abs=1e-6)


def test_the_way_of_a_life_is_where_it_ended_less_where_it_began(model, start) -> None:
    """All lives are planted to go south in each tick, whatever the policy wants and whatever is in the way."""
    model = copy.deepcopy(model)
    model.network.follows_rules = False
    with torch.no_grad():
        model.network.say_move[-1].bias[MOVES.index((1, 0))] = 1e3
    ticks = simulated(model, start, None)
    values = outcomes(model, ticks)
    np.testing.assert_allclose(values["tiles south in 100 ticks"], 100)
    np.testing.assert_allclose(values["tiles east in 100 ticks"], 0)
    first, last = (tick.scene.own[:, model.network.position].numpy() for tick in (ticks[0], ticks[-1]))
    wanted = np.tile([TICKS - 1, 0], (len(first), 1))  # the last action's move comes after the last scene
    np.testing.assert_allclose(ENTITY_SCALES["row"] * (last - first), wanted, atol=1e-4)


def test_edits_begin_where_unedited_lives_do_and_none_changes_nothing(model, start, recorded) -> None:
    plain = simulated(model, start, None)
    for same in (Edits("none", (), states=(Untouched("lstm_cell"), Untouched("encoder_output"))), Edits("none", ())):
        assert_same(plain, simulated(model, start, same))
    (cleared,) = edits_of(model, recorded, [], EditOptions(edit="clear"))
    edited = simulated(model, start, cleared)
    assert torch.equal(plain[0].scene.own, edited[0].scene.own)
    assert not torch.equal(plain[0].choices.value, edited[0].choices.value)
    nothing = model.policy.initial_state(len(start))
    for tick in edited:
        choices, memory = soft_tick(model.policy, tick.view.observation, nothing)
        torch.testing.assert_close(tick.choices.value, choices.value.detach())
        torch.testing.assert_close(tick.memory.cell, memory.cell.detach())


@pytest.mark.parametrize("layer", ["encoder_output", "lstm_hidden", "lstm_cell", "action_decoder"])
def test_splicing_a_perfect_dictionary_changes_nothing_and_a_poor_one_does(model, start, recorded, layer) -> None:
    plain = simulated(model, start, None)
    splice, kept = EditOptions(edit="splice"), (axes(layer, 16, k=k) for k in (16, 1))
    (whole,), (poor,) = (edits_of(model, recorded, [], splice, dictionary=dictionary) for dictionary in kept)
    assert whole.name == "splice"
    for one, other in zip(plain, simulated(model, start, whole), strict=True):
        torch.testing.assert_close(one.choices.value, other.choices.value)
        assert all(torch.equal(one.options[head], other.options[head]) for head in one.options)
    assert float((plain[0].choices.value - simulated(model, start, poor)[0].choices.value).abs().max()) > 1e-4


def test_features_get_their_strengths(model, start, recorded) -> None:
    """Feature 2 is unit 2, where it points up; feature 3 is taken out, whatever the dose of the other."""
    steer = EditOptions(edit="steer", direction="feature_2", dose="0,1.5")
    out = EditOptions(edit="collapse", direction="feature_3")
    made = edits_of(model, recorded, [], steer, out, dictionary=axes("lstm_cell", 16))
    assert [item.name for item in made] == [f"steer-feature_2-dose{dose}-collapse-feature_3" for dose in ("+0", "+1.5")]
    assert made[1].described[0] == {
        "edit": "steer", "features": ["feature_2"], "layer": "lstm_cell", "dictionary": "run/topk", "dose": 1.5
    }  # fmt: skip
    for dose, edits in zip((0, 1.5), made, strict=True):
        for _, computed, memory in updates(model, start, simulated(model, start, edits)):
            wanted = computed.cell[-1].clone()
            wanted[:, 2:4] = wanted[:, 2:4].clamp(max=0) + torch.tensor([dose, 0.0])
            torch.testing.assert_close(memory.cell[-1], wanted, **CLOSE)


@pytest.mark.parametrize("layer", ["encoder_output", "lstm_hidden", "lstm_cell"])
def test_what_could_be_read_is_gone(model, start, recorded, layer) -> None:
    """From the states that the eraser was fitted to, on maps that simulations do not start on, and in simulations."""
    (edits,) = edits_of(model, recorded, [], EditOptions(edit="erase", variable="tick,self_food", layer=layer))
    assert edits.name == f"erase-tick-self_food-{layer}"
    records = read_dump(recorded.dump, layers=[layer], episodes=recorded.train)
    states = records.activations[layer]
    values = np.stack([records.tick, Observed(records, recorded.metadata).own("food")], axis=1)
    (eraser,) = edits.states
    erased = eraser.apply(torch.from_numpy(states).double()).numpy()  # else rounding can be read

    def scores(states: np.ndarray) -> list[float]:
        return [LinearRegression().fit(states, value).score(states, value) for value in values.T]

    before, after = scores(states.astype(float)), scores(erased.astype(float))
    assert min(before) > 0.1 and after == pytest.approx([0, 0], abs=1e-4)
    (shown,) = edits.described
    assert (shown["layer"], shown["states"]) == (layer, len(records))
    assert list(shown["r_squared"].values()) == pytest.approx(before, abs=1e-4)
    assert isinstance(eraser, Eraser)
    for tick in simulated(model, start, edits):
        result = {"lstm_hidden": tick.memory.hidden[-1], "lstm_cell": tick.memory.cell[-1], **tick.layers}[layer]
        np.testing.assert_allclose((result.numpy() - eraser.mean) @ eraser.right.T, 0, atol=1e-3)


def test_a_dump_without_maps_of_the_training_is_erased_from_where_simulations_start(model, recorded) -> None:
    origin = recorded.origin()
    assert HeldOut(model, origin, recorded.dump).known == recorded.train
    everything = replace(origin, train=(), test=tuple(sorted((*origin.train, *origin.test))))
    assert HeldOut(model, everything, recorded.dump).known == everything.test


@pytest.mark.parametrize("layer", ["lstm_cell", "lstm_hidden"])
@pytest.mark.parametrize("change", [False, True])
def test_swaps_move_what_varies_along_one_direction_to_another(model, start, recorded, layer, change) -> None:
    """On the change: d' = d - (d . from) from + (d . from) to. On the state: the first direction keeps its mean."""
    units = model.policy.policy.hidden_size
    given = {"mean": 0.25, "spread": 1.0}
    result = [unit(1, units, "from", layer, **given), unit(4, units, "to", layer, **given)]
    (edits,) = edits_of(model, recorded, result, EditOptions(edit="swap", origin="from", target="to", change=change))
    assert edits.name == ("swap-from-to-change" if change else "swap-from-to")
    kind = layer.removeprefix("lstm_")
    for memories in updates(model, start, simulated(model, start, edits)):
        old, new, found_state = (getattr(memory, kind)[-1] for memory in memories)
        wanted = new.clone()
        wanted[:, 1] = old[:, 1] if change else 0.25
        wanted[:, 4] += new[:, 1] - wanted[:, 1]
        torch.testing.assert_close(found_state, wanted, **CLOSE)


def test_oblique_directions_are_swapped_with_the_recorded_covariance(model, start, recorded) -> None:
    units = model.policy.policy.hidden_size
    result = [unit(0, units, "a", "lstm_cell"), direction([1.0] * units, "b", "lstm_cell")]
    (edits,) = edits_of(model, recorded, result, EditOptions(edit="swap", origin="a", target="b"))
    for tick in simulated(model, start, edits):
        np.testing.assert_allclose(result[0].read_out(tick.memory.cell[-1].numpy()), 0, atol=1e-4)


def test_what_does_not_fit_is_refused(model, recorded) -> None:
    splice, missing = EditOptions(edit="splice"), EditOptions(edit="collapse", direction="feature_32")
    fitting, small = axes("lstm_cell", 16), axes("lstm_cell", 8)
    other = replace(fitting, source=replace(fitting.source, checkpoint_sha256="2" * 64))
    for options, dictionary, message in (
        (missing, fitting, "it has feature_0 to feature_31"), (splice, other, "was fitted to another policy"),
        (splice, small, "features of lstm_cell, 8 units, of planted"),
    ):  # fmt: skip
        assert_refuses(message, edits_of, model, recorded, [], options, dictionary=dictionary)
    for variable, layer, message in (
        ("self_npc_type", None, "--variable self_npc_type: it has the same value in all"),
        ("self_fod", None, "did you mean self_food"), ("tick", "lstm_cell_1", "there is no layer lstm_cell_1"),
    ):  # fmt: skip
        erase = EditOptions(edit="erase", variable=variable, layer=layer)
        assert_refuses(message, edits_of, model, recorded, [], erase)
    for layer, units, change, message in (
        ("lstm_cell_1", 16, False, "which small does not have"),
        ("lstm_cell", 8, False, "8 weights, but lstm_cell of small has 16 units"),
        ("encoder_output", 16, True, "not part of the memory"),
    ):
        collapse = EditOptions(edit="collapse", direction="a", change=change)
        assert_refuses(message, edits_of, model, recorded, [unit(0, units, "a", layer)], collapse)


FEATURE = "self_row"
LIVES = 16
TRANSPLANT = EditOptions(edit="transplant", donor=FEATURE)
INTERCHANGE = EditOptions(edit="interchange", direction="one", donor=FEATURE)


@pytest.fixture(scope="module")
def sixteen(model, recorded):
    with torch.no_grad():
        return informed_start(model, recorded.windows(LIVES)[0], torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def plain(model, sixteen) -> list[ImaginedTick]:
    return simulated(model, sixteen, None)


@torch.no_grad()
def unedited_lives(model, sixteen, alive: np.ndarray | None = None) -> UneditedLives:
    result = UneditedLives(("lstm_cell", "encoder_output"))
    for _ in imagine(model, sixteen, TICKS, torch.Generator().manual_seed(2), (), result):
        result.alive.append(np.ones(len(sixteen), bool) if alive is None else alive)
    return result


@pytest.fixture(scope="module")
def unedited(model, sixteen) -> UneditedLives:
    return unedited_lives(model, sixteen)


def one_edit(model, recorded, options: EditOptions, layer: str = "lstm_cell") -> Edits:
    (edits,) = edits_of(model, recorded, [unit(1, 16, "one", layer)], options)
    return edits


def rows(model: WorldModel, own: torch.Tensor) -> np.ndarray:
    """Values of the donors' feature."""
    place = own_columns(model.layout).index(FEATURE.removeprefix("self_"))
    return (own[:, place] * entity_features(model.layout).scale[place]).round().numpy()


def test_keeping_what_lives_can_give_and_edits_without_donors_change_nothing(
    model, sixteen, plain, unedited, recorded
) -> None:
    assert_same(plain, simulated(model, sixteen, UneditedLives(("lstm_cell", "encoder_output"))))
    for place, one in enumerate(plain):
        assert torch.equal(unedited.states["lstm_cell"][place], one.memory.cell[-1])
        assert torch.equal(unedited.states["encoder_output"][place], one.layers["encoder_output"])
        if place:
            assert torch.equal(unedited.memory[place].hidden, plain[place - 1].memory.hidden)
    nobody = unedited_lives(model, sixteen, np.zeros(LIVES, bool))
    for options in (TRANSPLANT, INTERCHANGE):
        made = EditsWithDonors(one_edit(model, recorded, options), nobody, model.layout, 0, 0)
        assert_same(plain, simulated(model, sixteen, made))
    # All agents have the same gold here, so nobody differs in it.
    place = own_columns(model.layout).index("gold")
    same = replace(
        sixteen, scene=replace(sixteen.scene, own=sixteen.scene.own.index_fill(1, torch.tensor([place]), 0.0))
    )
    transplant = EditOptions(edit="transplant", donor="self_gold")
    (edits,) = edits_of(model, recorded, [unit(1, 16, "one", "lstm_cell")], INTERCHANGE, transplant)
    made = EditsWithDonors(edits, unedited_lives(model, same), model.layout, 0, 0)
    made.begin(same.memory, 0, same.scene.own)
    assert not len(made.edited) and not made.hooks(same.memory)


def test_donors_are_far_alive_and_another_life(model, sixteen, recorded) -> None:
    alive = np.arange(LIVES) % 3 > 0
    some, place = unedited_lives(model, sixteen, alive), own_columns(model.layout).index("row")
    made = EditsWithDonors(one_edit(model, recorded, TRANSPLANT), some, model.layout, 0, 0)
    chosen = set()
    for tick in range(TICKS):
        own = sixteen.scene.own.clone()
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
    made.begin(some.memory[0], 0, sixteen.scene.own), later.begin(some.memory[0], 0, sixteen.scene.own)
    assert torch.equal(*(torch.cat(list(item.donors.values())) for item in (made, later)))


@torch.no_grad()
def test_lives_have_exactly_their_donors_memories_and_read_outs(model, sixteen, recorded, unedited) -> None:
    edits = one_edit(model, recorded, replace(TRANSPLANT, every=2))
    assert edits.name == f"transplant-every_2-{FEATURE}"
    assert edits.described == ({"edit": "transplant", "every": 2, "donor": FEATURE},)
    made, before = EditsWithDonors(edits, unedited, model.layout, 0, 0), sixteen.memory
    for number, tick in enumerate(imagine(model, sixteen, TICKS, torch.Generator().manual_seed(2), (), made)):
        begun = MemoryState(before.hidden.clone(), before.cell.clone())
        assert len(made.edited) > LIVES / 2
        if number % 2 == 0:
            (given,) = made.donors.values()
            begun.put(made.edited, unedited.memory[number].take(given))
        _, wanted = soft_tick(model.policy, tick.view.observation, begun)
        assert torch.equal(tick.memory.cell, wanted.cell) and torch.equal(tick.memory.hidden, wanted.hidden)
        assert number or not torch.equal(begun.cell, before.cell)
        before = tick.memory
    edits = one_edit(model, recorded, INTERCHANGE)
    assert edits.name == f"interchange-one-{FEATURE}"
    made = EditsWithDonors(edits, unedited, model.layout, 0, 0)
    ticks = imagine(model, sixteen, TICKS, torch.Generator().manual_seed(2), (), made)
    for number, (_, computed, memory) in enumerate(updates(model, sixteen, ticks)):
        wanted = computed.cell[-1].clone()
        (given,) = made.donors.values()
        wanted[made.edited, 1] = unedited.states["lstm_cell"][number][given, 1]
        torch.testing.assert_close(memory.cell[-1], wanted, rtol=1e-5, atol=1e-5)


def test_features_that_lives_cannot_differ_in_are_refused(model, recorded) -> None:
    policy = copy.deepcopy(model.policy)
    policy.mask = ObservationMask(own=("food",))  # what the policy does not see no simulated life has
    for donor, message in (
        ("self_rwo", "did you mean self_row"), ("tick", "the same tick"),
        ("self_npc_type", "simulated lives do not have it"),
        ("self_food", "--donor self_food: simulated lives do not have it"),
    ):  # fmt: skip
        blind = replace(model, policy=policy) if donor == "self_food" else model
        assert_refuses(message, one_edit, blind, recorded, replace(TRANSPLANT, donor=donor))
