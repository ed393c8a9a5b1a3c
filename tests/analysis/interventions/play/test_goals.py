"""Where agents have tasks to go to a side of the map: their goals as a variable of edits, and outcomes about them."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.interventions import LivesTable
from agent_zoo.network_parts.own_features import GOAL
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.memory_edits import Transplant
from analysis.interventions.edits.state_edits import steer
from analysis.interventions.play.experiment import ArmPlan
from analysis.interventions.play.outcomes import goals_of
from analysis.interventions.play.when import BodyCondition, When
from reinforcement_learning.game.fast_game.ways import SIDES
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.settings import TaskSettings
from tests.analysis.interventions.play.directions import unit
from tests.driven import DRIVER, UNITS, driven_contest, lives_of

GROUP = Group(3, (0, 1))
NORTH = steer(unit(DRIVER, UNITS), 0.9)
FROM, INTERRUPT = 4, 2
COLUMNS = ("row", "col", GOAL)


@pytest.fixture(scope="module")
def pool(small_world, maps) -> PolicyPool:
    """All agents go north or not, as the driver says, whatever their goal; all are moved in one of the first ticks."""
    task = TaskSettings(curriculum="four_ways", embedding_size=16)
    return driven_contest(replace(small_world, interrupt=INTERRUPT), task, maps).pool(len(GROUP.numbers))


def goals_of_rows(pool: PolicyPool, table: LivesTable) -> np.ndarray:
    goals = goals_of(pool).reshape(len(GROUP.numbers), -1)  # worlds by agents
    places = [shared.agents for shared in pool.shared]
    rows = zip(table.episode.tolist(), table.agent.tolist(), strict=True)
    return np.array([goals[GROUP.numbers.index(e), places[GROUP.numbers.index(e)].index(a)] for e, a in rows])


def test_who_is_driven_north_goes_towards_the_north_only(pool: PolicyPool) -> None:
    table = lives_of(pool, GROUP, ArmPlan("edit", 16, When(FROM), states=(NORTH,)))
    goal, way, right = goals_of_rows(pool, table), table.outcomes["towards_goal"], table.outcomes["right_way"]
    assert set(goal.tolist()) == set(range(len(SIDES)))
    known = np.isfinite(way)
    northern, southern = way[known & (goal == 0)], way[known & (goal == 1)]
    assert northern.mean() > 3 > -3 > southern.mean()  # few get far: the map is small and full of obstacles
    assert right[known & (goal == 0)].mean() > 0.5 > right[known & (goal == 1)].mean()
    np.testing.assert_array_equal(right[known], way[known] > 0)
    assert np.abs(way[known]).max() <= 100  # the jump of the interrupt is no way


def test_the_goal_is_a_variable_of_conditions_and_donors(pool: PolicyPool) -> None:
    southern = When(FROM, condition=BodyCondition.parse("self_goal == 1", COLUMNS))
    table = lives_of(pool, GROUP, ArmPlan("edit", 16, southern, states=(NORTH,)))
    edited = np.nan_to_num(table.outcomes["edited_ticks"]) > 0
    assert edited.any() and (goals_of_rows(pool, table)[edited] == 1).all()
    rule = DonorRule.parse("self_goal", COLUMNS)
    swapped = lives_of(pool, GROUP, ArmPlan("edit", 4, When(FROM, FROM + 1), memories=(Transplant(rule, 1),)))
    assert (np.nan_to_num(swapped.outcomes["edited_ticks"]) == 1).sum() >= 4
