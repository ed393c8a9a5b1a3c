"""Activations that cannot be analysed are refused; residuals lack what a variable explains, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.clusters.dataset import check_activations
from analysis.clusters.residuals import residual_variables, residualize
from analysis.lives import lives_of
from tests.command import assert_refuses
from tests.planted import planted_dump


def test_any_smooth_course_of_a_variable_is_removed_and_the_rest_stays() -> None:
    rng = np.random.default_rng(0)
    tick = rng.integers(0, 1000, 3000)
    course = np.column_stack([tick / 300, np.sin(tick / 150), (tick / 1000) ** 3])
    rest = 0.1 * rng.normal(size=course.shape)
    left, removed = residualize((course + rest).astype(np.float32), {"tick": tick})
    assert np.corrcoef(left.ravel(), rest.ravel())[0, 1] > 0.97
    assert removed == pytest.approx(course.var(0).sum() / (course + rest).var(0).sum(), abs=0.02)


def test_categories_and_straight_lines_are_removed_exactly_even_twice() -> None:
    rng = np.random.default_rng(1)
    episode, health = rng.integers(0, 30, 500), rng.normal(size=500)
    values = np.column_stack([rng.normal(size=30)[episode], 3 * health])
    left, removed = residualize(values, {"episode": episode, "self_health": health, "agent": episode})
    assert np.abs(left).max() < 1e-4 and removed == pytest.approx(1)


def test_a_variable_that_never_changes_removes_nothing() -> None:
    values = np.random.default_rng(2).normal(size=(50, 3))
    left, removed = residualize(values, {"tick": np.full(50, 7)})
    np.testing.assert_allclose(left, values - values.mean(axis=0), atol=1e-6)
    assert removed == pytest.approx(0, abs=1e-9)
    assert residualize(np.ones((5, 2)), {"tick": np.arange(5)})[1] == 0


def test_variables_come_from_the_records_and_the_features() -> None:
    records = planted_dump(agents=3, episodes=2, ticks=20).records
    lives = lives_of(records)
    health = np.arange(len(records))
    result = residual_variables(["tick", "age", "row", "self_health"], records, lives, {"self_health": health})
    assert list(result) == ["tick", "age", "row", "self_health"]
    np.testing.assert_array_equal(result["age"], result["tick"])  # planted lives begin at tick 0
    np.testing.assert_array_equal(result["row"], records.tile[:, 112, 0])
    np.testing.assert_array_equal(result["self_health"], health)
    message = "--residualize tik: there is no such variable; did you mean tick"
    assert_refuses(message, residual_variables, ["tik"], records, lives, {})


RECORDS = planted_dump(agents=3, episodes=1, ticks=10).records
LAYER = "action_decoder"


def with_activations(activations: np.ndarray):
    return replace(RECORDS, activations={LAYER: activations})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_and_named(value: float) -> None:
    check_activations(RECORDS, LAYER)
    activations = RECORDS.activations[LAYER].copy()
    activations[[5, 9], 3] = value
    message = rf"in 2 of {len(RECORDS)} records, first of agent {RECORDS.agent_id[5]} at step {RECORDS.step[5]}:"
    assert_refuses(message, check_activations, with_activations(activations), LAYER)


def test_activations_whose_distances_overflow_are_refused() -> None:
    largest = RECORDS.activations[LAYER] / np.abs(RECORDS.activations[LAYER]).max()
    check_activations(with_activations(largest * 1e17), LAYER)
    message = r"holds 1e\+20, so that squared distances overflow"
    assert_refuses(message, check_activations, with_activations(largest * 1e20), LAYER)
