"""Effect sizes are those of the records, whatever the size of a cluster, and baselines are fair samples of lives."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.lives import Lives
from analysis.statistics.effect_sizes import (
    Moments,
    cohens_d,
    complements,
    effect_sizes,
    members,
    moments,
    pool,
    random_windows,
    run_lengths,
)
from tests.planted_lives import make_lives


def test_cohens_d_of_a_worked_example_and_without_spread() -> None:
    group, reference = np.array([[2.0], [4.0], [6.0]]), np.array([[1.0], [2.0], [3.0], [4.0]])
    # Variances 4 and 5/3, pooled (2 * 4 + 3 * 5/3) / 5 = 2.6, means 4 and 2.5.
    np.testing.assert_allclose(cohens_d(moments(group), moments(reference)), [1.5 / np.sqrt(2.6)])
    flat = Moments(5, np.array([1.0, 1.0, 1.0]), np.zeros(3))
    other = Moments(5, np.array([1.0, 3.0, 0.0]), np.zeros(3))
    np.testing.assert_array_equal(cohens_d(flat, other), [0.0, -np.inf, np.inf])


def test_pooled_draws_have_the_moments_of_all_their_rows() -> None:
    draws = np.random.default_rng(0).normal(size=(7, 11, 3)) + np.arange(7)[:, None, None]
    pooled, plain = pool([moments(draw) for draw in draws]), moments(draws.reshape(-1, 3))
    np.testing.assert_allclose(pooled.mean, plain.mean)
    np.testing.assert_allclose(pooled.variance, plain.variance)
    assert pooled.count == 11


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), share=st.floats(0.05, 1.0))
def test_run_lengths_equal_a_plain_loop(seed: int, share: float) -> None:
    lives = make_lives([1, 7, 30, 2, 15], seed)
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(55) < share, 0, rng.integers(-1, 3, 55))
    expected: list[list[int]] = [[] for _ in range(labels.max() + 1)]
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        for label, run in itertools.groupby(labels[lives.order[start : start + length]].tolist()):
            if label >= 0:
                expected[label].append(len(list(run)))
    assert [lengths.tolist() for lengths in run_lengths(labels, lives)] == expected


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), clusters=st.integers(1, 6))
def test_complements_have_the_moments_of_all_other_rows(seed: int, clusters: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, clusters, 40)
    values = rng.normal(size=(40, 3)) * [1e-3, 1, 1e3] + [5, 0, -1e3]
    groups = [moments(values[records]) for records in members(labels)]
    for number, result in enumerate(complements(groups), start=-1):
        expected = moments(values[labels != number])
        assert result.count == expected.count
        np.testing.assert_allclose(result.mean, expected.mean, rtol=1e-9)
        np.testing.assert_allclose(result.variance, expected.variance, rtol=1e-9)


def test_a_complement_that_never_varies_has_no_spread() -> None:
    groups = [moments(np.full((rows, 1), 0.5)) for rows in (0, 3, 1, 7)]
    *_, last = complements([*groups, moments(np.arange(5.0)[:, None])])
    assert last.variance.tolist() == [0.0]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), length=st.integers(1, 60), rows=st.integers(1, 200))
def test_windows_are_contiguous_in_one_life_and_fill_the_rows(seed: int, length: int, rows: int) -> None:
    lives = make_lives([1, 7, 30, 2, 15], seed)
    drawn = random_windows(np.array([length]), lives, rows, np.random.default_rng(seed))
    assert len(drawn) == rows
    place = np.empty(55, np.int64)
    place[lives.order] = np.arange(55)
    places = place[drawn]
    # A break of the sequence is a new window: no more of them than windows cut at both ends of lives would give.
    follows = (np.diff(places) == 1) & (np.diff(lives.index[drawn]) == 0)
    stretches = np.split(places, np.flatnonzero(~follows) + 1)
    for stretch in stretches[:-1]:
        if len(stretch) < length:
            life = lives.index[lives.order[stretch[0]]]
            first, last = lives.starts[life], lives.starts[life] + lives.lengths[life] - 1
            assert stretch[0] == first or stretch[-1] == last


@pytest.mark.parametrize("lengths", [[1], [4], [9], [50], [1, 4, 20]])
def test_every_record_is_equally_likely_to_be_drawn(lengths: list[int]) -> None:
    lives = make_lives([3, 10, 25], seed=0)
    # Many rows a draw, so that cutting the last window does not matter.
    drawn = random_windows(np.array(lengths), lives, 400_000, np.random.default_rng(0))
    shares = np.bincount(drawn, minlength=38) / len(drawn)
    np.testing.assert_allclose(shares, 1 / 38, rtol=0.06)


def planted(shift: float, spread: float, share: float, records: int = 40_000) -> tuple[np.ndarray, np.ndarray, Lives]:
    """A cluster of bouts of 20 records with another mean and spread than the standard normal rest."""
    lives = make_lives([200] * (records // 200))
    rng = np.random.default_rng(1)
    labels = np.empty(records, np.int64)
    labels[lives.order] = np.where(np.repeat(rng.random(records // 20) < share, 20), 0, -1)
    values = rng.normal(size=records)
    return np.where(labels == 0, shift + spread * values, values)[:, None], labels, lives


@pytest.mark.parametrize(("shift", "spread", "share"), [(0.55, 1.0, 0.05), (1.08, 0.1, 0.05), (-2.0, 0.05, 0.02)])
def test_planted_effects_are_neither_inflated_nor_deflated(shift: float, spread: float, share: float) -> None:
    features, labels, lives = planted(shift, spread, share)
    effects = effect_sizes(features, labels, lives, seed=0)
    share = float((labels == 0).mean())
    mixture_mean = share * shift
    mixture_variance = (1 - share) * 1 + share * spread**2 + share * (1 - share) * shift**2
    against_dump = (shift - mixture_mean) / np.sqrt((spread**2 + mixture_variance) / 2)
    assert effects.d_baseline[0, 0] == pytest.approx(against_dump, rel=0.08)
    inside, outside = (labels == 0).sum(), (labels != 0).sum()
    against_rest = shift / np.sqrt((inside * spread**2 + outside) / (inside + outside))
    assert effects.d_complement[0, 0] == pytest.approx(against_rest, rel=0.05)
    assert effects.mean[0, 0] == pytest.approx(shift, abs=0.1)
    assert effects.complement_mean[0, 0] == pytest.approx(0, abs=0.05)


def test_a_feature_that_never_changes_has_no_effect() -> None:
    features, labels, lives = planted(1.0, 1.0, 0.2, records=4000)
    constant = np.full(len(labels), 0.1)
    effects = effect_sizes(np.column_stack([constant, features]), labels, lives, seed=0)
    assert effects.d_baseline[0, 0] == 0 and effects.d_complement[0, 0] == 0
    assert effects.mean[0, 0] == effects.baseline_mean[0, 0] == effects.complement_mean[0, 0] == 0.1
    assert effects.d_baseline[0, 1] > 0.5


def test_a_cluster_of_everything_has_no_complement_and_noise_has_no_effects() -> None:
    features, labels, lives = planted(1.0, 1.0, 0.2, records=4000)
    effects = effect_sizes(features, np.zeros_like(labels), lives, seed=0)
    assert np.isnan(effects.d_complement).all() and np.isnan(effects.complement_mean).all()
    assert abs(effects.d_baseline[0, 0]) < 0.05
    assert effect_sizes(features, np.full_like(labels, -1), lives, seed=0).d_baseline.shape == (0, 1)


def test_a_clusters_baseline_does_not_depend_on_the_others() -> None:
    features, labels, lives = planted(1.0, 1.0, 0.2, records=4000)
    alone = effect_sizes(features, labels, lives, seed=0)
    split = np.where(labels == -1, np.arange(len(labels)) % 2 - 1, labels)
    with_another = effect_sizes(features, np.where(split == 0, np.where(labels == 0, 0, 1), -1), lives, seed=0)
    np.testing.assert_array_equal(alone.d_baseline[0], with_another.d_baseline[0])
