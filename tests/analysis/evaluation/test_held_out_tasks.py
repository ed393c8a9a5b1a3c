"""The analysis may not import the game, so it holds its own list of tasks: here it is held against the game's."""

import numpy as np
import pytest

from analysis.evaluation.held_out_tasks import (
    CATEGORIES,
    IN_CATEGORY,
    TASK_CATEGORIES,
    TASK_NAMES,
    TASK_WEIGHTS,
    task_index,
)
from reinforcement_learning.game.evaluation_tasks import evaluation_tasks
from reinforcement_learning.game.training_tasks import training_tasks


def test_names_and_categories_are_those_of_the_game() -> None:
    game = [(f"curriculum/{spec.name}", spec.tags[0]) for spec in evaluation_tasks()]
    assert list(zip(TASK_NAMES, TASK_CATEGORIES, strict=True)) == game and len(set(TASK_NAMES)) == 63


def test_every_category_weighs_a_sixth() -> None:
    assert IN_CATEGORY.sum(axis=1).tolist() == [1, 3, 2, 8, 44, 5]
    np.testing.assert_allclose(IN_CATEGORY @ TASK_WEIGHTS, 100 / len(CATEGORIES))


def test_keys_are_understood() -> None:
    assert [task_index(name) for name in TASK_NAMES] == list(range(63))
    assert [task_index(f"curriculum/{spec.name}") for spec in training_tasks(128)] == [None] * len(training_tasks(128))
    own = "curriculum/Task_DefeatEntity_(agent_type:npc_level:3_num_agent:20)_reward_to:agent"
    turned = "curriculum/Task_DefeatEntity_(level:3_num_agent:20_agent_type:npc)_reward_to:agent"
    assert task_index(turned) == TASK_NAMES.index(own)
    assert task_index("curriculum/Task_TickGE_(num_tick: 1024)_reward_to:agent") == 0


@pytest.mark.parametrize(
    "key",
    [
        "", "length", "curriculum/", "curriculum/Task_TickGE_()_reward_to:agent", TASK_NAMES[0][11:],
        "curriculum/Task_TickGE_(num_tick:1024)_reward_to:team",
        "curriculum/Task_TickGE_(num_tick:512)_reward_to:agent",
        "curriculum/Task_TickGE_(num_tick:1024_num_tick:1024)_reward_to:agent",
        "curriculum/Task_TickGE_(more_num_tick:1024)_reward_to:agent",
    ],
)  # fmt: skip
def test_other_keys_are_not(key: str) -> None:
    assert task_index(key) is None
