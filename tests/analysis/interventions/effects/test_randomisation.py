"""The randomisation test holds its level where nothing but chance is planted, and finds what is planted."""

from math import comb

import numpy as np
import pytest

from activation_store.interventions import LivesTable
from analysis.interventions.effects.controls import edits
from analysis.interventions.effects.pairs import Pairs, paired, randomisation_test
from analysis.statistics.inference import Inference
from tests.planted_interventions import TWIN, Arm, Planted, plant

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
    by_hand = [
        change[pairs.edited & here].mean() - change[~pairs.edited & here].mean()
        for change in [pairs.difference("ticks")]
        for here in [pairs.episode == place for place in range(len(pairs.episodes))]
    ]
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
    table = LivesTable(
        arm=np.repeat([TWIN.name, "edit"], count),
        episode=np.zeros(2 * count, np.int64),
        agent=np.tile(np.arange(count), 2),
        edited=np.tile(edited, 2),
        outcomes={"gain": np.concatenate([np.ones(count), 1 + gain])},
    )
    (pairs,) = paired(table, [TWIN, Arm("edit", "edit", "trained", None, TWIN.name)])
    return pairs
