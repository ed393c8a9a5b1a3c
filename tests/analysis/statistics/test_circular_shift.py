"""Chance is not taken for a finding, whatever the course of features and labels, and findings are found."""

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.lives import Lives
from analysis.statistics.circular_shift import (
    CircularShiftTest,
    age_of,
    circular_shift_test,
    shift_test_given_time,
    time_course,
)
from analysis.statistics.inference import (
    FEWEST_LIVES,
    LEVEL,
    Inference,
    counted_p,
    false_discovery,
    information_p,
    ratio_p,
)
from analysis.statistics.shifts import ShiftedSums, centred, shared_shifts, shifted_sums
from tests.planted_lives import (
    COURSES,
    drifting_together,
    labels_of,
    make_lives,
    shared_shocks,
    uneven_lengths,
    values_of,
)

RUNS = 100


def stacked(clusters: Iterable[ShiftedSums]) -> ShiftedSums:
    """The sums of all clusters, (..., K, F)."""
    item = list(clusters)
    fields = [field for field in dataclasses.fields(ShiftedSums) if field.name != "together"]
    return ShiftedSums(*(np.stack([getattr(one, field.name) for one in item], axis=-2) for field in fields))


@settings(max_examples=25)
@given(seed=st.integers(0, 1000))
def test_sums_equal_those_of_labels_that_are_shifted_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = [1, 2, 7, 16, 9]
    lives = make_lives(lengths, seed)
    values, labels = rng.normal(size=(35, 3)), rng.integers(-1, 3, 35)
    sums = stacked(shifted_sums(values, labels, lives, 200, seed))
    possible = []
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        places = lives.order[start : start + length]
        own = values[places] - values[places].mean(axis=0)
        shifted = [np.roll(labels[places], shift) for shift in range(length)]
        possible.append([[own[item == k].sum(axis=0) for k in range(labels.max() + 1)] for item in shifted])
    np.testing.assert_allclose(sums.total[0], sum(np.array(life[0]) for life in possible), atol=1e-5)
    np.testing.assert_allclose(sums.squares[0], sum(np.array(life[0]) ** 2 for life in possible), atol=1e-5)
    spread = sum(np.array(life).var(axis=0) for life in possible)
    np.testing.assert_allclose(sums.total[1:].var(axis=0), spread, rtol=0.6)
    assert np.abs(sums.total[1:].mean(axis=0)).max() < 0.6 * np.sqrt(spread).max()
    moving = sum((np.ptp(np.array(life), axis=0) > 1e-9).astype(int) for life in possible)
    np.testing.assert_array_equal(sums.informative, moving)


@pytest.mark.parametrize(
    ("feature_course", "label_course"),
    [
        pytest.param(*courses, marks=() if len(set(courses)) == 1 else pytest.mark.slow)
        for courses in itertools.product(COURSES, repeat=2)
    ],
)
def test_independent_features_and_clusters_give_few_findings(feature_course: str, label_course: str) -> None:
    result, p = 0, []
    for run in range(RUNS):
        rng = np.random.default_rng([11, run])
        lengths = uneven_lengths(rng, 30)
        features = values_of(COURSES[feature_course], rng, lengths, 5)
        labels = labels_of(COURSES[label_course], rng, lengths)
        test = circular_shift_test(features, labels, make_lives(lengths), 199, run)
        result += bool((test.q <= LEVEL).any())
        p.extend(test.p[np.isfinite(test.p)])
    assert result <= LEVEL * RUNS and len(p) > 500 and np.mean(np.array(p) <= 0.05) < 0.065


