"""Intervals over episodes cover as they say, sign flips are as counted by hand, and a direction stands among others."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from analysis.interventions.effects.inference import (
    FEWEST_FOR_RANK,
    OverEpisodes,
    excludes_zero,
    from_one_more,
    rank_threshold,
    ranks_among,
)
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
    result = [over.estimate(draw(rng, episodes)) for _ in range(times)]
    return float(np.mean([item.low <= truth <= item.high for item in result]))


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
    result = over.estimate(values)
    assert result.value == 2.5 and 0 < result.low < 2.5 < result.high < 5 and excludes_zero(result)


@pytest.mark.parametrize("values", [[], [np.nan], [3.0], [2.0, 2.0, 2.0]])
def test_no_interval_where_resampling_has_nothing_to_say(values: list[float]) -> None:
    result = OverEpisodes(Inference()).estimate(np.array(values))
    assert np.isnan([result.low, result.high]).all() and not excludes_zero(result)
    assert np.isnan(result.value) == (not np.isfinite(values).any())


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


def test_sign_flips_of_many_episodes_agree_with_student_also_where_p_is_smaller_than_flips_can_count() -> None:
    values = np.random.default_rng(0).normal(0.4, 1, 30)
    p = OverEpisodes(Inference(permutations=9999)).sign_flip_p(values)
    assert p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01) and p < 0.1
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


def test_one_more_draw_by_hand() -> None:
    estimate, p, error = from_one_more(10.0, np.array([1.0, 2.0, 3.0]), 0.95)
    assert estimate.value == pytest.approx(8) and error.freedom == 2
    assert error.error == pytest.approx(np.sqrt(4 / 3))
    assert estimate.low == pytest.approx(8 - 4.302653 * np.sqrt(4 / 3), abs=1e-4)
    assert p == pytest.approx(0.0202, abs=1e-3)


@pytest.mark.parametrize("draws", [[1.0], [2.0, 2.0]])
def test_draws_without_a_spread_tell_nothing(draws: list[float]) -> None:
    estimate, p, error = from_one_more(10.0, np.array(draws), 0.95)
    assert np.isnan(p) and np.isnan(estimate.low) and error.freedom == 0


@pytest.mark.parametrize("count", [2, 3, 8, 20])
def test_one_more_draw_is_called_different_in_one_case_of_twenty(count: int) -> None:
    drawn = np.random.default_rng(count).normal(30, 7, (2000, 1 + count))
    rate = np.mean([from_one_more(float(row[0]), row[1:], 0.95)[1] <= 0.05 for row in drawn])
    assert rate == pytest.approx(0.05, abs=0.015)


def test_ranks_hold_over_many_effects_of_any_distribution() -> None:
    random = np.random.default_rng(0)
    result = [ranks_among(random.beta(0.3, 0.3, (21, 30)) - 0.5).min() <= 0.05 for _ in range(1000)]
    assert 0.02 < np.mean(result) <= 0.065


def test_a_rank_needs_nineteen_others_and_a_size_beyond_all_of_them() -> None:
    random = np.random.default_rng(1)
    effects = random.normal(0, 0.05, (1 + FEWEST_FOR_RANK, 6))
    effects[0, 2] = 0.4
    p = ranks_among(effects)
    assert p[2] == pytest.approx(0.05) and (np.delete(p, 2) > 0.05).all()
    assert ranks_among(effects[:-1])[2] > 0.05 and np.isinf(rank_threshold(effects[:-1])).all()
    threshold = rank_threshold(effects)
    assert ((np.abs(effects[0]) > threshold) == (np.arange(6) == 2)).all()
