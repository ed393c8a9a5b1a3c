"""Shares of what groups tell that are in a list, on lives in which they are known."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.statistics.coverage import Coverage, coverage
from analysis.statistics.inference import Inference
from tests.planted_coverage import Told, told

FAST = Inference(bootstraps=199)


def covered(drawn: Told) -> Coverage:
    studied = (drawn.groups[:, None] == np.arange(4)).astype(np.float64)
    (result,) = coverage(drawn.listed, studied, drawn.groups, {"what happens": drawn.targets}, drawn.unit, FAST)
    return result


def measured(how: str, seed: int = 0, lives: int = 40) -> Coverage:
    return covered(told(np.random.default_rng(seed), how, lives))


@pytest.mark.parametrize("how", ["one feature", "two features"])
def test_groups_made_of_listed_features_are_covered(how: str) -> None:
    """Also where no straight line through the features tells the groups."""
    result = measured(how)
    assert result.reliable and result.studied == pytest.approx(0.2, abs=0.06)  # of each part 1/4 / (1 + 1/4)
    assert result.uncovered < 0.15 and result.uncovered_low < 0.1


def test_groups_of_something_hidden_are_not_covered() -> None:
    result = measured("hidden")
    assert result.reliable and result.listed < 0.02
    assert result.uncovered > 0.9 and 0.7 < result.uncovered_low < result.uncovered < result.uncovered_high


def test_half_is_half_and_the_part_that_is_not_covered_is_named() -> None:
    result = measured("half hidden")
    assert result.uncovered_low < 0.5 < result.uncovered_high and 0.35 < result.uncovered < 0.65
    first, second = result.parts
    assert (first.name, second.name) == ("first", "second")
    assert second.together - second.listed > 0.1 > 0.03 > first.together - first.listed
    assert result.studied == pytest.approx((first.studied + second.studied) / 2)


def test_of_noise_nothing_is_said() -> None:
    for seed in range(2):
        result = measured("noise", seed)
        assert not result.reliable and abs(result.studied) < 0.02
        assert np.isnan([result.uncovered, result.uncovered_low, result.uncovered_high]).all()


def test_a_whole_life_is_held_out() -> None:
    """Groups that name the life tell its own level, and nothing about other lives."""
    rng = np.random.default_rng(0)
    life = np.repeat(np.arange(12), 20)
    level = rng.normal(size=12)[life][:, None] + 0.1 * rng.normal(size=(240, 1))
    studied = (life[:, None] == np.arange(12)).astype(np.float64)
    (result,) = coverage(rng.normal(size=(240, 3)), studied, life, {"level": {"level": level}}, life, FAST)
    assert result.studied < 0.05 and not result.reliable


def test_parts_count_alike_whatever_their_units_and_columns() -> None:
    drawn = told(np.random.default_rng(0), "half hidden")
    first, second = drawn.targets.values()
    other = {"first": np.column_stack([first, first]) * 1000 + 7, "second": second}
    plain, scaled = (covered(replace(drawn, targets=targets)) for targets in (drawn.targets, other))
    assert scaled.studied == pytest.approx(plain.studied, abs=1e-6)
    assert scaled.uncovered == pytest.approx(plain.uncovered, abs=1e-5)


def test_fewer_lives_give_wider_intervals() -> None:
    few, many = (measured("half hidden", lives=lives) for lives in (10, 80))
    width = [case.studied_high - case.studied_low for case in (few, many)]
    assert width[0] > 1.5 * width[1]
