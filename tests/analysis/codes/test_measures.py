"""Measures of partitions on planted data, and against scikit-learn and plain counts."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, cohen_kappa_score, mutual_info_score, normalized_mutual_info_score

from analysis.codes.partitions import (
    LifeResamples,
    conditional_information,
    information_beyond_chance,
    normalised_information,
    perplexity,
    persistence,
    weighted_adjusted_rand,
)

RECORDS = 4000
RANDOM = np.random.default_rng(0)
LIFE = np.repeat(np.arange(40), RECORDS // 40)
STRATUM = RANDOM.integers(5, size=RECORDS)
ONES = np.ones(RECORDS)


def test_information_is_the_sum_over_strata() -> None:
    act = RANDOM.integers(3, size=RECORDS)
    label = np.where(RANDOM.random(RECORDS) < 0.5, act, RANDOM.integers(3, size=RECORDS))
    shares = [(each == STRATUM).mean() for each in range(5)]
    parts = [mutual_info_score(label[each == STRATUM], act[each == STRATUM]) / np.log(2) for each in range(5)]
    assert conditional_information(label, act, STRATUM, ONES) == pytest.approx(np.dot(shares, parts))


def test_what_only_the_stratum_tells_does_not_count() -> None:
    """Labels and acts both follow the place, and nothing else: no information given the place, much without."""
    act = (STRATUM + (RANDOM.random(RECORDS) < 0.2)) % 5
    label = (STRATUM + (RANDOM.random(RECORDS) < 0.2)) % 5
    given = information_beyond_chance(label, act, STRATUM, ONES, 0)
    plain = information_beyond_chance(label, act, np.zeros(RECORDS, np.int64), ONES, 0)
    assert abs(given) < 0.01 < 1 < plain


def test_chance_is_taken_off() -> None:
    label, act = RANDOM.integers(8, size=RECORDS), RANDOM.integers(10, size=RECORDS)
    strata = RANDOM.integers(100, size=RECORDS)
    assert conditional_information(label, act, strata, ONES) > 0.5
    assert abs(information_beyond_chance(label, act, strata, ONES, 0)) < 0.05


def test_persistence_is_cohens_kappa() -> None:
    label = np.repeat(RANDOM.integers(4, size=RECORDS // 4), 4)
    following = np.where(np.diff(LIFE, append=-1) == 0, np.arange(RECORDS) + 1, -1)
    pairs = following >= 0
    expected = cohen_kappa_score(label[pairs], label[following[pairs]])
    assert persistence(label, following, ONES) == pytest.approx(expected) and expected > 0.5


def test_copies_count_like_records() -> None:
    label, other = RANDOM.integers(4, size=500), RANDOM.integers(3, size=500)
    other[:250] = label[:250] % 3
    weight = RANDOM.integers(4, size=500)
    rows = np.repeat(np.arange(500), weight)
    assert weighted_adjusted_rand(label, other, weight.astype(float)) == pytest.approx(
        adjusted_rand_score(label[rows], other[rows])
    )
    assert normalised_information(label, other, weight.astype(float)) == pytest.approx(
        normalized_mutual_info_score(label[rows], other[rows])
    )
    assert perplexity(label, weight.astype(float)) == pytest.approx(perplexity(label[rows], np.ones(len(rows))))
    assert perplexity(np.array([0, 1, 2, 3]), np.ones(4)) == pytest.approx(4)


def test_intervals_are_over_lives() -> None:
    """Records of a life that are all the same carry one number, not a hundred."""
    value = RANDOM.normal(size=40)
    found = LifeResamples(LIFE, 400, 0).estimate(lambda weight: float(np.average(value[LIFE], weights=weight)))
    error = value.std() / np.sqrt(40)
    assert found.value == pytest.approx(value.mean()) and 3 * error < found.high - found.low < 5 * error
    alone = LifeResamples(np.zeros(9, np.int64), 100, 0).estimate(lambda weight: 1.0)
    assert alone.value == 1 and np.isnan(alone.low)


def test_intervals_do_not_lean_to_the_side_to_which_resampling_moves_a_measure() -> None:
    """Each life has a label of its own: every resample has fewer of them than there are."""
    found = LifeResamples(LIFE, 400, 0).estimate(lambda weight: perplexity(LIFE, weight))
    assert found.value == pytest.approx(40)
    assert found.low < found.value < found.high and found.high - found.value > 0.3 * (found.value - found.low)
