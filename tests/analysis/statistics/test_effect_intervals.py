"""Intervals cover planted effects as often as they promise, with few lives and with worlds that differ too."""

import numpy as np
import pytest

from analysis.lives import Lives
from analysis.statistics.effect_intervals import ENOUGH_EPISODES, EffectIntervals, effect_intervals
from analysis.statistics.effect_sizes import effect_sizes
from analysis.statistics.inference import Inference
from analysis.statistics.power import detectable
from tests.planted_lives import make_lives, smooth, uneven_lengths, values_of

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


def all_ends(found: EffectIntervals) -> np.ndarray:
    return np.stack([found.baseline_low, found.baseline_high, found.complement_low, found.complement_high])


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
