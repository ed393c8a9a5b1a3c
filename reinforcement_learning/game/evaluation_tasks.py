"""The 63 held-out tasks for scoring policies, in six categories, as in the NeurIPS 2023 competition."""

from itertools import product
from typing import Literal, get_args

from nmmo.task import base_predicates as predicates
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.training_tasks import (
    AMMUNITION,
    COMBAT_SKILLS,
    CONSUMABLES,
    EQUIPMENT,
    SKILLS,
    count_events,
    survival_tasks,
    task,
)

Category = Literal["survival", "combat", "exploration", "skill", "item", "market"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
LEVELS = (1, 3)
EPISODE_TICKS = 1024
MIDDLE = 80  # row and column of the middle of a map of 128 tiles with its border


def evaluation_tasks() -> list[TaskSpec]:
    """Return the held-out tasks; a task's first tag is its category."""
    groups: dict[Category, list[TaskSpec]] = {
        "survival": survival_tasks([EPISODE_TICKS]),
        "combat": [
            *count_events("PLAYER_KILL", [20]),
            *(task(predicates.DefeatEntity, agent_type="npc", level=level, num_agent=20) for level in LEVELS),
        ],
        "exploration": [*count_events("GO_FARTHEST", [64]), task(predicates.OccupyTile, row=MIDDLE, col=MIDDLE)],
        "skill": [task(predicates.AttainSkill, skill=skill, level=10, num_agent=1) for skill in SKILLS],
        "item": _items(),
        "market": [
            *count_events("EARN_GOLD", [20]),
            *count_events("BUY_ITEM", [20]),
            task(predicates.EarnGold, amount=100),
            task(predicates.HoardGold, amount=100),
            task(predicates.MakeProfit, amount=100),
        ],
    }
    for category, specs in groups.items():
        for spec in specs:
            spec.tags.append(category)
    return [spec for specs in groups.values() for spec in specs]


def _items() -> list[TaskSpec]:
    return [
        *(
            task(predicates.HarvestItem, item=item, level=level, quantity=20)
            for item, level in product(AMMUNITION, LEVELS)
        ),
        *(
            task(predicates.ConsumeItem, item=item, level=level, quantity=20)
            for item, level in product(CONSUMABLES, LEVELS)
        ),
        *(
            task(predicates.EquipItem, item=item, level=level, num_agent=1)
            for item, level in product(EQUIPMENT, LEVELS)
        ),
        *(
            task(predicates.FullyArmed, combat_style=style, level=level, num_agent=1)
            for style, level in product(COMBAT_SKILLS, LEVELS)
        ),
    ]
