"""Correlations within lives: planted ones are found, chance ones are not, and every shift is counted right."""

import numpy as np
import pytest

from analysis.lives import Lives
from analysis.statistics.shifted_correlations import _all_shifts, shifted_correlations
from tests.planted_lives import make_lives

LIVES, TICKS, SHIFTS = 24, 80, 199


def smooth(rng: np.random.Generator, lives: Lives, columns: int) -> np.ndarray:
    """Random walks that return to 0, at another level in each life."""
    return drift(rng, lives, columns) + 20 * rng.normal(size=(len(lives), columns))[lives.index]


def drift(rng: np.random.Generator, lives: Lives, columns: int) -> np.ndarray:
    """Random walks that return to 0."""
    values = rng.normal(size=(len(lives.index), columns))
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        for t in range(start + 1, start + length):
            values[t] += 0.9 * values[t - 1]
    return values


@pytest.fixture(scope="module")
def lives() -> Lives:
    return make_lives(np.random.default_rng(1).integers(TICKS // 2, TICKS, LIVES).tolist())


def test_every_circular_shift_is_summed() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(7, 3))
    expected = np.stack([x.T @ np.roll(y, -shift, axis=0) for shift in range(7)])
    np.testing.assert_allclose(_all_shifts(x, y), expected, atol=1e-12)


def test_planted_relations_are_found_and_others_are_not(lives: Lives) -> None:
    rng = np.random.default_rng(2)
    right = smooth(rng, lives, 3)
    left = np.stack([right[:, 1] + smooth(rng, lives, 1)[:, 0], -right[:, 2], np.ones(len(right))], axis=1)
    result = shifted_correlations(left, right, lives, SHIFTS, 0)
    assert result.q[0, 1] < 0.01 and result.q[1, 2] < 0.01
    assert result.r[1, 2] == pytest.approx(-1) and 0.4 < result.r[0, 1] < 0.95
    assert np.isnan(result.p[2]).all() and np.isnan(result.r[2]).all()


def test_smooth_series_alone_are_rarely_related(lives: Lives) -> None:
    rng = np.random.default_rng(3)
    result = shifted_correlations(smooth(rng, lives, 15), smooth(rng, lives, 15), lives, SHIFTS, 0)
    assert (result.p < 0.05).mean() < 0.1 and np.nanmin(result.q) > 0.01


def test_what_all_lives_of_an_episode_share_is_not_taken_for_a_relation() -> None:
    """Two series that drift with each world's tick, in 8 worlds of 6 lives: only 8 independent pairs."""
    lives, rng = make_lives([40] * 48), np.random.default_rng(4)
    episode = np.repeat(np.arange(8), 6 * 40)
    worlds = make_lives([40] * 8)
    shared = [np.tile(smooth(rng, worlds, 10).reshape(8, 1, 40, 10), (1, 6, 1, 1)).reshape(-1, 10) for _ in range(2)]
    noise = [0.01 * rng.normal(size=shared[0].shape) for _ in range(2)]
    left, right = shared[0] + noise[0], shared[1] + noise[1]
    alone, together = (shifted_correlations(left, right, lives, SHIFTS, 0, episode=of) for of in (None, episode))
    assert (alone.p < 0.05).mean() > 0.2 and (together.p < 0.05).mean() < 0.12


def test_only_the_chosen_records_count(lives: Lives) -> None:
    rng = np.random.default_rng(5)
    inside = np.arange(len(lives.index)) % 40 < 15
    right = drift(rng, lives, 1)
    left = np.where(inside[:, None], right, drift(rng, lives, 1))
    result = shifted_correlations(left, right, lives, SHIFTS, 0, inside=inside)
    without = shifted_correlations(left, right, lives, SHIFTS, 0, inside=~inside)
    assert result.r[0, 0] > 0.8 and result.p[0, 0] < 0.01
    assert abs(without.r[0, 0]) < 0.4 and without.p[0, 0] > 0.01


def test_too_few_lives_are_not_tested() -> None:
    lives = make_lives([30] * 5)
    values = smooth(np.random.default_rng(6), lives, 1)
    result = shifted_correlations(values, values, lives, SHIFTS, 0)
    assert np.isnan(result.p).all() and result.r[0, 0] == pytest.approx(1)
