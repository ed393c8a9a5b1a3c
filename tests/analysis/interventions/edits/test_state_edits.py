"""Edits of states, and erasers fitted to sums, do what their formulas say or what they were fitted to, nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from analysis.interventions.edits.edit import random_eraser
from analysis.interventions.edits.linear_readings import (
    JointMoments,
    NothingToErase,
    Reading,
    fitted_eraser,
    held_out_r_squared,
)
from analysis.interventions.edits.state_edits import AsFarAs, DirectedEdit, Eraser, collapse, steer, swap
from tests.command import assert_refuses
from tests.planted_interventions import direction, unit

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


@pytest.fixture(scope="module")
def joint(planted) -> JointMoments:
    return moments(READING, *planted[:2])


@pytest.fixture(scope="module")
def eraser(joint: JointMoments) -> Eraser:
    return fitted_eraser(READING, joint, "trained")


def test_an_eraser_leaves_nothing_of_what_was_named_and_changes_little(planted, joint, eraser) -> None:
    """The least where states are white, as the paper proves; compared with the orthogonal projection."""
    states, rows, _ = planted
    wanted = [r_squared(states, rows[:, place]) for place in (0, 1)]
    np.testing.assert_allclose(joint.r_squared(), wanted, rtol=1e-5)
    assert min(wanted) > 0.2 and max(wanted) < 0.99
    states, rows, other = planted
    after = erased(states, eraser)
    assert eraser.left.shape == (UNITS, 2)
    assert moments(READING, after, rows).r_squared() == pytest.approx([0, 0], abs=1e-6)
    assert joint.r_squared(eraser.kept) == pytest.approx([0, 0], abs=1e-6)
    assert r_squared(after, other) > r_squared(states, other) - 0.05 > 0.5
    np.testing.assert_allclose(after.mean(axis=0), states.mean(axis=0), atol=1e-4)
    np.testing.assert_array_equal(after[:, 6], states[:, 6])
    number = Reading("lstm_cell", ("self_id",))
    alone = fitted_eraser(number, moments(number, states, rows), "")
    assert r_squared(erased(states, alone), rows[:, 1]) == pytest.approx(r_squared(states, rows[:, 1]), abs=0.05)
    states = planted[0]
    # The least where states are white, as the paper proves; compared with the orthogonal projection.
    centred = states - states.mean(axis=0)
    cross = np.linalg.qr(joint.covariance[:UNITS, UNITS:])[0]
    values, vectors = np.linalg.eigh(joint.states.covariance)
    white = vectors / np.sqrt(values)
    by_leace, orthogonal = ((erased(states, eraser) - states) @ white, centred @ cross @ cross.T @ white)
    assert (by_leace**2).sum() < 0.9 * (orthogonal**2).sum()


def test_variables_that_say_the_same_are_erased_once_and_still_ones_refused(planted) -> None:
    states, rows, _ = planted
    same = np.column_stack([rows[:, 0], rows[:, 0], rows[:, 2]])
    eraser = fitted_eraser(READING, moments(READING, states, same), "trained")
    assert eraser.left.shape == (UNITS, 1)
    assert moments(READING, erased(states, eraser), rows).r_squared()[0] == pytest.approx(0, abs=1e-6)
    reading = Reading("lstm_cell", ("self_id", "self_npc_type"))
    with pytest.raises(NothingToErase, match="self_npc_type: it has the same value in all 3,000"):
        fitted_eraser(reading, moments(reading, states, rows), "trained")


def test_a_random_eraser_takes_as_much_variance_and_leaves_the_variables(planted, joint, eraser) -> None:
    states, rows, _ = planted
    control = random_eraser(eraser, joint.states, np.random.default_rng(1))
    moved, also = (((erased(states, case) - states) ** 2).sum() for case in (eraser, control))
    assert also == pytest.approx(moved, rel=0.05)
    np.testing.assert_allclose(control.right @ control.left, np.eye(2), atol=1e-9)
    for which in (eraser, control):  # what is erased is uncorrelated with what is left
        after = erased(states, which).astype(np.float64)
        gone = states - after
        shared = np.cov(gone.T, after.T)[:UNITS, UNITS:]
        assert np.abs(shared).max() < 0.05 * gone.var(axis=0).max()
    assert min(r_squared(erased(states, control), rows[:, place]) for place in (0, 1)) > 0.05


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


SIZE = 6
RANDOM = np.random.default_rng(0)
STATES = torch.from_numpy(RANDOM.standard_normal((50, SIZE)).astype(np.float32))
BEFORE = torch.from_numpy(RANDOM.standard_normal((50, SIZE)).astype(np.float32))
OBLIQUE = direction([1, 2, 0, 0, 0, 0.5], bias=3.0, mean=7.0, spread=2.0)
OTHER = direction([0, 1, 1, 0, 0, 0], "other", mean=-1.0, spread=0.5)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def test_collapsed_read_outs_are_their_means_and_steered_ones_the_dose() -> None:
    together = collapse([OBLIQUE, OTHER], "state").edited(None, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(together.numpy()), 7.0, **CLOSE)
    np.testing.assert_allclose(OTHER.read_out(together.numpy()), -1.0, **CLOSE)
    after = collapse([OBLIQUE], "state").edited(None, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(after.numpy()), 7.0, **CLOSE)
    orthogonal = direction([-2, 1, 0, 4, 1, 0])
    np.testing.assert_allclose(orthogonal.read_out(after.numpy()), orthogonal.read_out(STATES.numpy()), **CLOSE)
    after = collapse([OBLIQUE], "change").edited(BEFORE, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(after.numpy()), OBLIQUE.read_out(BEFORE.numpy()), **CLOSE)
    for dose in (-2.0, 0.0, 1.5):
        steered = steer(OBLIQUE, dose).edited(None, STATES)
        np.testing.assert_allclose(OBLIQUE.read_out(steered.numpy()), 7.0 + 2.0 * dose, **CLOSE)


@pytest.mark.parametrize(
    "edit", [lambda given: collapse([OBLIQUE], "state", given), lambda given: steer(OBLIQUE, 0, given)]
)
def test_along_the_covariance_the_read_out_is_as_wanted_and_the_change_is_the_likeliest(edit) -> None:  # type: ignore[no-untyped-def]
    mixing = np.random.default_rng(1).standard_normal((SIZE, SIZE))
    covariance = mixing @ mixing.T
    after = edit(covariance).edited(None, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(after.numpy()), 7.0, rtol=1e-3)
    change = (after - STATES).numpy().astype(np.float64)
    shortest = (edit(None).edited(None, STATES) - STATES).numpy()
    distance, other = (np.einsum("bu,uv,bv->b", far, np.linalg.inv(covariance), far) for far in (change, shortest))
    assert (distance < other).all()
    along = covariance @ OBLIQUE.weight
    sizes = np.linalg.norm(change, axis=1) * np.linalg.norm(along)
    np.testing.assert_allclose(np.abs(change @ along), sizes, rtol=1e-4)


def test_oblique_directions_are_swapped_in_whitened_space() -> None:
    """The origin keeps its mean, the target gains the same number of standard deviations, the rest moves with the data:
    a read-out that does not vary together with either stays as it was."""
    mixing = RANDOM.standard_normal((SIZE, SIZE))
    covariance = mixing @ mixing.T
    after = swap(OBLIQUE, OTHER, "state", lambda layer: covariance).edited(None, STATES).numpy()
    before = OBLIQUE.read_out(STATES.numpy())
    np.testing.assert_allclose(OBLIQUE.read_out(after), 7.0, **CLOSE)
    gained = OTHER.read_out(after) - OTHER.read_out(STATES.numpy())
    np.testing.assert_allclose(gained / OTHER.spread, (before - 7.0) / OBLIQUE.spread, **CLOSE)
    reads = np.stack([OBLIQUE.weight, OTHER.weight]).astype(float)
    unrelated = np.linalg.svd(reads @ covariance)[2][-1]  # its covariance with both read-outs is 0
    np.testing.assert_allclose(after @ unrelated, STATES.numpy() @ unrelated, **CLOSE)


def test_a_random_direction_moves_as_far_to_the_same_side_only_once() -> None:
    original = collapse([OBLIQUE], "state")
    along = np.eye(SIZE)[[3]]
    moved = (AsFarAs(original, along).edited(None, STATES) - STATES).double()
    meant = (original.edited(None, STATES) - STATES).double()
    np.testing.assert_allclose(moved.norm(dim=1), meant.norm(dim=1), **CLOSE)
    assert (moved[:, [0, 1, 2, 4, 5]] == 0).all()
    assert ((moved[:, 3] > 0) == (meant @ torch.from_numpy(original.axes()[0]) >= 0)).all()
    control = AsFarAs(original, along, np.array([0.5]))
    once = control.edited(None, STATES)
    again = control.edited(None, once)
    np.testing.assert_allclose((once[:, 3] - 0.5).abs(), meant.norm(dim=1), **CLOSE)
    np.testing.assert_allclose(again, once, **CLOSE)


ERASER = Eraser("lstm_hidden", np.eye(SIZE)[:, [1, 5]], np.eye(SIZE)[[1, 5]], np.full(SIZE, 0.25))


@pytest.mark.parametrize("original", [collapse([OBLIQUE, OTHER], "state"), ERASER], ids=["collapse", "eraser"])
def test_several_random_directions_keep_distances_between_moves(original: DirectedEdit) -> None:
    moved = (AsFarAs(original, np.eye(SIZE)[[3, 4]]).edited(None, STATES) - STATES).double()
    meant = (original.edited(None, STATES) - STATES).double()
    np.testing.assert_allclose(moved @ moved.T, meant @ meant.T, **CLOSE)
    assert (moved[:, [0, 1, 2, 5]] == 0).all()


def test_directions_that_cannot_be_edited_together_are_refused() -> None:
    nearly = replace(OBLIQUE, weight=OBLIQUE.weight + np.float32(1e-5) * np.arange(SIZE, dtype=np.float32))
    none = replace(OBLIQUE, weight=np.zeros_like(OBLIQUE.weight))
    assert_refuses("does not vary", collapse, [none], "state")
    for same in (OBLIQUE, nearly):
        assert_refuses("not independent", collapse, [OBLIQUE, same], "state")
    assert_refuses("several layers", collapse, [OBLIQUE, unit(0, SIZE, layer="lstm_cell")], "state")
    assert_refuses("same layer", swap, OBLIQUE, unit(0, SIZE, layer="lstm_cell"), "state", None)
    assert_refuses("does not vary", swap, unit(0, SIZE, "still", spread=0.0), OTHER, "state", None)
