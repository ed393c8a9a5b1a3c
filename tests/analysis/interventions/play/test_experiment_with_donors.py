"""Which arms edits with donors have and how each is edited; controls at once do what they say, and change nothing."""

import numpy as np
import pytest
import torch

from activation_store.interventions import Arm
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit import Edit, measured_in, same_variance
from analysis.interventions.edits.edit_options import RunOptions
from analysis.interventions.edits.linear_readings import StateMoments
from analysis.interventions.edits.memory_edits import Clear, MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import Interchange, collapse, steer, swap
from analysis.interventions.play.experiment import AT_ONCE_CONTROLS, ArmPlan, Experiment
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.driven import DRIVER, UNITS, lives_of
from tests.planted_interventions import direction, unit

SIZE = 6
STATES, DONORS = (torch.randn(20, SIZE, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
MOMENTS = dict.fromkeys(("lstm_hidden", "lstm_cell"), StateMoments.of(STATES.numpy()))
BY_FOOD = DonorRule("self_food")
TRANSPLANT = Edit("transplant", every=8, donor=BY_FOOD)
INTERCHANGE = Edit("interchange", (unit(2, SIZE),), donor=BY_FOOD)


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
    states = generator.standard_normal((400, SIZE)) * [1, 1, 9, 1, 1, 1]
    moments = {"lstm_hidden": StateMoments.of(states.astype(np.float32))}
    covariance, own = moments["lstm_hidden"].covariance, np.eye(SIZE)[2]
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
    assert np.abs(swap(one, other, "change", lambda layer: covariance).write).max() < 5


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
    after = Interchange(collapse([oblique, other], "state"), BY_FOOD).edited(None, STATES, DONORS).numpy()
    for case in (oblique, other):
        np.testing.assert_allclose(case.read_out(after), case.read_out(DONORS.numpy()), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(after[:, [3, 4]], STATES.numpy()[:, [3, 4]])


def test_the_random_direction_of_an_interchange_goes_as_far_towards_the_donor() -> None:
    result = experiment(INTERCHANGE)
    (edit,) = result.plan(arms(INTERCHANGE)["edit"], MOMENTS).states
    (moved,) = result.plan(arms(INTERCHANGE)["random direction 1"], MOMENTS).states
    assert isinstance(edit, Interchange) and isinstance(moved, Interchange) and moved.along is not None
    meant, change = ((case.edited(None, STATES, DONORS) - STATES).double() for case in (edit, moved))
    torch.testing.assert_close(change.norm(dim=1), meant.norm(dim=1), rtol=1e-4, atol=1e-5)
    along = torch.from_numpy(moved.along[0])
    torch.testing.assert_close((change @ along).abs(), change.norm(dim=1), rtol=1e-4, atol=1e-5)
    assert ((change @ along > 0) == ((DONORS - STATES).double() @ along > 0)).all()


IDLE = 5
GROUP = Group(4, (0, 1))
BY_ROW = DonorRule("self_row")
NORTH = steer(unit(DRIVER, UNITS), 0.9)


@pytest.mark.parametrize(
    "made",
    [
        {"states": (NORTH,), "memories": (Clear(3),)},
        {
            "states": (Interchange(collapse([unit(DRIVER, UNITS)], "state"), BY_ROW),),
            "memories": (Transplant(BY_ROW, 2),),
        },
    ],
    ids=["state and memory", "donors"],
)
def test_the_edit_as_its_own_control_does_the_same(pool: PolicyPool, made: dict[str, tuple[object, ...]]) -> None:
    idle = ArmPlan("idle", 4, states=(steer(unit(IDLE, UNITS), 0.0),))
    same = ArmPlan("same", 4, **made)  # type: ignore[arg-type]
    alone = lives_of(pool, GROUP, ArmPlan("edit", 4, **made)).of_arm("edit")  # type: ignore[arg-type]
    table = lives_of(pool, GROUP, ArmPlan("edit", 4, controls=(same, idle), **made))  # type: ignore[arg-type]
    edit, control, other = (table.of_arm(name) for name in ("edit", "same", "idle"))
    assert control.edited.all() and len(control) == 8 == edit.edited.sum()
    at_once = ("kl_in_play", "gain_in_play", "value_change_in_play", "follows")
    measured = [name for name in edit.outcomes if name.startswith(at_once)]
    assert len(measured) > 5 and np.nanmax(edit.outcomes["kl_in_play"]) > 1e-5
    for name in measured:
        np.testing.assert_allclose(control.outcomes[name], edit.outcomes[name][edit.edited], 1e-2, 1e-6, err_msg=name)
    assert np.isnan(control.outcomes["ticks"]).all()
    assert np.nanmax(np.abs(other.outcomes["kl_in_play"] - control.outcomes["kl_in_play"])) > 1e-6
    for name, values in alone.outcomes.items():
        np.testing.assert_array_equal(edit.outcomes[name], values, err_msg=f"measuring controls changed {name}")


def test_edits_have_twenty_controls_at_once_of_each_kind_of_direction() -> None:
    def experiment(controls: int) -> Experiment:
        edit = Edit("steer", (unit(2, 6),))
        return Experiment(RunOptions(dose="-1,2", controls=controls), (edit,), 4, memory=("lstm_cell",))

    assert experiment(0).all_arms() == experiment(0).arms()
    result = experiment(3)
    more = result.all_arms()[len(result.arms()) :]
    assert len(more) == 2 * 2 * AT_ONCE_CONTROLS >= 2 * 2 * 19 and len({arm.name for arm in result.all_arms()}) > 80
    arm = next(arm for arm in result.arms() if arm.name == "edit, dose +2")
    states = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    moments = {"lstm_hidden": StateMoments.of(states)}
    plan = result.plan(arm, moments)
    assert [control.name for control in plan.controls] == [control.name for control in more if control.dose == 2]
    played = result.plan(next(arm for arm in result.arms() if arm.name == "random direction 2, dose +2"), moments)
    twin = next(control for control in plan.controls if control.name == "random direction 2 at once, dose +2")
    np.testing.assert_array_equal(twin.states[0].directions, played.states[0].directions)  # type: ignore[union-attr]
    assert not played.controls


def test_at_once_nothing_adds_up_so_controls_start_from_the_state_itself() -> None:
    """Nobody has held a state along their directions, while the edit finds its own where it has put it."""
    kept = Experiment(RunOptions(controls=3), (Edit("collapse", (unit(2, 6),)),), 4, memory=("lstm_hidden",))
    moments = {"lstm_hidden": StateMoments.of(np.random.default_rng(0).normal(1, 1, (20, 6)).astype(np.float32))}
    edit, random = (next(arm for arm in kept.arms() if arm.name == name) for name in ("edit", "random direction 1"))
    assert kept.plan(random, moments).states[0].start is not None  # type: ignore[union-attr]
    controls = kept.plan(edit, moments).controls
    assert len(controls) == AT_ONCE_CONTROLS and all("random direction" in control.name for control in controls)
    assert all(control.states[0].start is None for control in controls)  # type: ignore[union-attr]
