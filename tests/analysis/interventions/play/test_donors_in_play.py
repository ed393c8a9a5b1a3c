"""Donors are far and drawn by lot, and in the real game a planted variable that they give moves its action alone."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.layers import ENTITY_SCALES
from analysis.interventions.edits.donor_rule import DonorLots, DonorRule, Donors
from analysis.interventions.edits.linear_readings import leading_components
from analysis.interventions.edits.memory_edits import MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import Interchange, collapse
from analysis.interventions.play.experiment import ArmPlan, When
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.command import assert_refuses
from tests.driven import UNITS, drive, emptied_gates, lives_of, played
from tests.planted_interventions import unit
from tests.tiny_policies import tiny_entrant

ROWS, COLUMNS, IDLE = 3, 5, 9  # units of the hidden state that hold the agent's row, column and row on the map
GROUP = Group(4, (0, 1, 2, 3))
BY_ROW = DonorRule("self_row")
NORTH, MELEE = "Move.Direction/North", "Attack.Style/Melee"


@pytest.fixture(scope="module")
def pool(small_world, task, maps) -> PolicyPool:
    """A policy built by hand: its memory holds the agent's row, which drives the move to the north, and its column,
    which drives the choice of melee; an idle unit holds the row too, and drives nothing."""
    env = replace(small_world, spawn_immunity=0, horizon=12)
    entrant = tiny_entrant(env, task, maps, hidden_size=UNITS)
    plant(entrant.policy)
    return Contest((entrant,), env, task, maps, torch.device("cpu")).pool(len(GROUP.numbers))


@torch.no_grad()
def plant(policy: RecurrentPolicy) -> None:
    encoder = policy.policy
    inputs, _, bias = emptied_gates(policy)
    for weight in [*encoder.projection.parameters(), *encoder.self_encoder.parameters()]:
        weight.zero_()
    columns = list(encoder.layout.entity_columns)
    entering, forgetting, candidate, output = range(4)
    for state, name in ((ROWS, "row"), (COLUMNS, "col"), (IDLE, "row")):
        kept = [column for column in columns if column != "npc_type"].index(name)
        place = encoder.self_encoder.in_features - len(columns) + 1 + kept
        encoder.self_encoder.weight[state, place] = 1 / ENTITY_SCALES[name]
        encoder.projection.weight[state, UNITS + state] = 1  # the agent's own row is the second part
        inputs[candidate, state, state] = 4
    bias[entering], bias[forgetting], bias[output] = 9, 0, 9  # a cell forgets half of itself in a tick
    drive(policy, 3, Move=ROWS, Style=COLUMNS)


def outcomes(pool: PolicyPool, **given: object) -> Mapping[str, np.ndarray]:
    plan = ArmPlan("edit", given.pop("drawn", 6), **given)  # type: ignore[arg-type]
    table = lives_of(pool, GROUP, plan)
    assert all(np.isnan(values[~table.edited]).all() for name, values in table.outcomes.items() if "follows" in name)
    return table.outcomes


def followed(measured: Mapping[str, np.ndarray], option: str) -> list[float]:
    """Mean shares over lives: with a lower and with a higher donor."""
    sides = [measured[f"follows_{side}/self_row/{option}"] for side in ("lower", "higher")]
    assert all(np.isfinite(item).sum() > 5 for item in sides)
    return [float(np.nanmean(item)) for item in sides]


def along(place: int) -> tuple[Interchange, ...]:
    return (Interchange(collapse([unit(place, UNITS)], "state"), BY_ROW),)


def test_actions_follow_what_drives_them_and_nothing_that_the_edited_direction_does_not_hold(pool: PolicyPool) -> None:
    """An agent whose donor is further south goes north more, at the cost of all other options; columns do not tell."""
    result = outcomes(pool, states=along(ROWS))
    assert followed(result, NORTH) == [1, 1] and followed(result, "Move.Direction/South") == [0, 0]
    assert f"follows_higher/self_row/{MELEE}" not in result
    result = outcomes(pool, states=along(COLUMNS), drawn=10)
    assert 0.3 < np.mean(followed(result, MELEE)) < 0.7
    assert f"follows_higher/self_row/{NORTH}" not in result


def test_a_direction_that_drives_nothing_has_no_share(pool: PolicyPool) -> None:
    result = outcomes(pool, states=along(IDLE), when=When(4, 6))
    assert not any("follows" in name for name in result) and np.nanmax(result["kl_total"]) < 1e-6


def test_the_memory_of_another_agent_moves_actions_as_planted(pool: PolicyPool) -> None:
    result = outcomes(pool, memories=(Transplant(BY_ROW, 1),), when=When(4))
    assert followed(result, NORTH) == [1, 1]
    assert 0.3 < np.mean(followed(result, MELEE)) < 0.7


def test_a_memory_moved_in_a_random_direction_moves_actions_to_one_side(pool: PolicyPool) -> None:
    """So they follow all donors of one side and none of the other, which is half."""
    result = outcomes(pool, memories=(MovedAsFar(Transplant(BY_ROW, 1), seed=3),), when=When(4))
    assert sorted(followed(result, NORTH)) == [0, 1]


def test_a_memory_transplanted_once_fades(pool: PolicyPool) -> None:
    plans = ({"memories": (Transplant(BY_ROW, every),), "when": When(4)} for every in (1, 4))
    often, rarely = (np.nanmean(outcomes(pool, **plan)["kl_total"]) for plan in plans)
    assert 0 < rarely < often


def test_changes_are_compared_with_the_span_of_unedited_states(pool: PolicyPool) -> None:
    """States vary in two ways only, since two units always change together. A change of one of them is half unusual."""
    layers = ("lstm_hidden", "lstm_cell")
    moments = played(pool, GROUP, ArmPlan("edit", 6, watched=layers)).moments
    spans = {layer: leading_components(own.covariance) for layer, own in moments.items()}
    assert [len(span) for span in spans.values()] == [2, 2]
    given = {"spans": spans, "when": When(4)}
    for plan, share in (
        ({"states": along(COLUMNS)}, 1), ({"states": along(ROWS)}, 0.5), ({"memories": (Transplant(BY_ROW, 2),)}, 1),
    ):  # fmt: skip
        within = outcomes(pool, **plan, **given)["within_data"]
        np.testing.assert_allclose([np.nanmin(within), np.nanmax(within)], share, atol=1e-3)


def test_donors_are_never_edited(pool: PolicyPool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, seen = DonorLots.draw, list[tuple[int, int]]()

    def spy(self: DonorLots, edited, slots, *more):
        kept, donors = draw(self, edited, slots, *more)
        seen.extend((len(kept), self._drawn[slots[donor.rows]].sum()) for donor in donors.values())
        assert self._drawn[slots[kept]].all()
        return kept, donors

    monkeypatch.setattr(DonorLots, "draw", spy)
    outcomes(pool, states=along(ROWS), memories=(Transplant(DonorRule("self_col", lottery=1), 1),))
    assert sum(edited for edited, _ in seen) > 100 and not sum(wrong for _, wrong in seen)


def test_without_anyone_who_differs_nobody_is_edited(pool: PolicyPool) -> None:
    """All agents have full health at first."""
    result = outcomes(pool, memories=(Transplant(DonorRule("self_health"), 1),), when=When(0, 1))
    assert "kl_total" not in result and "edited_ticks" not in result


def test_the_same_plan_gives_the_same_lives(pool: PolicyPool) -> None:
    states = (*along(ROWS), collapse([unit(IDLE, UNITS)], "change"))
    first, second = (outcomes(pool, memories=(Transplant(BY_ROW, 1),), states=states) for _ in range(2))
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


OBSERVED = ("id", "row", "food")
SLOTS = 48
DRAWN = np.arange(SLOTS) % 4 == 0
FOOD = np.random.default_rng(0).integers(0, 100, SLOTS)
BY_FOOD = DonorRule("self_food")


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


def test_lots_depend_on_the_tick_the_seed_and_the_agent_alone() -> None:
    edited, chosen, _ = draw(BY_FOOD)
    np.testing.assert_array_equal(draw(BY_FOOD)[1], chosen)
    assert (draw(BY_FOOD, tick=4)[1] != chosen).any() and (draw(BY_FOOD, seed=2)[1] != chosen).any()
    fewer = np.setdiff1d(np.arange(SLOTS), edited[::2])  # half of the edited agents have died
    np.testing.assert_array_equal(draw(BY_FOOD, slots=fewer)[1], chosen[1::2])


def test_random_donors_are_drawn_whatever_their_values() -> None:
    given = np.concatenate([draw(DonorRule("self_food", lottery=1), tick=tick)[2].given for tick in range(60)])
    assert abs(given.mean() - FOOD[~DRAWN].mean()) < 5
    assert len(np.unique(given)) == len(np.unique(FOOD[~DRAWN]))
    assert (draw(DonorRule("self_food", lottery=2))[1] != draw(DonorRule("self_food", lottery=1))[1]).any()


def test_agents_without_anyone_who_differs_have_no_donor() -> None:
    assert len(draw(BY_FOOD, food=np.full(SLOTS, 7))[0]) == 0
    assert len(draw(DonorRule("self_food", lottery=1), food=np.full(SLOTS, 7))[0]) == 0
    assert len(draw(BY_FOOD, slots=np.flatnonzero(DRAWN))[0]) == 0
    one = np.where(DRAWN & (np.arange(SLOTS) > 20), 8, 7)  # some of the edited differ from all donors
    assert (draw(BY_FOOD, food=one)[0] > 20).all() and len(draw(BY_FOOD, food=one)[0]) == 6


def test_an_agent_needs_a_donor_for_every_edit() -> None:
    rows = np.stack([np.arange(SLOTS), np.zeros(SLOTS), FOOD], axis=1).astype(int)
    lots = DonorLots([BY_FOOD, DonorRule("self_row")], DRAWN, 1, (0,))
    edited, donors = lots.draw(np.flatnonzero(DRAWN), np.arange(SLOTS), rows, OBSERVED, 0)
    assert len(edited) == 0 and {len(donor.rows) for donor in donors.values()} == {0}


@pytest.mark.parametrize(("feature", "message"), [("self_fod", "did you mean self_food"), ("tick", "the same tick")])
def test_features_that_donors_cannot_differ_in_are_refused(feature: str, message: str) -> None:
    assert_refuses(message, DonorRule.parse, feature, OBSERVED)
