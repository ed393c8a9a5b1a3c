"""Erasers fitted to sums erase what they were fitted to and nothing else; R2 of read-outs is that of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from analysis.interventions.edits.linear_readings import (
    JointMoments,
    NothingToErase,
    Reading,
    fitted_eraser,
    held_out_r_squared,
)
from analysis.interventions.edits.state_edits import AsFarAs
from analysis.interventions.play.arm_edits import orthonormal, random_eraser

UNITS, COUNT = 8, 3000
COLUMNS = ("id", "food", "npc_type")
READING = Reading("lstm_cell", ("self_id", "self_food"))


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated states in which two variables and a third, independent value are planted; one unit never varies."""
    random = np.random.default_rng(0)
    variables = random.integers(0, 50, COUNT), random.integers(0, 100, COUNT), np.zeros(COUNT, dtype=int)
    rows = np.column_stack(variables).astype(np.int16)
    other = random.standard_normal(COUNT)
    mixing = random.standard_normal((UNITS, UNITS))
    noise = random.standard_normal((COUNT, UNITS)) @ mixing
    into = random.standard_normal((3, UNITS)) * 2
    states = noise + (rows[:, :2] - rows[:, :2].mean(axis=0)) / (15, 30) @ into[:2] + other[:, None] * into[2] + 5
    states[:, 6] = 0.7
    return states.astype(np.float32), rows, other


def moments(reading: Reading, states: np.ndarray, rows: np.ndarray) -> JointMoments:
    """Of sums over three batches, which is how they come in."""
    batches = np.array_split(np.arange(len(states)), 3)
    sums = [reading.sums(states[batch], rows[batch], COLUMNS, 0) for batch in batches]
    return reading.of(sum(sums, reading.empty(UNITS)))


def r_squared(states: np.ndarray, values: np.ndarray) -> float:
    return float(LinearRegression().fit(states.astype(np.float64), values).score(states.astype(np.float64), values))


def erased(states: np.ndarray, eraser) -> np.ndarray:
    return eraser.apply(torch.from_numpy(states)).numpy()


def test_r_squared_is_that_of_a_regression(planted) -> None:
    states, rows, _ = planted
    result = moments(READING, states, rows)
    wanted = [r_squared(states, rows[:, place]) for place in (0, 1)]
    np.testing.assert_allclose(result.r_squared(), wanted, rtol=1e-5)
    assert min(wanted) > 0.2 and max(wanted) < 0.99


def test_an_eraser_leaves_nothing_to_read_but_what_was_not_named(planted) -> None:
    states, rows, other = planted
    result = moments(READING, states, rows)
    eraser = fitted_eraser(READING, result, "trained")
    after = erased(states, eraser)
    assert eraser.left.shape == (UNITS, 2)
    assert moments(READING, after, rows).r_squared() == pytest.approx([0, 0], abs=1e-6)
    assert result.r_squared(eraser.kept) == pytest.approx([0, 0], abs=1e-6)
    assert r_squared(after, other) > r_squared(states, other) - 0.05 > 0.5
    np.testing.assert_allclose(after.mean(axis=0), states.mean(axis=0), atol=1e-4)
    np.testing.assert_array_equal(after[:, 6], states[:, 6])
    number = Reading("lstm_cell", ("self_id",))
    alone = fitted_eraser(number, moments(number, states, rows), "")
    assert r_squared(erased(states, alone), rows[:, 1]) == pytest.approx(r_squared(states, rows[:, 1]), abs=0.05)


def test_an_eraser_changes_states_less_than_any_other_that_leaves_nothing(planted) -> None:
    """Where states are white, as the paper proves; compared with the orthogonal projection."""
    states, rows, _ = planted
    result = moments(READING, states, rows)
    eraser = fitted_eraser(READING, result, "trained")
    centred = states - states.mean(axis=0)
    cross = np.linalg.qr(result.covariance[:UNITS, UNITS:])[0]
    values, vectors = np.linalg.eigh(result.states.covariance)
    white = vectors / np.sqrt(values)
    by_leace, orthogonal = ((erased(states, eraser) - states) @ white, centred @ cross @ cross.T @ white)
    assert (by_leace**2).sum() < 0.9 * (orthogonal**2).sum()


