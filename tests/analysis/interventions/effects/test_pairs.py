"""Lives are paired by episode and agent, or refused; the test on pairs holds its level and finds what is planted."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.controls import edits
from analysis.interventions.effects.pairs import Pairs, check_arms, paired, randomisation_test
from analysis.statistics.inference import Inference
from tests.command import assert_refuses
from tests.planted_interventions import TWIN, UNTRAINED_TWIN, Planted, plant

EDIT = Arm("edit", "edit", "trained", 1.0, TWIN.name)


def test_order_of_rows_does_not_matter() -> None:
    table, arms = plant(Planted(episodes=3))
    shuffled = table.rows(np.random.default_rng(1).permutation(len(table)))
    for one, other in zip(paired(table, arms), paired(shuffled, arms), strict=True):
        assert one.arm == other.arm
        np.testing.assert_array_equal(one.difference("ticks"), other.difference("ticks"))


def test_means_over_the_lives_of_each_episode() -> None:
    table, arms = plant(Planted(episodes=3, kinds=()))
    (pairs,) = paired(table, arms)
    lives = np.arange(48.0)
    lives[[*range(16), 20]] = np.nan
    chosen = np.arange(48) % 2 == 0
    expected = [np.nan, np.mean([16, 18, *range(22, 32, 2)]), np.mean(np.arange(32, 48, 2))]
    assert pairs.episode_means(lives, chosen) == pytest.approx(expected, nan_ok=True)


def broken_tables() -> dict[str, tuple[LivesTable, str]]:
    table, _ = plant(Planted(episodes=3, kinds=()))
    number = np.arange(len(table))
    last, first_of_edit = number == number[-1], number == (table.arm != TWIN.name).argmax()
    elsewhere = replace(table, arm=np.where(last, "somewhere", table.arm))
    swapped = table.edited ^ first_of_edit
    nobody = replace(table, edited=np.zeros(len(table), bool))
    return {
        "missing in the arm": (table.rows(~last), "agent 16 of episode 2 has no life in the arm 'steer is_starving"),
        "missing in the twin": (table.rows(number != 0), "agent 1 of episode 0 has no life in the arm 'unedited'"),
        "a life twice": (table.rows(np.r_[0, number]), "agent 1 of episode 0 has two lives"),
        "no lives": (table.rows(table.arm == TWIN.name), "no lives of the arm 'steer is_starving"),
        "unknown arm": (elsewhere, "lives of an arm 'somewhere' that the run does not list"),
        "another lot": (replace(table, edited=swapped), "agent 1 of episode 0 is drawn to be edited in only one"),
        "nobody": (nobody, "nobody is edited in the arm 'steer is_starving"),
    }


@pytest.mark.parametrize("case", broken_tables())
def test_lives_that_cannot_be_paired_are_refused(case: str) -> None:
    _, arms = plant(Planted(episodes=3, kinds=()))
    table, message = broken_tables()[case]
    assert_refuses(message, paired, table, arms)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([TWIN, EDIT, EDIT], "two arms are called 'edit'"),
        ([EDIT], "'edit' needs an unedited arm of the trained policy"),
        ([TWIN, UNTRAINED_TWIN, replace(EDIT, twin=UNTRAINED_TWIN.name)], "needs an unedited arm of the trained"),
        ([TWIN, EDIT, replace(EDIT, name="again", twin="edit")], "'again' needs an unedited arm"),
        ([TWIN, EDIT, replace(EDIT, name="again")], "both edits of the trained policy with dose 1.0"),
    ],
)
def test_arms_that_cannot_be_analysed_together_are_refused(arms: list[Arm], message: str) -> None:
    assert_refuses(message, check_arms, arms)


def test_planted_arms_are_accepted() -> None:
    check_arms(Planted(doses=(-1.0, 1.0, 2.0)).arms())
    check_arms([TWIN, EDIT, replace(EDIT, name="more", dose=2.0)])


OUTCOMES = ("ticks", "reward", "task_progress", "meals", "drinks", "damage_dealt", "damage_taken")
NULLS = {
    "half edited": Planted(kinds=()),
    "few edited, whom the edit unsettles": Planted(kinds=(), edited=2, disturbed=(1.0, 0.0)),
    "all edited of an episode alike": Planted(kinds=(), shared=1.0),
}


def p_values(planted: Planted, seeds: int) -> np.ndarray:
    """Return the p-values of planted tests, (seeds, outcomes)."""
    tests = []
    for seed in range(seeds):
        (pairs,) = edits(paired(*plant(planted, seed)))
        settings = Inference(permutations=199, seed=seed)
        tests.append(randomisation_test(pairs, pairs.differences(OUTCOMES), settings)[1])
    return np.array(tests)


@pytest.mark.parametrize("name", NULLS)
def test_null_is_rarely_rejected(name: str) -> None:
    assert (p_values(NULLS[name], 25) <= 0.05).mean() < 0.12


@pytest.mark.slow
@pytest.mark.parametrize("name", NULLS)
def test_null_is_rejected_as_often_as_stated(name: str) -> None:
    p = p_values(NULLS[name], 200)
    assert (p <= 0.05).mean() < 0.07 and (p <= 0.01).mean() < 0.02


def test_planted_effect_is_found_and_measured() -> None:
    (pairs,) = edits(paired(*plant(Planted({"edit": {"ticks": -30}}, kinds=(), agents=32, edited=16))))
    contrast, p = randomisation_test(pairs, pairs.differences(OUTCOMES), Inference(permutations=999))
    assert contrast[0] == pytest.approx(-30, abs=8) and p[0] <= 0.002
    assert (p[1:] > 0.01).all()
    change = pairs.difference("ticks")
    episodes = [pairs.episode == place for place in range(len(pairs.episodes))]
    by_hand = [change[pairs.edited & here].mean() - change[~pairs.edited & here].mean() for here in episodes]
    assert contrast[0] == pytest.approx(np.mean(by_hand))


def test_p_counts_ways_to_draw_the_edited() -> None:
    """One episode of six, three edited, all of whom gain: of 20 ways to draw them, the true and its opposite."""
    edited = np.array([True, False, True, False, True, False])
    pairs = small_pairs(edited, np.where(edited, [3.0, 0, 4, 0, 5, 0], 0.0))
    (contrast,), (p,) = randomisation_test(pairs, pairs.differences(["gain"]), Inference(permutations=19_999))
    assert contrast == pytest.approx(4) and p == pytest.approx(2 / comb(6, 3), abs=0.01)


def test_missing_lives_are_left_out_and_unchanged_outcomes_are_not_tested() -> None:
    edited = np.array([True, False, True, False, True, False])
    (contrast,), _ = gains_tested(edited, np.array([3.0, 0, np.nan, 0, 5, 1]))
    assert contrast == pytest.approx(4 - 1 / 3)
    (contrast,), (p,) = gains_tested(edited, np.zeros(6))
    assert contrast == 0 and np.isnan(p)
    assert np.isnan(gains_tested(np.ones(6, bool), np.arange(6.0))).all()


def gains_tested(edited: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = small_pairs(edited, gain)
    return randomisation_test(pairs, pairs.differences(["gain"]), Inference(permutations=99))


def small_pairs(edited: np.ndarray, gain: np.ndarray) -> Pairs:
    """Return one episode in which the twin's outcome is 1 everywhere."""
    count = len(edited)
    arm, agent = np.repeat([TWIN.name, EDIT.name], count), np.tile(np.arange(count), 2)
    outcomes = {"gain": np.concatenate([np.ones(count), 1 + gain])}
    table = LivesTable(arm, np.zeros(2 * count, np.int64), agent, np.tile(edited, 2), outcomes)
    (pairs,) = paired(table, [TWIN, EDIT])
    return pairs
