"""Means over trainings: by hand, and their false findings on planted trainings that share worlds or do not."""

import numpy as np
import pytest
from scipy import stats

from analysis.statistics.over_trainings import in_worlds, over_trainings
from tests.command import assert_refuses
from tests.planted_trainings import null_rate, trainings_in_worlds


def test_trainings_in_worlds_of_their_own_are_compared_as_student_and_welch_do() -> None:
    first, second = np.array([-58.3, -29.5, -24.2]), np.array([6.0, 9.5, 4.0, 5.5])
    alone = over_trainings([first[:, None]], "own", 0.95)
    test = stats.ttest_1samp(first, 0)
    wanted = [first.mean(), *test.confidence_interval(0.95), test.pvalue]
    assert [alone.value, alone.low, alone.high, alone.p] == pytest.approx(wanted)
    both = over_trainings([first[:, None], second[:, None]], "own", 0.9)
    test = stats.ttest_ind(first, second, equal_var=False)
    wanted = [first.mean() - second.mean(), *test.confidence_interval(0.9), test.pvalue]
    assert [both.value, both.low, both.high, both.p] == pytest.approx(wanted)


def test_shared_worlds_add_their_own_variance() -> None:
    """By hand: trainings' means 1, 3 (variance over T 1), worlds' means 0, 2, 4 (variance over W 4/3)."""
    values = np.array([[-1.0, 1.0, 3.0], [1.0, 3.0, 5.0]])
    result = over_trainings([values], "shared", 0.95)
    quantile = (1 * stats.t.ppf(0.975, 1) + 4 / 3 * stats.t.ppf(0.975, 2)) / (7 / 3)
    reach = quantile * np.sqrt(7 / 3)
    assert [result.value, result.low, result.high] == pytest.approx([2, 2 - reach, 2 + reach])
    again = over_trainings([values], "shared", 1 - result.p)
    assert min(abs(again.low), abs(again.high)) == pytest.approx(0, abs=1e-6)  # p is where the interval meets 0
    apart = over_trainings([values, values[::-1] - 7.0], "shared", 0.95)  # worlds are as good for either kind
    assert apart.value == 7 and apart.high - 7 == pytest.approx(stats.t.ppf(0.975, 1) * np.sqrt(2))


def test_the_interaction_of_trainings_and_worlds_counts_once() -> None:
    """Nothing but the interaction varies: the variance is that of the mean of all cells, not twice that."""
    rng = np.random.default_rng(3)
    widths = [over_trainings([rng.standard_normal((20, 20))], "shared", 0.95) for _ in range(200)]
    mean = np.mean([(width.high - width.low) / 2 for width in widths])
    assert mean == pytest.approx(stats.t.ppf(0.975, 19) / 20, rel=0.15)


def test_no_interval_without_two_trainings_two_worlds_a_value_of_each_or_anything_that_varies() -> None:
    one_world, one_training, equal = np.array([[1.0], [2.0]]), np.array([[1.0, 2.0]]), np.full((3, 4), 1 / 3)
    for kind, worlds in ((one_world, "shared"), (one_training, "shared"), (equal, "shared"), (equal[:, :1], "own")):
        result = over_trainings([kind], worlds, 0.95)
        assert result.value == pytest.approx(kind.mean()) and np.isnan([result.low, result.high, result.p]).all()
    assert np.isnan(over_trainings([np.empty((2, 0))], "shared", 0.95).value)
    (values,), worlds = in_worlds([[{"a": 1.0}, {"b": np.nan}, {"c": 2.0}]])
    result = over_trainings([values], worlds, 0.95)  # of one training nothing is known: p is not the smallest there is
    assert worlds == "own" and np.isnan([result.value, result.low, result.high, result.p]).all()


def test_worlds_are_the_same_or_others_and_nothing_between() -> None:
    first, second = {"a": 1.0, "b": 2.0, "c": np.nan}, {"c": 5.0, "b": 4.0, "a": 3.0}
    (shared,), worlds = in_worlds([[first, second]])
    assert worlds == "shared" and shared.tolist() == [[1.0, 2.0], [3.0, 4.0]]  # the third lacks one value
    (own,), worlds = in_worlds([[first, {f"other {world}": value for world, value in second.items()}]])
    assert worlds == "own" and own.tolist() == [[1.5], [4.0]]
    assert_refuses("share some of the worlds", in_worlds, [[first], [{"a": 1.0, "z": 1.0}]])


