"""Effect sizes and means over trainings are those by hand, and their intervals cover as often as they promise."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.lives import Lives
from analysis.statistics.effect_intervals import (
    EffectIntervals,
    Moments,
    cohens_d,
    complements,
    detectable,
    effect_intervals,
    effect_sizes,
    members,
    moments,
    pool,
    random_windows,
    run_lengths,
)
from analysis.statistics.inference import Inference
from analysis.statistics.over_trainings import in_worlds, over_trainings
from analysis.statistics.resampling import ENOUGH_EPISODES
from tests.command import assert_refuses
from tests.planted_lives import make_lives, smooth, uneven_lengths, values_of
from tests.planted_trainings import null_rate


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
    groups = [moments(np.full((rows, 1), 0.5)) for rows in (0, 3, 1, 7)]
    *_, last = complements([*groups, moments(np.arange(5.0)[:, None])])
    assert last.variance.tolist() == [0.0]


@settings(max_examples=50)
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


@settings(max_examples=50)
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


@settings(max_examples=50)
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


def test_every_record_is_equally_likely_to_be_drawn() -> None:
    lives = make_lives([3, 10, 25], seed=0)
    for lengths in ([1], [4], [9], [50], [1, 4, 20]):
        # Many rows a draw, so that cutting the last window does not matter.
        drawn = random_windows(np.array(lengths), lives, 400_000, np.random.default_rng(0))
        np.testing.assert_allclose(np.bincount(drawn, minlength=38) / len(drawn), 1 / 38, rtol=0.06)


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


def test_constants_have_no_effect_and_everything_no_complement() -> None:
    features, labels, lives = planted(1.0, 1.0, 0.2, records=4000)
    constant = np.full(len(labels), 0.1)
    effects = effect_sizes(np.column_stack([constant, features]), labels, lives, seed=0)
    assert effects.d_baseline[0, 0] == 0 and effects.d_complement[0, 0] == 0
    assert effects.mean[0, 0] == effects.baseline_mean[0, 0] == effects.complement_mean[0, 0] == 0.1
    assert effects.d_baseline[0, 1] > 0.5
    effects = effect_sizes(features, np.zeros_like(labels), lives, seed=0)
    assert np.isnan(effects.d_complement).all() and np.isnan(effects.complement_mean).all()
    assert abs(effects.d_baseline[0, 0]) < 0.05
    assert effect_sizes(features, np.full_like(labels, -1), lives, seed=0).d_baseline.shape == (0, 1)
    alone = effect_sizes(features, labels, lives, seed=0)
    split = np.where(labels == -1, np.arange(len(labels)) % 2 - 1, labels)
    with_another = effect_sizes(features, np.where(split == 0, np.where(labels == 0, 0, 1), -1), lives, seed=0)
    np.testing.assert_array_equal(alone.d_baseline[0], with_another.d_baseline[0])


SHIFT = 0.8
FEATURES = 3


def dump(
    rng: np.random.Generator, lives: int, episodes: int, world: float, bursts: float = 1.0
) -> tuple[np.ndarray, np.ndarray, Lives, np.ndarray]:
    """One cluster whose features are higher by 0.8 on average; lives and worlds differ in level and in effect."""
    lengths = uneven_lengths(rng, lives)
    episode = np.arange(lives) % episodes
    level = world * rng.normal(size=(episodes, FEATURES))[episode] + 0.7 * rng.normal(size=(lives, FEATURES))
    effect = SHIFT + 0.6 * world * rng.normal(size=(episodes, FEATURES))[episode]
    effect += 0.3 * rng.normal(size=(lives, FEATURES))
    member = [smooth(rng, length, 1)[:, 0] > 1 - bursts * rng.normal() for length in lengths]
    values = [smooth(rng, n, FEATURES) + level[i] + member[i][:, None] * effect[i] for i, n in enumerate(lengths)]
    index = np.repeat(np.arange(lives), lengths)
    return np.concatenate(values), np.where(np.concatenate(member), 0, -1), make_lives(lengths), episode[index]


def true_effects(episodes: int, world: float, bursts: float = 1.0) -> tuple[float, float]:
    """Cohen's d against the dump and against the rest in a large population of lives and worlds."""
    values, labels, *_ = dump(np.random.default_rng(99), 6000, 6000 if world else episodes, world, bursts)
    inside, outside = values[labels == 0], values[labels != 0]
    against_all = (inside.mean(0) - values.mean(0)) / np.sqrt((inside.var(0) + values.var(0)) / 2)
    pooled = (len(inside) * inside.var(0) + len(outside) * outside.var(0)) / len(values)
    against_rest = (inside.mean(0) - outside.mean(0)) / np.sqrt(pooled)
    return float(against_all.mean()), float(against_rest.mean())


