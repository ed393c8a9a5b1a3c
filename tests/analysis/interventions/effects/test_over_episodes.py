"""Intervals over episodes cover as often as they say; sign flips give the p-values that can be counted by hand."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from analysis.interventions.effects.inference import OverEpisodes, excludes_zero
from analysis.statistics.inference import Inference

Draw = Callable[[np.random.Generator, int], np.ndarray]

SHAPES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, count: rng.normal(size=count), 0.0),
    "heavy tails": (lambda rng, count: rng.standard_t(3, count), 0.0),
    "rare deaths among 16 lives": (
        lambda rng, count: (rng.binomial(16, 0.15, count) - rng.binomial(16, 0.05, count)) / 16,
        0.1,
    ),
    "very skewed": (lambda rng, count: rng.exponential(size=count), 1.0),
}


def covered(shape: str, episodes: int, times: int) -> float:
    draw, truth = SHAPES[shape]
    rng = np.random.default_rng(episodes)
    over = OverEpisodes(Inference(bootstraps=999))
    found = [over.estimate(draw(rng, episodes)) for _ in range(times)]
    return float(np.mean([each.low <= truth <= each.high for each in found]))


@pytest.mark.parametrize("episodes", [6, 12])
def test_intervals_cover(episodes: int) -> None:
    assert 0.92 <= covered("normal", episodes, 500) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("episodes", [6, 20])
def test_intervals_cover_with_few_episodes_of_any_shape(shape: str, episodes: int) -> None:
    """Of the mean of an exponential, Student's intervals cover 0.89 with 6 and 0.92 with 20."""
    assert covered(shape, episodes, 800) >= (0.87 if shape == "very skewed" else 0.91)


def test_estimate_leaves_out_episodes_without_a_value() -> None:
    over = OverEpisodes(Inference())
    values = np.array([1.0, 2.0, 4.0, 3.0])
    with_gaps = np.array([1.0, np.nan, 2.0, 4.0, np.nan, 3.0])
    assert over.estimate(with_gaps) == over.estimate(values)
    found = over.estimate(values)
    assert found.value == 2.5 and 0 < found.low < 2.5 < found.high < 5 and excludes_zero(found)


@pytest.mark.parametrize("values", [[], [np.nan], [3.0], [2.0, 2.0, 2.0]])
def test_no_interval_where_resampling_has_nothing_to_say(values: list[float]) -> None:
    found = OverEpisodes(Inference()).estimate(np.array(values))
    assert np.isnan([found.low, found.high]).all() and not excludes_zero(found)
    assert np.isnan(found.value) == (not np.isfinite(values).any())


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1.0, 2.0, 3.0, 4.0], 2 / 16),  # only all signs alike are as extreme
        ([1.0, 2.0, 3.0, -1.0], 6 / 16),  # 7 in one way, 5 in two, and their negatives
        ([5.0, np.nan, 5.0], 2 / 4),
        ([1.0, -1.0], 1.0),
        ([0.0, 0.0, 0.0], np.nan),
        ([1.0], np.nan),
    ],
)
def test_sign_flips_counted_by_hand(values: list[float], p: float) -> None:
    over = OverEpisodes(Inference())
    assert over.sign_flip_p(np.array(values)) == pytest.approx(p, nan_ok=True)


def test_sign_flips_of_many_episodes_agree_with_student() -> None:
    values = np.random.default_rng(0).normal(0.4, 1, 30)
    p = OverEpisodes(Inference(permutations=9999)).sign_flip_p(values)
    assert p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01) and p < 0.1


def test_many_times_smaller_p_values_than_flips_can_count() -> None:
    values = np.random.default_rng(0).normal(5, 1, 9)
    over = OverEpisodes(Inference())
    assert over.sign_flip_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=5)
    assert over.sign_flip_p(values) < 2 / 2**9 / 100
    assert over.sign_flip_p(values[:6]) == 2 / 2**6  # too few flips for a tail


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [7, 20])
@pytest.mark.parametrize("shape", ["normal", "heavy tails"])
def test_sign_flips_hold_their_level(episodes: int, shape: str) -> None:
    over = OverEpisodes(Inference(permutations=999))
    rng = np.random.default_rng(3)
    p = np.array([over.sign_flip_p(SHAPES[shape][0](rng, episodes)) for _ in range(2_000)])
    for level in (0.05, 0.01, 0.001):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level / len(p))
