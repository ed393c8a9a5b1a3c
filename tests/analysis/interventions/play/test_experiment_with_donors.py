"""Which arms edits with donors have, and how each arm is edited; what interchanges do to states."""

import numpy as np
import pytest
import torch

from activation_store.interventions import Arm
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit import Edit
from analysis.interventions.edits.linear_readings import StateMoments
from analysis.interventions.edits.memory_edits import MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import Interchange, interchange, swap
from analysis.interventions.play.arm_edits import measured_in, same_variance
from analysis.interventions.play.experiment import Experiment
from analysis.interventions.play.request import RunOptions
from tests.analysis.interventions.play.directions import direction, unit

UNITS = 6
STATES, DONORS = (torch.randn(20, UNITS, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
MOMENTS = dict.fromkeys(("lstm_hidden", "lstm_cell"), StateMoments.of(STATES.numpy()))
BY_FOOD = DonorRule("self_food")
TRANSPLANT = Edit("transplant", every=8, donor=BY_FOOD)
INTERCHANGE = Edit("interchange", (unit(2, UNITS),), donor=BY_FOOD)


def experiment(*edits: Edit) -> Experiment:
    return Experiment(RunOptions(controls=2), edits, 4, memory=("lstm_hidden", "lstm_cell"))


def arms(*edits: Edit) -> dict[str, Arm]:
    return {arm.name: arm for arm in experiment(*edits).arms()}


def test_transplants_have_random_donors_and_interchanges_directions_of_the_same_variance() -> None:
    common = {"unedited", "untrained, unedited", "no edit", "edit", "untrained, edit"}
    common |= {"random direction 1", "random direction 2"}
    assert set(arms(TRANSPLANT)) == common | {"random donor 1", "random donor 2"}
    assert set(arms(INTERCHANGE)) == common | {"same variance 1", "same variance 2"}
    assert set(arms(TRANSPLANT, INTERCHANGE)) == set(arms(TRANSPLANT))


def test_the_control_of_the_same_variance_reads_nothing_of_what_is_edited() -> None:
    """Even if states vary more along the edited direction than along any other."""
    generator = np.random.default_rng(0)
    states = generator.standard_normal((400, UNITS)) * [1, 1, 9, 1, 1, 1]
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    covariance, own = moments["lstm_hidden"].covariance, np.eye(UNITS)[2]
    result = experiment(INTERCHANGE)
    (made,) = result.plan(arms(INTERCHANGE)["same variance 1"], moments).states
    assert isinstance(made, Interchange)
    (read,) = made.read_outs.read
    assert abs(read @ covariance @ own) < 1e-4 * np.sqrt((read @ covariance @ read) * (own @ covariance @ own))
    rest = np.delete(np.delete(covariance, 2, axis=0), 2, axis=1)
    lowest, highest = np.linalg.eigvalsh(rest)[[0, -1]]
    assert 0.999 * lowest < read @ covariance @ read < 1.001 * highest


def test_controls_of_several_directions_do_not_coincide() -> None:
    """Even if states vary more along each edited direction than along any other: the nearest is the same for both."""
    states = np.random.default_rng(0).standard_normal((400, 16)) * np.array([9, 9, 3, 2.9, *[1] * 12])
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    edited = [measured_in(unit(number, 16), moments) for number in (0, 1)]
    one, other = same_variance(edited, moments, np.random.default_rng(0))
    covariance = moments["lstm_hidden"].covariance
    assert abs(one.weight @ covariance @ other.weight) < 1e-3 * one.spread * other.spread
    assert np.abs(swap(one, other, "change", covariance).write).max() < 5


@pytest.mark.parametrize("wanted", [0.95, 2.0])
def test_controls_of_the_same_variance_differ(wanted: float) -> None:
    """Also where one direction alone varies as much, or none."""
    scales = np.sqrt([1, 0.8, 0.5, 0.3, *[0.1] * 60, wanted])
    states = np.random.default_rng(0).standard_normal((4000, 65)) * scales
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    edited = [measured_in(unit(64, 65), moments)]
    drawn = [same_variance(edited, moments, np.random.default_rng(seed))[0] for seed in range(20)]
    alike = np.abs(np.corrcoef([direction.weight for direction in drawn]))[np.triu_indices(20, 1)]
    assert np.median(alike) < 0.5
    assert 0.4 < np.median([direction.spread for direction in drawn]) ** 2 < 1.1, "a random one has 0.14"


def test_each_arm_of_a_transplant_draws_its_own_donors() -> None:
    result = experiment(TRANSPLANT)
    plans = {name: result.plan(arm, MOMENTS) for name, arm in arms(TRANSPLANT).items()}
    assert plans["unedited"].watched == ("lstm_hidden", "lstm_cell") and not plans["no edit"].donors
    assert plans["edit"].memories == (Transplant(BY_FOOD, 8),) == plans["untrained, edit"].memories
    assert [plans[f"random donor {number}"].donors[0].lottery for number in (1, 2)] == [1, 2]
    (moved,) = plans["random direction 1"].memories
    assert isinstance(moved, MovedAsFar) and moved.donor == BY_FOOD and moved.original == Transplant(BY_FOOD, 8)
    assert set(plans["edit"].spans) == {"lstm_hidden", "lstm_cell"}


def test_an_interchange_takes_the_donors_read_outs_and_leaves_the_rest() -> None:
    oblique, other = direction([1, 2, 0, 0, 0, 0.5], bias=3.0), direction([0, 1, 1, 0, 0, 0], "other")
    after = interchange([oblique, other], BY_FOOD).taking(DONORS).edited(None, STATES).numpy()
    for case in (oblique, other):
        np.testing.assert_allclose(case.read_out(after), case.read_out(DONORS.numpy()), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(after[:, [3, 4]], STATES.numpy()[:, [3, 4]])


def test_the_random_direction_of_an_interchange_goes_as_far_towards_the_donor() -> None:
    result = experiment(INTERCHANGE)
    (edit,) = result.plan(arms(INTERCHANGE)["edit"], MOMENTS).states
    (moved,) = result.plan(arms(INTERCHANGE)["random direction 1"], MOMENTS).states
    assert isinstance(edit, Interchange) and isinstance(moved, Interchange) and moved.along is not None
    meant, change = ((case.taking(DONORS).edited(None, STATES) - STATES).double() for case in (edit, moved))
    torch.testing.assert_close(change.norm(dim=1), meant.norm(dim=1), rtol=1e-4, atol=1e-5)
    along = torch.from_numpy(moved.along[0])
    torch.testing.assert_close((change @ along).abs(), change.norm(dim=1), rtol=1e-4, atol=1e-5)
    assert ((change @ along > 0) == ((DONORS - STATES).double() @ along > 0)).all()
