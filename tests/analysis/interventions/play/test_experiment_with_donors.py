"""Edits with donors: their arms and controls, and planted variables that they give move actions alone in the game."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from activation_store.interventions import Arm
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.layers import ENTITY_SCALES
from analysis.interventions.edits.donor_rule import DonorLots, DonorRule, Donors
from analysis.interventions.edits.edit import Edit, measured_in, same_variance
from analysis.interventions.edits.edit_options import RunOptions
from analysis.interventions.edits.linear_readings import StateMoments, leading_components
from analysis.interventions.edits.memory_edits import Clear, MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import Interchange, collapse, steer, swap
from analysis.interventions.play.experiment import AT_ONCE_CONTROLS, ArmPlan, Experiment, When
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.command import assert_refuses
from tests.driven import DRIVER, UNITS, drive, emptied_gates, lives_of, played
from tests.planted_interventions import direction, unit
from tests.tiny_policies import tiny_entrant

SIZE = 6
STATES, DONORS = (torch.randn(20, SIZE, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
MOMENTS = dict.fromkeys(("lstm_hidden", "lstm_cell"), StateMoments.of(STATES.numpy()))
BY_FOOD = DonorRule("self_food")
TRANSPLANT = Edit("transplant", every=8, donor=BY_FOOD)
INTERCHANGE = Edit("interchange", (unit(2, SIZE),), donor=BY_FOOD)


def experiment(*edits: Edit) -> Experiment:
    return Experiment(RunOptions(controls=2), edits, 4, memory=("lstm_hidden", "lstm_cell"))


def arms(*edits: Edit) -> dict[str, Arm]:
    return {arm.name: arm for arm in experiment(*edits).arms()}


def test_transplants_and_interchanges_have_controls_of_their_own() -> None:
    common = {"unedited", "untrained, unedited", "no edit", "edit", "untrained, edit"}
    common |= {"random direction 1", "random direction 2"}
    assert set(arms(TRANSPLANT)) == common | {"random donor 1", "random donor 2"}
    assert set(arms(INTERCHANGE)) == common | {"same variance 1", "same variance 2"}
    assert set(arms(TRANSPLANT, INTERCHANGE)) == set(arms(TRANSPLANT))
    result = experiment(TRANSPLANT)
    plans = {name: result.plan(arm, MOMENTS) for name, arm in arms(TRANSPLANT).items()}
    assert plans["unedited"].watched == ("lstm_hidden", "lstm_cell") and not plans["no edit"].donors
    assert plans["edit"].memories == (Transplant(BY_FOOD, 8),) == plans["untrained, edit"].memories
    assert [plans[f"random donor {number}"].donors[0].lottery for number in (1, 2)] == [1, 2]
    (moved,) = plans["random direction 1"].memories
    assert isinstance(moved, MovedAsFar) and moved.donor == BY_FOOD and moved.original == Transplant(BY_FOOD, 8)
    assert set(plans["edit"].spans) == {"lstm_hidden", "lstm_cell"}


def test_controls_do_not_coincide_and_read_nothing_of_what_is_edited() -> None:
    """Even if states vary more along each edited direction than along any other: the nearest is the same for both."""
    states = np.random.default_rng(0).standard_normal((400, 16)) * np.array([9, 9, 3, 2.9, *[1] * 12])
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    edited = [measured_in(unit(number, 16), moments) for number in (0, 1)]
    one, other = same_variance(edited, moments, np.random.default_rng(0))
    covariance = moments["lstm_hidden"].covariance
    assert abs(one.weight @ covariance @ other.weight) < 1e-3 * one.spread * other.spread
    assert np.abs(swap(one, other, "change", lambda layer: covariance).write).max() < 5
    generator = np.random.default_rng(0)
    states = generator.standard_normal((400, SIZE)) * [1, 1, 9, 1, 1, 1]
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    covariance, own = moments["lstm_hidden"].covariance, np.eye(SIZE)[2]
    result = experiment(INTERCHANGE)
    (made,) = result.plan(arms(INTERCHANGE)["same variance 1"], moments).states
    assert isinstance(made, Interchange)
    (read,) = made.read_outs.read
    assert abs(read @ covariance @ own) < 1e-4 * np.sqrt((read @ covariance @ read) * (own @ covariance @ own))
    rest = np.delete(np.delete(covariance, 2, axis=0), 2, axis=1)
    lowest, highest = np.linalg.eigvalsh(rest)[[0, -1]]
    assert 0.999 * lowest < read @ covariance @ read < 1.001 * highest


@pytest.mark.parametrize("wanted", [0.95, 2.0])
def test_controls_of_the_same_variance_differ(wanted: float) -> None:
    """Also where one direction alone varies as much, or none."""
    scales = np.sqrt([1, 0.8, 0.5, 0.3, *[0.1] * 60, wanted])
    states = np.random.default_rng(0).standard_normal((4000, 65)) * scales
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    edited = [measured_in(unit(64, 65), moments)]
    drawn = [same_variance(edited, moments, np.random.default_rng(seed))[0] for seed in range(20)]
    alike = np.abs(np.corrcoef([direction.weight for direction in drawn]))[np.triu_indices(20, 1)]
    assert np.median(alike) < 0.5
    assert 0.4 < np.median([direction.spread for direction in drawn]) ** 2 < 1.1, "a random one has 0.14"


def test_an_interchange_takes_the_donors_read_outs_and_its_control_as_much() -> None:
    oblique, other = direction([1, 2, 0, 0, 0, 0.5], bias=3.0), direction([0, 1, 1, 0, 0, 0], "other")
    after = Interchange(collapse([oblique, other], "state"), BY_FOOD).edited(None, STATES, DONORS).numpy()
    for case in (oblique, other):
        np.testing.assert_allclose(case.read_out(after), case.read_out(DONORS.numpy()), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(after[:, [3, 4]], STATES.numpy()[:, [3, 4]])
    result = experiment(INTERCHANGE)
    (edit,) = result.plan(arms(INTERCHANGE)["edit"], MOMENTS).states
    (moved,) = result.plan(arms(INTERCHANGE)["random direction 1"], MOMENTS).states
    assert isinstance(edit, Interchange) and isinstance(moved, Interchange) and moved.along is not None
    meant, change = ((case.edited(None, STATES, DONORS) - STATES).double() for case in (edit, moved))
    torch.testing.assert_close(change.norm(dim=1), meant.norm(dim=1), rtol=1e-4, atol=1e-5)
    along = torch.from_numpy(moved.along[0])
    torch.testing.assert_close((change @ along).abs(), change.norm(dim=1), rtol=1e-4, atol=1e-5)
    assert ((change @ along > 0) == ((DONORS - STATES).double() @ along > 0)).all()


IDLE = 5
GROUP = Group(4, (0, 1))
BY_ROW = DonorRule("self_row")
NORTH = steer(unit(DRIVER, UNITS), 0.9)


BY_ROWS = (Interchange(collapse([unit(DRIVER, UNITS)], "state"), BY_ROW),)
MADE = ({"states": (NORTH,), "memories": (Clear(3),)}, {"states": BY_ROWS, "memories": (Transplant(BY_ROW, 2),)})


@pytest.mark.parametrize("made", MADE, ids=["state and memory", "donors"])
def test_the_edit_as_its_own_control_does_the_same(pool: PolicyPool, made: dict[str, tuple[object, ...]]) -> None:
    idle = ArmPlan("idle", 4, states=(steer(unit(IDLE, UNITS), 0.0),))
    same = ArmPlan("same", 4, **made)  # type: ignore[arg-type]
    alone = lives_of(pool, GROUP, ArmPlan("edit", 4, **made)).of_arm("edit")  # type: ignore[arg-type]
    table = lives_of(pool, GROUP, ArmPlan("edit", 4, controls=(same, idle), **made))  # type: ignore[arg-type]
    edit, control, other = (table.of_arm(name) for name in ("edit", "same", "idle"))
    assert control.edited.all() and len(control) == 8 == edit.edited.sum()
    at_once = ("kl_in_play", "gain_in_play", "value_change_in_play", "follows")
    measured = [name for name in edit.outcomes if name.startswith(at_once)]
    assert len(measured) > 5 and np.nanmax(edit.outcomes["kl_in_play"]) > 1e-5
    for name in measured:
        np.testing.assert_allclose(control.outcomes[name], edit.outcomes[name][edit.edited], 1e-2, 1e-6, err_msg=name)
    assert np.isnan(control.outcomes["ticks"]).all()
    assert np.nanmax(np.abs(other.outcomes["kl_in_play"] - control.outcomes["kl_in_play"])) > 1e-6
    for name, values in alone.outcomes.items():
        np.testing.assert_array_equal(edit.outcomes[name], values, err_msg=f"measuring controls changed {name}")


def test_edits_have_twenty_controls_at_once_from_the_state_itself() -> None:
    def experiment(controls: int) -> Experiment:
        edit = Edit("steer", (unit(2, 6),))
        return Experiment(RunOptions(dose="-1,2", controls=controls), (edit,), 4, memory=("lstm_cell",))

    assert experiment(0).all_arms() == experiment(0).arms()
    result = experiment(3)
    more = result.all_arms()[len(result.arms()) :]
    assert len(more) == 2 * 2 * AT_ONCE_CONTROLS >= 2 * 2 * 19 and len({arm.name for arm in result.all_arms()}) > 80
    arm = next(arm for arm in result.arms() if arm.name == "edit, dose +2")
    states = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    moments = {"lstm_hidden": StateMoments.of(states)}
    plan = result.plan(arm, moments)
    assert [control.name for control in plan.controls] == [control.name for control in more if control.dose == 2]
    played = result.plan(next(arm for arm in result.arms() if arm.name == "random direction 2, dose +2"), moments)
    twin = next(control for control in plan.controls if control.name == "random direction 2 at once, dose +2")
    np.testing.assert_array_equal(twin.states[0].directions, played.states[0].directions)  # type: ignore[union-attr]
    assert not played.controls
    # Nobody has held a state along their directions, while the edit finds its own where it has put it.
    kept = Experiment(RunOptions(controls=3), (Edit("collapse", (unit(2, 6),)),), 4, memory=("lstm_hidden",))
    moments = {"lstm_hidden": StateMoments.of(np.random.default_rng(0).normal(1, 1, (20, 6)).astype(np.float32))}
    edit, random = (next(arm for arm in kept.arms() if arm.name == name) for name in ("edit", "random direction 1"))
    assert kept.plan(random, moments).states[0].start is not None  # type: ignore[union-attr]
    controls = kept.plan(edit, moments).controls
    assert len(controls) == AT_ONCE_CONTROLS and all("random direction" in control.name for control in controls)
    assert all(control.states[0].start is None for control in controls)  # type: ignore[union-attr]


ROWS, COLUMNS, IDLE_UNIT = 3, 5, 9  # units of the hidden state that hold the agent's row, column and row on the map
FOUR = Group(4, (0, 1, 2, 3))
TO_NORTH, MELEE = "Move.Direction/North", "Attack.Style/Melee"


@pytest.fixture(scope="module")
def rows_pool(small_world, task, maps) -> PolicyPool:
    """A policy built by hand: its memory holds the agent's row, which drives the move to the north, and its column,
    which drives the choice of melee; an idle unit holds the row too, and drives nothing."""
    env = replace(small_world, spawn_immunity=0, horizon=12)
    entrant = tiny_entrant(env, task, maps, hidden_size=UNITS)
    plant(entrant.policy)
    return Contest((entrant,), env, task, maps, torch.device("cpu")).pool(len(FOUR.numbers))


@torch.no_grad()
def plant(policy: RecurrentPolicy) -> None:
    encoder = policy.policy
    inputs, _, bias = emptied_gates(policy)
    for weight in [*encoder.projection.parameters(), *encoder.self_encoder.parameters()]:
        weight.zero_()
    columns = list(encoder.layout.entity_columns)
    entering, forgetting, candidate, output = range(4)
    for state, name in ((ROWS, "row"), (COLUMNS, "col"), (IDLE_UNIT, "row")):
        kept = [column for column in columns if column != "npc_type"].index(name)
        place = encoder.self_encoder.in_features - len(columns) + 1 + kept
        encoder.self_encoder.weight[state, place] = 1 / ENTITY_SCALES[name]
        encoder.projection.weight[state, UNITS + state] = 1  # the agent's own row is the second part
        inputs[candidate, state, state] = 4
    bias[entering], bias[forgetting], bias[output] = 9, 0, 9  # a cell forgets half of itself in a tick
    drive(policy, 3, Move=ROWS, Style=COLUMNS)


def outcomes(rows_pool: PolicyPool, **given: object) -> Mapping[str, np.ndarray]:
    plan = ArmPlan("edit", given.pop("drawn", 6), **given)  # type: ignore[arg-type]
    table = lives_of(rows_pool, FOUR, plan)
    assert all(np.isnan(values[~table.edited]).all() for name, values in table.outcomes.items() if "follows" in name)
    return table.outcomes


def followed(measured: Mapping[str, np.ndarray], option: str) -> list[float]:
    """Mean shares over lives: with a lower and with a higher donor."""
    sides = [measured[f"follows_{side}/self_row/{option}"] for side in ("lower", "higher")]
    assert all(np.isfinite(item).sum() > 5 for item in sides)
    return [float(np.nanmean(item)) for item in sides]


def along(place: int) -> tuple[Interchange, ...]:
    return (Interchange(collapse([unit(place, UNITS)], "state"), BY_ROW),)


def test_actions_follow_what_drives_them_and_nothing_that_the_edited_direction_does_not_hold(
    rows_pool: PolicyPool,
) -> None:
    """An agent whose donor is further south goes north more, at the cost of all other options; columns do not tell."""
    result = outcomes(rows_pool, states=along(ROWS))
    assert followed(result, TO_NORTH) == [1, 1] and followed(result, "Move.Direction/South") == [0, 0]
    assert f"follows_higher/self_row/{MELEE}" not in result
    result = outcomes(rows_pool, states=along(COLUMNS), drawn=10)
    assert 0.3 < np.mean(followed(result, MELEE)) < 0.7
    assert f"follows_higher/self_row/{TO_NORTH}" not in result
    result = outcomes(rows_pool, states=along(IDLE_UNIT), when=When(4, 6))
    assert not any("follows" in name for name in result) and np.nanmax(result["kl_total"]) < 1e-6


def test_the_memory_of_another_agent_moves_actions_as_planted(
    rows_pool: PolicyPool,
) -> None:
    result = outcomes(rows_pool, memories=(Transplant(BY_ROW, 1),), when=When(4))
    assert followed(result, TO_NORTH) == [1, 1]
    assert 0.3 < np.mean(followed(result, MELEE)) < 0.7
    # So actions follow all donors of one side and none of the other, which is half.
    result = outcomes(rows_pool, memories=(MovedAsFar(Transplant(BY_ROW, 1), seed=3),), when=When(4))
    assert sorted(followed(result, TO_NORTH)) == [0, 1]
    plans = ({"memories": (Transplant(BY_ROW, every),), "when": When(4)} for every in (1, 4))
    often, rarely = (np.nanmean(outcomes(rows_pool, **plan)["kl_total"]) for plan in plans)
    assert 0 < rarely < often


def test_changes_are_compared_with_the_span_of_unedited_states(rows_pool: PolicyPool) -> None:
    """States vary in two ways only, since two units always change together. A change of one of them is half unusual."""
    layers = ("lstm_hidden", "lstm_cell")
    moments = played(rows_pool, FOUR, ArmPlan("edit", 6, watched=layers)).moments
    spans = {layer: leading_components(own.covariance) for layer, own in moments.items()}
    assert [len(span) for span in spans.values()] == [2, 2]
    given = {"spans": spans, "when": When(4)}
    for plan, share in (
        ({"states": along(COLUMNS)}, 1), ({"states": along(ROWS)}, 0.5), ({"memories": (Transplant(BY_ROW, 2),)}, 1),
    ):  # fmt: skip
        within = outcomes(rows_pool, **plan, **given)["within_data"]
        np.testing.assert_allclose([np.nanmin(within), np.nanmax(within)], share, atol=1e-3)


def test_donors_are_never_edited_and_without_anyone_who_differs_nobody_is(
    rows_pool: PolicyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, seen = DonorLots.draw, list[tuple[int, int]]()

    def spy(self: DonorLots, edited, slots, *more):
        kept, donors = draw(self, edited, slots, *more)
        seen.extend((len(kept), self._drawn[slots[donor.rows]].sum()) for donor in donors.values())
        assert self._drawn[slots[kept]].all()
        return kept, donors

    monkeypatch.setattr(DonorLots, "draw", spy)
    outcomes(rows_pool, states=along(ROWS), memories=(Transplant(DonorRule("self_col", lottery=1), 1),))
    assert sum(edited for edited, _ in seen) > 100 and not sum(wrong for _, wrong in seen)
    # All agents have full health at first.
    result = outcomes(rows_pool, memories=(Transplant(DonorRule("self_health"), 1),), when=When(0, 1))
    assert "kl_total" not in result and "edited_ticks" not in result


def test_the_same_plan_gives_the_same_lives(rows_pool: PolicyPool) -> None:
    states = (*along(ROWS), collapse([unit(IDLE_UNIT, UNITS)], "change"))
    first, second = (outcomes(rows_pool, memories=(Transplant(BY_ROW, 1),), states=states) for _ in range(2))
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


OBSERVED = ("id", "row", "food")
SLOTS = 48
DRAWN = np.arange(SLOTS) % 4 == 0
FOOD = np.random.default_rng(0).integers(0, 100, SLOTS)


def draw(
    rule: DonorRule, food: np.ndarray = FOOD, slots: np.ndarray | None = None, tick: int = 3, **given: int
) -> tuple[np.ndarray, np.ndarray, Donors]:
    """Return the slots of the edited agents and of their donors, and the donors."""
    slots = np.arange(SLOTS) if slots is None else slots
    rows = np.stack([slots, slots, food[slots]], axis=1)
    lots = DonorLots([rule], DRAWN, given.get("seed", 1), (0, 1, 2, 3))
    edited, donors = lots.draw(np.flatnonzero(DRAWN[slots]), slots, rows, OBSERVED, tick)
    return slots[edited], slots[donors[rule].rows], donors[rule]


def test_donors_are_far_and_vary() -> None:
    of_ticks = [draw(BY_FOOD, tick=tick) for tick in range(40)]
    for edited, chosen, donors in of_ticks:
        assert DRAWN[edited].all() and not DRAWN[chosen].any()
        np.testing.assert_array_equal(donors.own, FOOD[edited])
        np.testing.assert_array_equal(donors.given, FOOD[chosen])
        for own, given in zip(donors.own, donors.given, strict=True):
            others = np.abs(FOOD[~DRAWN] - own)
            assert (others > abs(given - own)).sum() < np.ceil((others > 0).sum() / 4)
    assert all(len({chosen[place] for _, chosen, _ in of_ticks}) >= 6 for place in range(DRAWN.sum()))


def test_lots_depend_on_tick_seed_and_agent_alone_and_random_ones_not_on_values() -> None:
    edited, chosen, _ = draw(BY_FOOD)
    np.testing.assert_array_equal(draw(BY_FOOD)[1], chosen)
    assert (draw(BY_FOOD, tick=4)[1] != chosen).any() and (draw(BY_FOOD, seed=2)[1] != chosen).any()
    fewer = np.setdiff1d(np.arange(SLOTS), edited[::2])  # half of the edited agents have died
    np.testing.assert_array_equal(draw(BY_FOOD, slots=fewer)[1], chosen[1::2])
    values = np.concatenate([draw(DonorRule("self_food", lottery=1), tick=tick)[2].given for tick in range(60)])
    assert abs(values.mean() - FOOD[~DRAWN].mean()) < 5
    assert len(np.unique(values)) == len(np.unique(FOOD[~DRAWN]))
    assert (draw(DonorRule("self_food", lottery=2))[1] != draw(DonorRule("self_food", lottery=1))[1]).any()


def test_agents_need_a_donor_that_differs_for_every_edit() -> None:
    assert len(draw(BY_FOOD, food=np.full(SLOTS, 7))[0]) == 0
    assert len(draw(DonorRule("self_food", lottery=1), food=np.full(SLOTS, 7))[0]) == 0
    assert len(draw(BY_FOOD, slots=np.flatnonzero(DRAWN))[0]) == 0
    one = np.where(DRAWN & (np.arange(SLOTS) > 20), 8, 7)  # some of the edited differ from all donors
    assert (draw(BY_FOOD, food=one)[0] > 20).all() and len(draw(BY_FOOD, food=one)[0]) == 6
    rows = np.stack([np.arange(SLOTS), np.zeros(SLOTS), FOOD], axis=1).astype(int)
    lots = DonorLots([BY_FOOD, DonorRule("self_row")], DRAWN, 1, (0,))
    edited, donors = lots.draw(np.flatnonzero(DRAWN), np.arange(SLOTS), rows, OBSERVED, 0)
    assert len(edited) == 0 and {len(donor.rows) for donor in donors.values()} == {0}


@pytest.mark.parametrize(("feature", "message"), [("self_fod", "did you mean self_food"), ("tick", "the same tick")])
def test_features_that_donors_cannot_differ_in_are_refused(feature: str, message: str) -> None:
    assert_refuses(message, DonorRule.parse, feature, OBSERVED)
