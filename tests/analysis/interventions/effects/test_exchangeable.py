"""A direction among others: its level where all are random, its rank, and what a single draw cannot tell."""

import numpy as np
import pytest

from analysis.interventions.effects.inference import FEWEST_FOR_RANK, from_one_more, rank_threshold, ranks_among


def test_one_more_draw_by_hand() -> None:
    found = from_one_more(10.0, np.array([1.0, 2.0, 3.0]), 0.95)
    assert found.estimate.value == pytest.approx(8) and found.freedom == 2
    assert found.error == pytest.approx(np.sqrt(4 / 3))
    assert found.estimate.low == pytest.approx(8 - 4.302653 * np.sqrt(4 / 3), abs=1e-4)
    assert found.p == pytest.approx(0.0202, abs=1e-3)


@pytest.mark.parametrize("draws", [[1.0], [2.0, 2.0]])
def test_draws_without_a_spread_tell_nothing(draws: list[float]) -> None:
    found = from_one_more(10.0, np.array(draws), 0.95)
    assert np.isnan(found.p) and np.isnan(found.estimate.low) and found.freedom == 0


@pytest.mark.parametrize("count", [2, 3, 8, 20])
def test_one_more_draw_is_called_different_in_one_case_of_twenty(count: int) -> None:
    drawn = np.random.default_rng(count).normal(30, 7, (4000, 1 + count))
    rate = np.mean([from_one_more(float(row[0]), row[1:], 0.95).p <= 0.05 for row in drawn])
    assert rate == pytest.approx(0.05, abs=0.015)


def test_ranks_hold_over_many_effects_of_any_distribution() -> None:
    random = np.random.default_rng(0)
    found = [ranks_among(random.beta(0.3, 0.3, (21, 30)) - 0.5).min() <= 0.05 for _ in range(1000)]
    assert 0.02 < np.mean(found) <= 0.065


def test_a_rank_needs_nineteen_others_and_a_size_beyond_all_of_them() -> None:
    random = np.random.default_rng(1)
    effects = random.normal(0, 0.05, (1 + FEWEST_FOR_RANK, 6))
    effects[0, 2] = 0.4
    p = ranks_among(effects)
    assert p[2] == pytest.approx(0.05) and (np.delete(p, 2) > 0.05).all()
    assert ranks_among(effects[:-1])[2] > 0.05 and np.isinf(rank_threshold(effects[:-1])).all()
    threshold = rank_threshold(effects)
    assert ((np.abs(effects[0]) > threshold) == (np.arange(6) == 2)).all()