def planted(rng: np.random.Generator, lives: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Three clusters; the first feature is higher in cluster 0, the second lower in cluster 1, the third is chance."""
    lengths = uneven_lengths(rng, lives)
    labels = labels_of(COURSES["smooth"], rng, lengths)
    features = values_of(COURSES["smooth"], rng, lengths, 3)
    features[:, 0] += 1.0 * (labels == 0)
    features[:, 1] -= 1.0 * (labels == 1)
    return features, labels, lengths


def test_planted_differences_are_found_with_their_signs() -> None:
    features, labels, lengths = planted(np.random.default_rng(0), 100)
    test = circular_shift_test(features, labels, make_lives(lengths), 499, 0)
    assert test.q[0, 0] < 0.01 and test.direction[0, 0] == 1
    assert test.q[1, 1] < 0.01 and test.direction[1, 1] == -1
    assert (test.q[:, 2] > LEVEL).all()
    features, labels, lengths = planted(np.random.default_rng(4), 30)
    wanted = np.array([[True, False, True], [False, False, False], [False, True, False]])
    whole = circular_shift_test(features, labels, make_lives(lengths), 99, 0)
    part = circular_shift_test(features, labels, make_lives(lengths), 99, 0, wanted=wanted)
    np.testing.assert_allclose(part.p[wanted], whole.p[wanted], rtol=1e-4)
    assert np.isnan(part.p[~wanted]).all() and (part.direction[wanted] == whole.direction[wanted]).all()


def test_neither_the_order_of_records_nor_features_in_parts_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, lengths = planted(np.random.default_rng(1), 20)
    scattered = make_lives(lengths, seed=3)
    straight = circular_shift_test(features, labels, make_lives(lengths), 99, 0)
    mixed_features, mixed_labels = np.empty_like(features), np.empty_like(labels)
    mixed_features[scattered.order], mixed_labels[scattered.order] = features, labels
    mixed = circular_shift_test(mixed_features, mixed_labels, scattered, 99, 0)
    np.testing.assert_allclose(straight.p, mixed.p, rtol=1e-4)
    monkeypatch.setattr("analysis.statistics.shifts._ENTRIES_AT_ONCE", 1)
    apart = circular_shift_test(features, labels, make_lives(lengths), 99, 0)
    np.testing.assert_allclose(straight.p, apart.p, rtol=1e-3)


def test_constant_features_few_lives_single_records_whole_lives_and_no_cluster_have_no_p_value() -> None:
    rng = np.random.default_rng(0)
    lengths = [20] * 12
    features, labels = np.column_stack([rng.normal(size=240), np.full(240, 0.1)]), rng.integers(-1, 2, 240)
    test = circular_shift_test(features, labels, make_lives(lengths), 99, 0)
    assert np.isfinite(test.p[:, 0]).all() and np.isnan(test.p[:, 1]).all()
    few = circular_shift_test(features[:100], labels[:100], make_lives([20] * (FEWEST_LIVES - 1)), 99, 0)
    assert np.isnan(few.p).all() and (few.informative_lives[:, 0] == FEWEST_LIVES - 1).all()
    assert np.isnan(circular_shift_test(features, labels, make_lives([1] * 240), 99, 0).p).all()
    assert np.isnan(circular_shift_test(features, labels, make_lives([240]), 99, 0).p).all()
    assert circular_shift_test(features, np.full(240, -1), make_lives(lengths), 99, 0).p.shape == (0, 2)
    labels = np.repeat(np.arange(40) % 2, 10)  # differences between whole lives carry no information
    features = (labels + np.random.default_rng(0).normal(size=400))[:, None]
    test = circular_shift_test(features, labels, make_lives([10] * 40), 99, 0)
    assert np.isnan(test.p).all() and np.isnan(test.q).all() and (test.informative_lives == 0).all()


@pytest.mark.slow
def test_tails_go_on_where_counting_ends() -> None:
    """Where the true p-value is known: ratios of normal shares, and chi-squares; each column has its own null."""
    rng = np.random.default_rng(0)
    shares = rng.normal(size=(2_000, 150, 20))
    ratios = np.abs(shares.sum(axis=2)) / np.sqrt((shares**2).sum(axis=2))
    squares = rng.chisquare(19, (2_000, 150))
    lives = np.full(150, 20)
    p = np.array([ratio_p(one, ratios[:999], lives, lives) for one in ratios[999:]])
    q = np.array([information_p(one, squares[:999]) for one in squares[999:]])
    for values in (p, q):
        for level in (0.05, 0.01, 0.001, 0.0001):
            assert 0.3 * level < np.mean(values <= level) < 1.25 * level


def test_counted_p_values_count_the_labels_as_they_are_and_false_discovery_leaves_out_what_was_not_tested() -> None:
    null = np.arange(9.0)[:, None]
    np.testing.assert_allclose(counted_p(np.array([8.0]), null), [0.2])
    np.testing.assert_allclose(counted_p(np.array([9.0]), null), [0.1])
    q = false_discovery(np.array([[0.01, np.nan], [0.02, 0.9]]))
    np.testing.assert_allclose(q, [[0.03, np.nan], [0.03, 0.9]])
    assert np.isnan(false_discovery(np.full(3, np.nan))).all()
    assert false_discovery(np.empty((0, 4))).shape == (0, 4)


@pytest.mark.parametrize("episodes", [6, 10])
def test_what_happened_to_a_world_is_no_finding(episodes: int) -> None:
    """Labels and features that follow separate shocks of their worlds pass for findings if lives are shifted alone."""
    alone, both, runs = 0, 0, 40
    for run in range(runs):
        features, labels, lives, episode = shared_shocks(np.random.default_rng([13, run]), episodes, 8, 45)
        alone += bool((circular_shift_test(features, labels, lives, 99, run).q <= LEVEL).any())
        both += bool((circular_shift_test(features, labels, lives, 99, run, episode).q <= LEVEL).any())
    assert alone > 0.2 * runs and both <= LEVEL * runs


def test_behaviour_is_found_in_six_worlds_and_needs_them() -> None:
    """Six worlds give a t-test with 5 degrees of freedom, and nine tests are corrected for: that takes lives.

    The power to find both planted differences, in 40 dumps each with 999 shifts as an analysis makes, was 78% with 60
    lives and 98% with 120. It was 25% and 68% with 199 shifts, which leave small p-values to the tail of Student's t
    with fewer than 5 degrees of freedom. So few shifts, not the statistic, once called for the 240 lives of this test.
    """
    features, labels, lengths = planted(np.random.default_rng(3), 120)
    lives, life = make_lives(lengths), np.repeat(np.arange(120), lengths)
    result = circular_shift_test(features, labels, lives, 999, 0, life % 6)
    assert result.q[0, 0] < LEVEL and result.q[1, 1] < LEVEL and (result.q[:, 2] > LEVEL).all()
    assert result.informative_episodes is not None and (result.informative_episodes[:, 0] == 6).all()
    few = circular_shift_test(features, labels, lives, 199, 0, life % 5)
    assert few.informative_episodes is None
    np.testing.assert_array_equal(few.p, circular_shift_test(features, labels, lives, 199, 0).p)
    in_five = np.where(life % 6 == 5, -1, labels)
    assert np.isnan(circular_shift_test(features, in_five, lives, 199, 0, life % 6).p).all()


def test_episodes_are_shifted_whole() -> None:
    rng = np.random.default_rng(5)
    lengths, episode = [7, 4, 9, 5], np.array([0, 0, 1, 1])
    lives, labels, values = make_lives(lengths, 1), rng.integers(-1, 2, 25), rng.normal(size=(25, 2))
    of_record = episode[lives.index]
    shifts = shared_shifts(lives, of_record, 30, 3)
    assert shifts.longest.tolist() == [7, 9] and (shifts.shifts < [7, 9]).all() and (shifts.shifts[0] == 0).all()
    own = centred(values, lives)
    for cluster, sums in enumerate(shifted_sums(values, labels, lives, 30, 3, episode=of_record)):
        shares = np.zeros((31, 2, 2))
        for life, (start, length) in enumerate(zip(lives.starts, lives.lengths, strict=True)):
            inside = labels[lives.order[start : start + length]] == cluster
            for draw, shift in enumerate(shifts.shifts[:, episode[life]]):
                shares[draw, episode[life]] += own[start : start + length][np.roll(inside, shift)].sum(axis=0)
        assert sums.together is not None
        np.testing.assert_allclose(sums.together.total, shares.sum(axis=1), atol=1e-4)
        np.testing.assert_allclose(sums.together.squares, (shares**2).sum(axis=1), atol=1e-4)


DUMPS = 40


def twice_tested(
    features: np.ndarray, labels: np.ndarray, lives: Lives, tick: np.ndarray, permutations: int, seed: int = 0
) -> tuple[CircularShiftTest, CircularShiftTest]:
    """The test, and that of what it finds given time; all lives are of one episode."""
    episode = np.zeros(len(tick), np.int64)
    plain = circular_shift_test(features, labels, lives, permutations, seed, episode)
    settings = Inference(permutations=permutations, seed=seed)
    return plain, shift_test_given_time(features, labels, lives, tick, episode, plain, plain.q <= LEVEL, settings)


def test_what_drifts_with_the_tick_survives_without_it_only_and_behaviour_beyond_the_tick_survives_both() -> None:
    dumps = (drifting_together(np.random.default_rng([21, run])) for run in range(DUMPS))
    tests = [twice_tested(*dump, 99, run) for run, dump in enumerate(dumps)]
    plain, given_time = (sum(bool((test.q <= LEVEL).any()) for test in kind) for kind in zip(*tests, strict=True))
    assert plain > 0.2 * DUMPS and given_time <= LEVEL * DUMPS
    result, again = twice_tested(*drifting_together(np.random.default_rng([21, 0]), lift=1.5), 199)
    assert result.q[0, 0] <= LEVEL and again.q[0, 0] <= LEVEL and again.direction[0, 0] == 1


def test_courses_over_tick_and_age_are_followed() -> None:
    """Lives begin at different ticks; each begins with a jump that lasts one record."""
    lengths, births = [60] * 30, np.arange(30) * 7
    lives, age = make_lives(lengths), np.tile(np.arange(60), 30)
    tick = np.repeat(births, 60) + age
    truth = np.sin(tick / 40) + 0.02 * age + 5 * (age == 0)
    course = time_course(np.column_stack([truth, tick]), tick, age_of(tick, lives))
    rest = np.column_stack([truth, tick]) - course.explained(tick, age)
    assert np.abs(rest[:, 0]).max() < 0.02 and np.abs(rest[:, 1]).max() < 1e-6
    _, labels, lives, tick = drifting_together(np.random.default_rng([21, 1]))
    result, again = twice_tested(tick[:, None].astype(float), labels, lives, tick, 99)
    assert (result.q <= LEVEL).all() and np.isnan(again.p).all() and np.isnan(again.q).all()