@pytest.mark.parametrize(("trainings", "worlds"), [(3, 24), (4, 4), (8, 4)])
def test_null_rate_is_held_whatever_the_worlds_share(trainings: int, worlds: int) -> None:
    """Up to three quarters of the variance of trainings' means is common to them."""
    runs, most = 500, 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)
    for common in (0.25, 0.75):
        assert null_rate(trainings, worlds, common, 0.5, shared=True, runs=runs) <= most, common
    assert null_rate(trainings, worlds, 0.75, 0.5, shared=False, runs=runs) <= most


def test_a_t_test_over_trainings_that_share_worlds_fails() -> None:
    rng = np.random.default_rng(0)
    p = [stats.ttest_1samp(trainings_in_worlds(rng, 4, 4, 0.5, 1.0).mean(axis=1), 0).pvalue for _ in range(500)]
    assert np.mean(np.array(p) <= 0.05) > 0.15


def test_effects_are_found() -> None:
    """An effect of four standard deviations of a training's mean, in four trainings."""
    assert null_rate(4, 8, 0.25, 0.5, shared=True, runs=300, effect=4.0) > 0.8
    assert null_rate(4, 8, 0.25, 0.5, shared=False, runs=300, effect=4.0) > 0.9


def test_pairs_and_kinds_in_other_worlds() -> None:
    """By hand: the kinds' own parts of variance, and those of the worlds, of each kind or of the difference."""
    first, second = np.array([[0.0, 2.0], [2.0, 4.0]]), np.array([[10.0, 16.0, 13.0], [10.0, 16.0, 13.0]])
    apart = over_trainings([first, second], "of a kind", 0.95)
    parts, quantiles = np.array([1.0, 0.0, 1.0, 3.0]), stats.t.ppf(0.975, [1, 1, 1, 2])
    reach = parts @ quantiles / 5 * np.sqrt(5)
    assert [apart.value, apart.low, apart.high] == pytest.approx([-11, -11 - reach, -11 + reach])
    better = first + np.array([[5.0], [7.0]])  # by the same in both worlds
    pairs = over_trainings([first, better], "shared", 0.95, paired=True)
    assert [pairs.value, pairs.high] == pytest.approx([-6, -6 + stats.t.ppf(0.975, 1)])
    assert in_worlds([[{"a": 1.0}, {"a": 2.0}], [{"b": 3.0}, {"b": 5.0}]])[1] == "of a kind"


def test_pairs_that_share_worlds_only_with_each_other_are_compared_by_their_differences() -> None:
    """By hand: differences 2, 3 and 7; a world in which one of a pair has no value counts for neither."""
    first = [{"a": 3.0, "b": 5.0}, {"c": 4.0, "d": 9.0}, {"e": 8.0, "f": 8.0}]
    second = [{"a": 1.0, "b": 3.0}, {"c": 1.0, "d": np.nan}, {"e": 1.0, "f": 1.0}]
    kinds, worlds = in_worlds([first, second], paired=True)
    result = over_trainings(kinds, worlds, 0.95, paired=True)
    test = stats.ttest_1samp([2.0, 3.0, 7.0], 0)
    assert worlds == "own"
    assert [result.value, result.low, result.p] == pytest.approx([4, test.confidence_interval(0.95).low, test.pvalue])
    assert_refuses("share some of the worlds", in_worlds, [first, second])
    mixed = [second[1], second[0], {"g": 1.0, "a": 2.0}]
    assert_refuses("share some of the worlds", in_worlds, [first, mixed], paired=True)


def test_one_kind_may_share_worlds_and_the_other_not() -> None:
    """By hand: differences -2, 0 and 8, 28/3 of variance over T; the second's worlds' means -1, 1: 1; nothing else."""
    first = [{"own 1": 0.0, "own 2": 0.0}, {"own 3": 3.0}, {"own 4": 12.0}]
    second = [{"x": 1.0, "y": 3.0}, {"x": 2.0, "y": 4.0}, {"x": 3.0, "y": 5.0}]
    quantile = stats.t.ppf(0.975, [2, 1])
    for kinds, sign, wanted in (([first, second], 1, "of the second"), ([second, first], -1, "of the first")):
        values, worlds = in_worlds(kinds, paired=True)
        result = over_trainings(values, worlds, 0.95, paired=True)
        reach = np.array([28 / 3, 1]) @ quantile / (31 / 3) * np.sqrt(31 / 3)
        assert worlds == wanted
        assert [result.value, result.high - result.value] == pytest.approx([sign * 2, reach])
