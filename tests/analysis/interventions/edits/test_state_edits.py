"""Edits of states do what their formulas say, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.interventions.edits.state_edits import AsFarAs, Eraser, Untouched, collapse, steer, swap
from tests.analysis.interventions.play.directions import direction, unit
from tests.command import assert_refuses

UNITS = 6
RANDOM = np.random.default_rng(0)
STATES = torch.from_numpy(RANDOM.standard_normal((50, UNITS)).astype(np.float32))
BEFORE = torch.from_numpy(RANDOM.standard_normal((50, UNITS)).astype(np.float32))
OBLIQUE = direction([1, 2, 0, 0, 0, 0.5], bias=3.0, mean=7.0, spread=2.0)
OTHER = direction([0, 1, 1, 0, 0, 0], "other", mean=-1.0, spread=0.5)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def test_collapsed_read_outs_are_their_means_and_orthogonal_ones_stay() -> None:
    together = collapse([OBLIQUE, OTHER], "state").edited(None, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(together.numpy()), 7.0, **CLOSE)
    np.testing.assert_allclose(OTHER.read_out(together.numpy()), -1.0, **CLOSE)
    after = collapse([OBLIQUE], "state").edited(None, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(after.numpy()), 7.0, **CLOSE)
    orthogonal = direction([-2, 1, 0, 4, 1, 0])
    np.testing.assert_allclose(orthogonal.read_out(after.numpy()), orthogonal.read_out(STATES.numpy()), **CLOSE)


def test_a_collapsed_change_leaves_the_read_out_as_it_was_before_the_tick() -> None:
    after = collapse([OBLIQUE], "change").edited(BEFORE, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(after.numpy()), OBLIQUE.read_out(BEFORE.numpy()), **CLOSE)


@pytest.mark.parametrize("dose", [-2.0, 0.0, 1.5])
def test_a_steered_read_out_is_the_dose(dose: float) -> None:
    after = steer(OBLIQUE, dose).edited(None, STATES)
    np.testing.assert_allclose(OBLIQUE.read_out(after.numpy()), 7.0 + 2.0 * dose, **CLOSE)


@pytest.mark.parametrize(
    "edit", [lambda given: collapse([OBLIQUE], "state", given), lambda given: steer(OBLIQUE, 0, given)]
)
def test_along_the_covariance_the_read_out_is_as_wanted_and_the_change_is_the_likeliest(edit) -> None:  # type: ignore[no-untyped-def]
    mixing = np.random.default_rng(1).standard_normal((UNITS, UNITS))
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


def test_swap_moves_the_change_from_one_direction_to_the_other() -> None:
    """The formula of the original: d' = d - (d . from) from + (d . from) to, for orthonormal directions."""
    origin, target = unit(1, UNITS, "from"), unit(4, UNITS, "to")
    after = swap(origin, target, "change", None).edited(BEFORE, STATES)
    change = (STATES - BEFORE).numpy()
    wanted = change.copy()
    wanted[:, 1] = 0
    wanted[:, 4] += change[:, 1]
    np.testing.assert_allclose((after - BEFORE).numpy(), wanted, **CLOSE)


def test_oblique_directions_are_swapped_in_whitened_space() -> None:
    """The origin keeps its mean, the target gains the same number of standard deviations, the rest moves with the data:
    a read-out that does not vary together with either stays as it was."""
    mixing = RANDOM.standard_normal((UNITS, UNITS))
    covariance = mixing @ mixing.T
    after = swap(OBLIQUE, OTHER, "state", covariance).edited(None, STATES).numpy()
    before = OBLIQUE.read_out(STATES.numpy())
    np.testing.assert_allclose(OBLIQUE.read_out(after), 7.0, **CLOSE)
    gained = OTHER.read_out(after) - OTHER.read_out(STATES.numpy())
    np.testing.assert_allclose(gained / OTHER.spread, (before - 7.0) / OBLIQUE.spread, **CLOSE)
    reads = np.stack([OBLIQUE.weight, OTHER.weight]).astype(float)
    unrelated = np.linalg.svd(reads @ covariance)[2][-1]  # its covariance with both read-outs is 0
    np.testing.assert_allclose(after @ unrelated, STATES.numpy() @ unrelated, **CLOSE)


def test_a_random_direction_moves_as_far_and_to_the_same_side() -> None:
    original = collapse([OBLIQUE], "state")
    along = np.eye(UNITS)[[3]]
    moved = (AsFarAs(original, along).edited(None, STATES) - STATES).double()
    meant = (original.edited(None, STATES) - STATES).double()
    np.testing.assert_allclose(moved.norm(dim=1), meant.norm(dim=1), **CLOSE)
    assert (moved[:, [0, 1, 2, 4, 5]] == 0).all()
    assert ((moved[:, 3] > 0) == (meant @ torch.from_numpy(original.axes()[0]) >= 0)).all()


def test_random_moves_of_a_kept_state_do_not_add_up() -> None:
    original = collapse([OBLIQUE], "state")
    along, start = np.eye(UNITS)[[3]], np.array([0.5])
    control = AsFarAs(original, along, start)
    once = control.edited(None, STATES)
    again = control.edited(None, once)
    far = (original.edited(None, STATES) - STATES).double().norm(dim=1)
    np.testing.assert_allclose((once[:, 3] - 0.5).abs(), far, **CLOSE)
    np.testing.assert_allclose(again, once, **CLOSE)


def test_several_random_directions_keep_distances_between_moves() -> None:
    original = collapse([OBLIQUE, OTHER], "state")
    moved = (AsFarAs(original, np.eye(UNITS)[[3, 4]]).edited(None, STATES) - STATES).double()
    meant = (original.edited(None, STATES) - STATES).double()
    np.testing.assert_allclose(moved @ moved.T, meant @ meant.T, **CLOSE)
    assert (moved[:, [0, 1, 2, 5]] == 0).all()


def test_an_eraser_leaves_nothing_of_its_subspace_and_no_edit_leaves_everything() -> None:
    read = np.eye(UNITS)[[1, 5]]
    after = Eraser("lstm_hidden", read.T, read, np.full(UNITS, 0.25)).edited(None, STATES).numpy()
    np.testing.assert_allclose(after[:, [1, 5]], 0.25, **CLOSE)
    np.testing.assert_array_equal(after[:, [0, 2, 3, 4]], STATES.numpy()[:, [0, 2, 3, 4]])
    assert Untouched("lstm_hidden").edited(None, STATES) is STATES


def test_directions_that_cannot_be_edited_together_are_refused() -> None:
    nearly = replace(OBLIQUE, weight=OBLIQUE.weight + np.float32(1e-5) * np.arange(UNITS, dtype=np.float32))
    none = replace(OBLIQUE, weight=np.zeros_like(OBLIQUE.weight))
    assert_refuses("does not vary", collapse, [none], "state")
    for same in (OBLIQUE, nearly):
        assert_refuses("not independent", collapse, [OBLIQUE, same], "state")
    assert_refuses("several layers", collapse, [OBLIQUE, unit(0, UNITS, layer="lstm_cell")], "state")
    assert_refuses("same layer", swap, OBLIQUE, unit(0, UNITS, layer="lstm_cell"), "state", None)
    assert_refuses("does not vary", swap, unit(0, UNITS, "still", spread=0.0), OTHER, "state", None)