@pytest.mark.parametrize(
    ("lives", "episodes", "world", "unit"),
    [(60, 1, 0.0, "life"), (150, 2, 0.0, "life"), (100, 5, 0.0, "episode"), (100, 5, 0.7, "episode"),
     (160, 16, 0.7, "episode")],
)  # fmt: skip
@pytest.mark.slow
def test_intervals_cover_planted_effects_at_their_nominal_rate(
    lives: int, episodes: int, world: float, unit: str
) -> None:
    against_all, against_rest = true_effects(episodes, world)
    settings, hits = Inference(bootstraps=199), {"all": [], "rest": []}
    for run in range(120):
        values, labels, life, episode = dump(np.random.default_rng([1, run]), lives, episodes, world)
        result = effect_intervals(values, labels, life, episode, settings)
        assert result.unit == unit and result.units == (lives if unit == "life" else episodes)
        hits["all"].extend((result.baseline_low[0] <= against_all) & (against_all <= result.baseline_high[0]))
        hits["rest"].extend((result.complement_low[0] <= against_rest) & (against_rest <= result.complement_high[0]))
    for covered in hits.values():
        # 360 intervals; those of one dump share their lives and worlds, so about 120 count.
        assert 0.91 <= np.mean(covered) <= 0.995


def test_a_dozen_lives_are_wide_rather_than_wrong() -> None:
    _, against_rest = true_effects(1, 0.0)
    hits = []
    for run in range(120):
        values, labels, life, episode = dump(np.random.default_rng([2, run]), 12, 1, 0.0)
        if (labels == 0).any():
            result = effect_intervals(values, labels, life, episode, Inference(bootstraps=199))
            known = np.isfinite(result.complement_low[0])
            inside = (result.complement_low[0] <= against_rest) & (against_rest <= result.complement_high[0])
            hits.extend(inside[known])
    assert len(hits) > 200 and np.mean(hits) >= 0.93


@pytest.mark.parametrize("holders", [4, 6])
def test_two_clusters_that_share_a_dump_are_as_sure_of_what_sets_them_apart(holders: int) -> None:
    """A cluster that holds nearly everything is held against few lives: its interval is as wide as theirs."""
    settings = Inference(bootstraps=199)
    rng, lengths = np.random.default_rng([7, holders]), np.full(60, 40)
    inside = np.concatenate([np.isin(np.arange(n), range(10, 30)) & (i < holders) for i, n in enumerate(lengths)])
    values = np.concatenate([smooth(rng, n, FEATURES) for n in lengths]) + SHIFT * inside[:, None]
    result = effect_intervals(values, inside.astype(int), make_lives(lengths), np.zeros(len(values), int), settings)
    assert np.isfinite(result.complement_low).all()
    np.testing.assert_allclose(result.complement_low[0], -result.complement_high[1])
    np.testing.assert_allclose(result.complement_high[0], -result.complement_low[1])


def test_less_confidence_is_shorter_and_agreeing_episodes_are_counted() -> None:
    values, labels, life, episode = dump(np.random.default_rng(3), 60, 1, 0.0)
    estimate = effect_sizes(values, labels, life, 0).d_complement
    wide, short = (effect_intervals(values, labels, life, episode, Inference(confidence=c)) for c in (0.95, 0.5))
    assert (wide.complement_low < short.complement_low).all() and (short.complement_high < wide.complement_high).all()
    assert ((short.complement_low < estimate) & (estimate < short.complement_high)).all()
    values, labels, life, episode = dump(np.random.default_rng(5), 200, ENOUGH_EPISODES, 0.0)
    turned = np.where((episode == 1)[:, None], -values, values)
    result = effect_intervals(turned, labels, life, episode, Inference(bootstraps=99))
    assert result.episodes[0] == ENOUGH_EPISODES and (result.agreeing[0] == ENOUGH_EPISODES - 1).all()


def all_ends(measured: EffectIntervals) -> np.ndarray:
    return np.stack([measured.baseline_low, measured.baseline_high, measured.complement_low, measured.complement_high])


