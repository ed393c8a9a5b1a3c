"""Who is drawn as a donor: agents that nobody edits, far from the edited agent, the same in every run."""

import numpy as np
import pytest

from analysis.interventions.edits.donor_rule import DonorLots, DonorRule, Donors
from tests.command import assert_refuses

COLUMNS = ("id", "row", "food")
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
    edited, donors = lots.draw(np.flatnonzero(DRAWN[slots]), slots, rows, COLUMNS, tick)
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
    edited, donors = lots.draw(np.flatnonzero(DRAWN), np.arange(SLOTS), rows, COLUMNS, 0)
    assert len(edited) == 0 and {len(donor.rows) for donor in donors.values()} == {0}


@pytest.mark.parametrize(("feature", "said"), [("self_fod", "did you mean self_food"), ("tick", "the same tick")])
def test_features_that_donors_cannot_differ_in_are_refused(feature: str, said: str) -> None:
    assert_refuses(said, DonorRule.parse, feature, COLUMNS)