def test_variables_that_say_the_same_are_erased_once(planted) -> None:
    states, rows, _ = planted
    same = np.column_stack([rows[:, 0], rows[:, 0], rows[:, 2]])
    eraser = fitted_eraser(READING, moments(READING, states, same), "trained")
    assert eraser.left.shape == (UNITS, 1)
    assert moments(READING, erased(states, eraser), rows).r_squared()[0] == pytest.approx(0, abs=1e-6)


def test_a_variable_that_does_not_vary_is_refused(planted) -> None:
    states, rows, _ = planted
    reading = Reading("lstm_cell", ("self_id", "self_npc_type"))
    with pytest.raises(NothingToErase, match="self_npc_type: it has the same value in all 3,000"):
        fitted_eraser(reading, moments(reading, states, rows), "trained")


def test_a_random_eraser_takes_as_much_variance_and_leaves_the_variables(planted) -> None:
    states, rows, _ = planted
    result = moments(READING, states, rows)
    eraser = fitted_eraser(READING, result, "trained")
    control = random_eraser(eraser, result.states, np.random.default_rng(1))
    moved, also = (((erased(states, case) - states) ** 2).sum() for case in (eraser, control))
    assert also == pytest.approx(moved, rel=0.05)
    np.testing.assert_allclose(control.right @ control.left, np.eye(2), atol=1e-9)
    for which in (eraser, control):  # what is erased is uncorrelated with what is left
        after = erased(states, which).astype(np.float64)
        gone = states - after
        shared = np.cov(gone.T, after.T)[:UNITS, UNITS:]
        assert np.abs(shared).max() < 0.05 * gone.var(axis=0).max()
    assert min(r_squared(erased(states, control), rows[:, place]) for place in (0, 1)) > 0.05


def test_moves_along_random_directions_keep_distances_and_number_of_dimensions(planted) -> None:
    states, rows, _ = planted
    eraser = fitted_eraser(READING, moments(READING, states, rows), "trained")
    turned = AsFarAs(eraser, orthonormal(2, UNITS, np.random.default_rng(2)))
    move, other = erased(states, eraser) - states, erased(states, turned) - states
    np.testing.assert_allclose(move @ move.T, other @ other.T, rtol=1e-2, atol=1e-2)
    assert np.linalg.matrix_rank(other, tol=1e-2) == 2


def test_held_out_r_squared_finds_what_is_there_and_nothing_else(planted) -> None:
    states, rows, _ = planted
    few = np.array_split(np.arange(90), 3)
    alike = [READING.of(READING.sums(states[batch], rows[batch], COLUMNS, 0)) for batch in few]
    result = held_out_r_squared(alike)
    wanted = []
    for place in (0, 1):
        residual = spread = 0.0
        for batch in few:
            rest = np.setdiff1d(np.arange(90), batch)
            fitted = LinearRegression().fit(states[rest].astype(np.float64), rows[rest, place])
            values = rows[batch, place].astype(float)
            residual += ((values - fitted.predict(states[batch].astype(np.float64))) ** 2).sum()
            spread += ((values - values.mean()) ** 2).sum()
        wanted.append(1 - residual / spread)
    assert result == pytest.approx(wanted, rel=1e-4)
    unrelated = np.random.default_rng(3).standard_normal(states.shape).astype(np.float32)
    nothing = held_out_r_squared([READING.of(READING.sums(unrelated[b], rows[b], COLUMNS, 0)) for b in few])
    assert nothing is not None and nothing.max() < 0
    assert held_out_r_squared(alike[:1]) is None
    still = Reading("lstm_cell", ("self_npc_type",))
    values = held_out_r_squared([still.of(still.sums(states[b], rows[b], COLUMNS, 0)) for b in few])
    assert values is not None and np.isnan(values).all()
