"""Controls at once, in the states of the edit's own arm: they do what they say, and change nothing by it."""

import numpy as np
import pytest

from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit import Edit
from analysis.interventions.edits.linear_readings import StateMoments
from analysis.interventions.edits.memory_edits import Clear, Transplant
from analysis.interventions.edits.state_edits import interchange, steer
from analysis.interventions.play.experiment import AT_ONCE_CONTROLS, ArmPlan, Experiment
from analysis.interventions.play.request import RunOptions
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.analysis.interventions.play.directions import unit
from tests.driven import DRIVER, UNITS, lives_of

IDLE = 5
GROUP = Group(4, (0, 1))
BY_ROW = DonorRule("self_row")
NORTH = steer(unit(DRIVER, UNITS), 0.9)


@pytest.mark.parametrize(
    "made",
    [
        {"states": (NORTH,), "memories": (Clear(3),)},
        {"states": (interchange([unit(DRIVER, UNITS)], BY_ROW),), "memories": (Transplant(BY_ROW, 2),)},
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