def test_what_cannot_be_resampled_has_no_interval() -> None:
    values, labels, life, episode = dump(np.random.default_rng(4), 30, 1, 0.0)
    settings = Inference(bootstraps=99)
    in_one_life = np.where(life.index == 3, 0, -1)
    assert np.isnan(all_ends(effect_intervals(values, in_one_life, life, episode, settings))).all()
    one = make_lives([len(labels)])
    assert np.isnan(all_ends(effect_intervals(values, labels, one, episode, settings))).all()
    everything = effect_intervals(values, np.zeros_like(labels), life, episode, settings)
    assert np.isnan(everything.complement_low).all() and everything.episodes[0] == 0
    assert effect_intervals(values, np.full_like(labels, -1), life, episode, settings).baseline_low.shape == (0, 3)
    constant = np.column_stack([np.full(len(labels), 0.1), values])
    beside = effect_intervals(constant, labels, life, episode, settings)
    assert np.isnan(beside.complement_low[0, 0]) or beside.complement_low[0, 0] == 0
    assert np.isfinite(beside.complement_low[0, 1:]).all()


def test_what_is_always_so_in_a_cluster_and_never_elsewhere_is_infinitely_apart() -> None:
    _, labels, life, episode = dump(np.random.default_rng(6), 60, 1, 0.0)
    for inside, sign in ((0.3, 1), (-7.1, -1)):
        values = np.where(labels == 0, inside, -0.1)[:, None]
        for first_in_cluster in (True, False):
            order = np.argsort((labels == 0) != first_in_cluster, kind="stable")
            index = life.index[order]
            lengths = np.bincount(index)
            lives = Lives(index, np.argsort(index, kind="stable"), np.cumsum(lengths) - lengths, lengths)
            result = effect_intervals(values[order], labels[order], lives, episode[order], Inference(bootstraps=99))
            assert result.complement_low[0, 0] == result.complement_high[0, 0] == sign * np.inf


SETTINGS = Inference(bootstraps=199)


def intervals(run: int, lives: int, episodes: int, lift: float) -> EffectIntervals:
    """Of four features that are higher by `lift` standard deviations in a cluster of a third of the records."""
    life = make_lives([30] * lives)
    state, *features = values_of(smooth, np.random.default_rng([31, run]), [30] * lives, 5).T
    labels = np.where(state > 0.43, 0, -1)
    values = np.column_stack(features) + lift * (labels == 0)[:, None]
    return effect_intervals(values, labels, life, life.index % episodes, SETTINGS)


@pytest.mark.parametrize(("lives", "episodes"), [(40, 1), (60, 12), (40, 4)])
def test_four_of_five_dumps_find_what_they_are_said_to_find(lives: int, episodes: int) -> None:
    output = np.median([np.median(detectable(intervals(run, lives, episodes, 0.0), 0.95)) for run in range(20)])
    result = [(intervals(100 + run, lives, episodes, float(output)).complement_low > 0).mean() for run in range(60)]
    assert 0.7 < np.mean(result) < 0.9
    assert np.isnan(detectable(intervals(0, 1, 1, 0.0), 0.95)).all(), "without an interval nothing is said"


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


def test_shared_worlds_add_their_own_variance_and_the_interaction_counts_once() -> None:
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
    rng = np.random.default_rng(3)
    # Nothing but the interaction varies: the variance is that of the mean of all cells, not twice that.
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


@pytest.mark.parametrize(("trainings", "worlds"), [(3, 24), (4, 4), (8, 4)])
def test_null_rate_is_held_whatever_the_worlds_share(trainings: int, worlds: int) -> None:
    """Up to three quarters of the variance of trainings' means is common to them."""
    runs, most = 500, 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)
    for common in (0.25, 0.75):
        assert null_rate(trainings, worlds, common, 0.5, shared=True, runs=runs) <= most, common
    assert null_rate(trainings, worlds, 0.75, 0.5, shared=False, runs=runs) <= most


def test_effects_are_found() -> None:
    """An effect of four standard deviations of a training's mean, in four trainings."""
    assert null_rate(4, 8, 0.25, 0.5, shared=True, runs=300, effect=4.0) > 0.8
    assert null_rate(4, 8, 0.25, 0.5, shared=False, runs=300, effect=4.0) > 0.9


def test_pairs_and_kinds_in_other_worlds_and_worlds_are_the_same_or_others() -> None:
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
    one, other = {"a": 1.0, "b": 2.0, "c": np.nan}, {"c": 5.0, "b": 4.0, "a": 3.0}
    (shared,), worlds = in_worlds([[one, other]])
    assert worlds == "shared" and shared.tolist() == [[1.0, 2.0], [3.0, 4.0]]  # the third lacks one value
    (own,), worlds = in_worlds([[one, {f"other {world}": value for world, value in other.items()}]])
    assert worlds == "own" and own.tolist() == [[1.5], [4.0]]
    assert_refuses("share some of the worlds", in_worlds, [[one], [{"a": 1.0, "z": 1.0}]])


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
