"""A surrogate keeps mean, covariance and autocorrelation, and is Gaussian; only what exceeds the floor passes it."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import kurtosis

from analysis.lives import Lives
from analysis.statistics.surrogate import above_floor, gaussian_surrogate
from tests.planted_lives import make_lives

LENGTHS = [7, 30, 55, 80, 28, 1] * 20
SPEEDS = np.array([0.0, 0.5, 0.9, -0.6])
MIXING = np.random.default_rng(7).normal(size=(4, 6))


def bursts(lives: Lives, seed: int) -> np.ndarray:
    """Sources with rare bursts that fade at `SPEEDS` within lives, mixed: (B, 6)."""
    rng, states = np.random.default_rng(seed), np.empty((len(lives.index), 4))
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        shocks = rng.exponential(size=(length + 60, 4)) * (rng.random((length + 60, 4)) < 0.05)
        result = np.stack([lfilter([1], [1, -speed], shocks[:, i]) for i, speed in enumerate(SPEEDS)], axis=1)
        states[lives.order[start : start + length]] = result[60:]
    return 3 + states @ MIXING


def autocorrelation(values: np.ndarray, lives: Lives, lag: int) -> np.ndarray:
    """Within lives, around the mean of all records, (columns,)."""
    ordered, life = values[lives.order] - values.mean(axis=0), lives.index_in_order
    same = life[lag:] == life[:-lag]
    return (ordered[lag:] * ordered[:-lag])[same].mean(axis=0) / values.var(axis=0)


@pytest.mark.parametrize("more", [0, 1])  # an even and an odd number of records
def test_mean_and_covariance_are_kept_exactly(more: int) -> None:
    lives = make_lives([*LENGTHS, 10 + more], seed=1)
    states = bursts(lives, 2)
    drawn = gaussian_surrogate(states, lives, np.random.default_rng(3))
    np.testing.assert_allclose(drawn.mean(axis=0), states.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(states.T), rtol=1e-9, atol=1e-9)
    assert np.abs(np.corrcoef(drawn[:, 0], states[:, 0])[0, 1]) < 0.15, "it is another draw, not the states"


def test_autocorrelation_within_lives_is_kept_it_is_gaussian_along_every_source_and_draws_differ() -> None:
    lives = make_lives(LENGTHS, seed=1)
    states = bursts(lives, 2)
    unmix = np.linalg.pinv(MIXING)
    drawn = [gaussian_surrogate(states, lives, np.random.default_rng(seed)) for seed in (3, 4)]
    for lag in (1, 2, 4):
        own, again = (autocorrelation((case - 3) @ unmix, lives, lag) for case in (states, drawn[0]))
        np.testing.assert_allclose(again, own, atol=0.1)
    assert own[2] > 0.4, "there is some to keep"
    assert (kurtosis((states - 3) @ unmix) > 5).all()
    assert (np.abs(kurtosis((drawn[0] - 3) @ unmix)) < 0.6).all()
    assert np.abs(np.corrcoef(drawn[0][:, 0], drawn[1][:, 0])[0, 1]) < 0.2


def test_its_lives_follow_each_other_in_another_order() -> None:
    """Neighbours of the dump, such as lives of one world, are not neighbours of the series end to end."""
    lives = make_lives([40] * 40)
    level = np.repeat(np.arange(40) % 2 * 2.0 - 1, 40)[:, None]  # the lives take turns
    drawn = [gaussian_surrogate(level, lives, np.random.default_rng(seed)) for seed in range(40)]
    means = np.reshape(drawn, (40, 40, 40)).mean(axis=2)  # (draws, lives)
    assert np.corrcoef(means[:, :-1].ravel(), means[:, 1:].ravel())[0, 1] > -0.4


def test_single_precision_stays() -> None:
    lives = make_lives([5, 6])
    states = np.random.default_rng(0).normal(size=(11, 20))
    double = gaussian_surrogate(states, lives, np.random.default_rng(1))
    single = gaussian_surrogate(states.astype(np.float32), lives, np.random.default_rng(1))
    assert double.dtype == np.float64 and single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-5)


def test_what_is_no_higher_than_the_floor_rarely_passes_it() -> None:
    rng = np.random.default_rng(0)
    passed = [(above_floor(rng.random(16), rng.random((20, 16))) <= 0.05).any() for _ in range(1000)]
    assert 0 < np.mean(passed) < 0.07


def test_one_value_above_twenty_surrogates_passes_and_what_is_unknown_does_not() -> None:
    floor = np.linspace(0.2, 0.8, 320).reshape(20, 16)
    values = np.full(16, 0.5)
    values[3] = 0.81
    assert (above_floor(values, floor) <= 0.05).nonzero()[0].tolist() == [3]
    values[3] = 0.8  # as high as the highest
    assert not (above_floor(values, floor) <= 0.05).any()
    assert np.isnan(above_floor(np.array([0.9]), np.empty((0, 0)))).all()
    assert np.isnan(above_floor(np.array([np.nan, 0.9]), floor)).tolist() == [True, False]
