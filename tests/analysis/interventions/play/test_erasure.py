"""Erasing in the real game: what was read from a layer is gone, with its effect on actions, and the rest stays."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from activation_store.interventions import LivesTable
from analysis.interventions.edits.linear_readings import JointMoments, Reading, fitted_eraser
from analysis.interventions.edits.state_edits import Eraser
from analysis.interventions.play.edited_play import PlayedGroup
from analysis.interventions.play.experiment import ArmPlan, When
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.driven import drive
from tests.driven import played as played_group
from tests.planted_interventions import unit
from tests.tiny_policies import tiny_entrant

UNITS = 16
CLOCK, PENDULUM = 3, 5
STEP = 0.05  # of the clock in a tick
GROUP = Group(4, (0, 1))
READING = Reading("lstm_cell", ("tick",))
NORTH = "gain_total/Move.Direction/North"
IN, FORGET, CANDIDATE, OUT = range(4)


@pytest.fixture(scope="module")
def pool(small_world, task, maps) -> PolicyPool:
    """A policy built by hand: one unit of its cell counts ticks and drives the move to the north; one swings."""
    env = replace(small_world, spawn_immunity=0, horizon=24)
    entrant = tiny_entrant(env, task, maps, hidden_size=UNITS)
    drive(entrant.policy, 5, Move=CLOCK)
    with torch.no_grad():
        memory = entrant.policy.lstm
        input_weight, hidden_weight, input_bias, hidden_bias = memory.all_weights[0]
        for place in (CLOCK, PENDULUM):
            rows = torch.arange(4) * UNITS + place
            for case in (input_weight, hidden_weight, input_bias, hidden_bias):
                case[rows] = 0
            input_bias[rows[[IN, OUT]]] = 20
        input_bias[FORGET * UNITS + CLOCK] = 20
        input_bias[CANDIDATE * UNITS + CLOCK] = float(np.arctanh(STEP))
        input_bias[FORGET * UNITS + PENDULUM] = -20
        input_bias[CANDIDATE * UNITS + PENDULUM] = 0.2
        hidden_weight[CANDIDATE * UNITS + PENDULUM, PENDULUM] = -3
    return Contest((entrant,), env, task, maps, torch.device("cpu")).pool(len(GROUP.numbers))


def played(pool: PolicyPool, **given: object) -> PlayedGroup:
    return played_group(pool, GROUP, ArmPlan("edit", 8, **given))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def unedited(pool: PolicyPool) -> JointMoments:
    both = (READING, Reading("lstm_hidden", ("tick", "self_food")))
    group = played(pool, watched=("lstm_cell", "lstm_hidden"), readings=both)
    food = both[1].of(group.moments[both[1].name])
    np.testing.assert_array_equal(food.states.squares, group.moments["lstm_hidden"].squares)
    assert food.r_squared()[0] > 0.9
    return READING.of(group.moments[READING.name])


@pytest.fixture(scope="module")
def eraser(unedited: JointMoments) -> Eraser:
    return fitted_eraser(READING, unedited, "trained")


def test_the_planted_clock_is_read_before_and_not_after(unedited: JointMoments, eraser: Eraser) -> None:
    assert unedited.sums.count > 300
    assert unedited.r_squared() == pytest.approx([1], abs=1e-4)
    assert unedited.r_squared(eraser.kept) == pytest.approx([0], abs=1e-6)


def test_in_play_edited_cells_no_longer_tell_the_tick_but_other_units_swing_as_before(
    pool: PolicyPool, eraser: Eraser
) -> None:
    distant = replace(eraser, left=np.zeros((UNITS, 0)), right=np.zeros((0, UNITS)))  # erases nothing
    groups = (played(pool, states=(case,), readings=(READING,)) for case in (distant, eraser))
    before, after = (np.diag(READING.of(group.moments[READING.name]).covariance) for group in groups)
    assert before[CLOCK] > 0.2**2 and after[CLOCK] < 0.02**2 * before[CLOCK]
    assert before[PENDULUM] > 0.5**2 and after[PENDULUM] == pytest.approx(before[PENDULUM], rel=0.1)


@pytest.mark.parametrize("tick", [1, 8])
def test_an_erased_clock_no_longer_drives_its_action(
    pool: PolicyPool, unedited: JointMoments, eraser: Eraser, tick: int
) -> None:
    """At every tick, the edited probability is that of the clock's mean; both are known by hand, up to the number of
    other directions in which the agent can move."""
    lives = LivesTable.of_rows(played(pool, states=(eraser,), when=When(tick, tick + 1)).rows)
    gains = lives.outcomes[NORTH][lives.edited]
    gains = gains[np.isfinite(gains)]  # of those who lived to see the tick
    mean, others = unedited.sums.mean[CLOCK], np.arange(5)
    possible = np.append(north(mean, others) - north(STEP * (tick + 1), others), 0)  # nothing where the north is closed
    assert np.abs(gains[:, None] - possible).min(axis=1).max() < 0.003
    assert np.abs(gains).max() > 0.05


def north(cell: float, others: np.ndarray) -> np.ndarray:
    drive = np.exp(5 * np.tanh(cell))
    return drive / (drive + others)


def test_other_read_outs_move_only_as_they_vary_with_the_erased_one(pool: PolicyPool, eraser: Eraser) -> None:
    clock, pendulum = (unit(place, UNITS, name, "lstm_cell") for place, name in ((CLOCK, "clock"), (PENDULUM, "swing")))
    lives = LivesTable.of_rows(played(pool, states=(eraser,), directions=(clock, pendulum), when=When(1, 2)).rows)
    assert np.nanmin(np.abs(lives.outcomes["moved_total/clock"])) > 0.1
    assert np.nanmax(np.abs(lives.outcomes["moved_total/swing"])) < 0.1
