"""Effect sizes are those of the records, baselines are fair samples, and intervals cover as often as they promise."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from analysis.statistics.resampling import ENOUGH_EPISODES
from tests.planted_lives import make_lives, smooth, uneven_lengths, values_of


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


def test_a_complement_that_never_varies_has_no_spread() -> None:
    groups = [moments(np.full((rows, 1), 0.5)) for rows in (0, 3, 1, 7)]
    *_, last = complements([*groups, moments(np.arange(5.0)[:, None])])
    assert last.variance.tolist() == [0.0]


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


def test_less_confidence_gives_shorter_intervals_around_the_estimate() -> None:
    values, labels, life, episode = dump(np.random.default_rng(3), 60, 1, 0.0)
    estimate = effect_sizes(values, labels, life, 0).d_complement
    wide, short = (effect_intervals(values, labels, life, episode, Inference(confidence=c)) for c in (0.95, 0.5))
    assert (wide.complement_low < short.complement_low).all() and (short.complement_high < wide.complement_high).all()
    assert ((short.complement_low < estimate) & (estimate < short.complement_high)).all()


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


def test_episodes_that_agree_in_sign_are_counted() -> None:
    values, labels, life, episode = dump(np.random.default_rng(5), 200, ENOUGH_EPISODES, 0.0)
    turned = np.where((episode == 1)[:, None], -values, values)
    result = effect_intervals(turned, labels, life, episode, Inference(bootstraps=99))
    assert result.episodes[0] == ENOUGH_EPISODES and (result.agreeing[0] == ENOUGH_EPISODES - 1).all()


def test_what_is_always_so_in_a_cluster_and_never_elsewhere_is_infinitely_apart() -> None:
    _, labels, life, episode = dump(np.random.default_rng(6), 60, 1, 0.0)
    for inside, sign in ((0.3, 1), (-7.1, -1)):
        values = np.where(labels == 0, inside, -0.1)[:, None]
        for first_in_cluster in (True, False):
            order = np.argsort((labels == 0) != first_in_cluster, kind="stable")
            lives = lives_with(life.index[order])
            result = effect_intervals(values[order], labels[order], lives, episode[order], Inference(bootstraps=99))
            assert result.complement_low[0, 0] == result.complement_high[0, 0] == sign * np.inf


def lives_with(index: np.ndarray) -> Lives:
    order, lengths = np.argsort(index, kind="stable"), np.bincount(index)
    return Lives(index, order, np.cumsum(lengths) - lengths, lengths)


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
