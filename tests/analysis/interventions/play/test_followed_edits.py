"""What is left of an edit, in a memory that keeps half of its cell in every tick, whatever its agent sees."""

import numpy as np
import pytest

from activation_store.interventions import LivesTable
from analysis.interventions.edits.state_edits import steer
from analysis.interventions.play.experiment import ArmPlan, When
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from tests.driven import DRIVER, UNITS, emptied_gates, lives_of
from tests.planted_interventions import unit

FOLLOW = 4
GROUP = Group(4, (0, 1))


@pytest.fixture(scope="module")
def pool(contest: Contest) -> PolicyPool:
    _, _, bias = emptied_gates(contest.entrants[0].policy)
    bias[0], bias[3] = -100, 100  # shut and open; the forget gate is half open
    return contest.pool(len(GROUP.numbers))


def edited_once(pool: PolicyPool, when: When) -> LivesTable:
    edit = steer(unit(DRIVER, UNITS, layer="lstm_cell"), 0.9)
    plan = ArmPlan("edited once", 4, when, states=(edit,), follow=FOLLOW)
    return lives_of(pool, GROUP, plan).of_arm("edited once")


def left(lives: LivesTable, what: str) -> np.ndarray:
    """What is left after each tick, (edited lives, ticks)."""
    return np.stack([lives.outcomes[f"lasting/{what}/{lag}"][lives.edited] for lag in range(FOLLOW + 1)], axis=1)


def test_a_cell_that_halves_has_lost_half_of_an_edit_after_a_tick(pool: PolicyPool) -> None:
    lives = edited_once(pool, When(2, 3))
    halves = 0.5 ** np.arange(FOLLOW + 1)
    for what, expected in (("cell", halves), ("hidden", np.tanh(0.9 * halves) / np.tanh(0.9))):
        result = left(lives, what)
        known = np.isfinite(result)
        assert known[:, 0].any()
        np.testing.assert_allclose(result[known], np.broadcast_to(expected, result.shape)[known], rtol=1e-5)
    actions = np.nanmean(left(lives, "actions"), axis=0)
    assert (np.diff(actions) < 0).all() and actions[0] > 0.1


def test_agents_are_edited_again_only_once_they_are_no_longer_followed(pool: PolicyPool) -> None:
    lives = edited_once(pool, When())
    ticks, edited = (lives.outcomes[name][lives.edited] for name in ("ticks", "edited_ticks"))
    np.testing.assert_array_equal(edited, np.ceil(ticks / (FOLLOW + 1)))
    np.testing.assert_allclose(np.nanmean(left(lives, "cell"), axis=0), 0.5 ** np.arange(FOLLOW + 1), rtol=0.05)
