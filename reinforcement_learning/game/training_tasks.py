"""The training curriculum: a broad mix of tasks, from basic survival to rare achievements.

Tasks are grouped; each group has a fixed share of the draws, spread evenly over its tasks, so more variants do not give
a group more weight. The held-out tasks (`evaluation_tasks`) are excluded, and so are tasks of giving, since several
agents are not allowed to give.
"""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from nmmo.lib import material
from nmmo.systems import item as nmmo_item
from nmmo.systems import skill as nmmo_skill
from nmmo.task import base_predicates as predicates
from nmmo.task.task_spec import TaskSpec

from reinforcement_learning.game.maps import MAP_BORDER

COMBAT_SKILLS = (nmmo_skill.Melee, nmmo_skill.Range, nmmo_skill.Mage)
HARVEST_SKILLS = (
    nmmo_skill.Fishing, nmmo_skill.Herbalism, nmmo_skill.Prospecting, nmmo_skill.Carving, nmmo_skill.Alchemy,
)  # fmt: skip
SKILLS = COMBAT_SKILLS + HARVEST_SKILLS
ARMOUR = (nmmo_item.Hat, nmmo_item.Top, nmmo_item.Bottom)
WEAPONS = (nmmo_item.Spear, nmmo_item.Bow, nmmo_item.Wand)
TOOLS = (nmmo_item.Rod, nmmo_item.Gloves, nmmo_item.Pickaxe, nmmo_item.Axe, nmmo_item.Chisel)
AMMUNITION = (nmmo_item.Whetstone, nmmo_item.Arrow, nmmo_item.Runes)
CONSUMABLES = (nmmo_item.Ration, nmmo_item.Potion)
EQUIPMENT = ARMOUR + WEAPONS + TOOLS + AMMUNITION
RESOURCES = (
    material.Water, material.Foilage, material.Ore, material.Tree, material.Crystal, material.Herb, material.Fish,
)  # fmt: skip


def training_tasks(map_size: int) -> list[TaskSpec]:
    """Return the whole curriculum for maps of a given side, in tiles."""
    groups = (
        (10, survival_tasks()),
        (30, [spec for event in ("EAT_FOOD", "DRINK_WATER") for spec in count_events(event, (5, 10, 20, 40))]),
        (14, _exploration(map_size)),
        (14, _combat()),
        (16, _skills()),
        (18, _items()),
        (8, _market()),
    )
    for share, specs in groups:
        for spec in specs:
            spec.sampling_weight = share / len(specs)
    return [spec for _, specs in groups for spec in specs]


def task(predicate: Callable[..., Any], **arguments: Any) -> TaskSpec:
    """Describe one task for one agent; the order of the arguments is part of its name."""
    return TaskSpec(eval_fn=predicate, eval_fn_kwargs=arguments)


def survival_tasks(ticks: Iterable[int] = (50, 100, 200, 400, 800)) -> list[TaskSpec]:
    """Return tasks to survive for a number of ticks."""
    return [task(predicates.TickGE, num_tick=number) for number in ticks]


def count_events(event: str, numbers: Iterable[int]) -> list[TaskSpec]:
    """Return tasks to cause an event of the game's log a number of times."""
    return [task(predicates.CountEvent, event=event, N=number) for number in numbers]


def _exploration(map_size: int) -> list[TaskSpec]:
    eighths = [MAP_BORDER + map_size * part // 8 for part in range(1, 8)]
    middle = MAP_BORDER + map_size // 2  # held out
    return [
        *count_events("GO_FARTHEST", (8, 16, 32, 48)),
        *(task(predicates.DistanceTraveled, dist=distance) for distance in (8, 16, 32, 48)),
        *(task(predicates.CanSeeTile, tile_type=resource) for resource in RESOURCES),
        *(
            task(predicates.OccupyTile, row=row, col=column)
            for row, column in product(eighths, eighths)
            if (row, column) != (middle, middle)
        ),
        task(predicates.ProgressTowardCenter),
    ]


def _combat() -> list[TaskSpec]:
    return [
        *count_events("SCORE_HIT", (5, 20, 50)),
        *count_events("PLAYER_KILL", (1, 3, 10)),
        *count_events("LOOT_ITEM", (1, 5)),
        *(
            task(predicates.ScoreHit, combat_style=style, N=number)
            for style, number in product(COMBAT_SKILLS, (5, 20, 50))
        ),
        *(
            task(predicates.DefeatEntity, agent_type=kind, level=level, num_agent=number)
            for kind, level, number in product(("player", "npc"), (1, 2, 3), (1, 3, 10))
        ),
        *(
            task(predicates.FireAmmo, item=ammunition, level=1, quantity=number)
            for ammunition, number in product(AMMUNITION, (1, 10))
        ),
    ]


def _skills() -> list[TaskSpec]:
    return [
        *count_events("LEVEL_UP", (1, 3, 10)),
        *(
            task(predicates.AttainSkill, skill=skill, level=level, num_agent=1)
            for skill, level in product(SKILLS, (2, 3, 4, 5, 7))
        ),
        *(
            task(predicates.GainExperience, skill=skill, experience=amount, num_agent=1)
            for skill, amount in product(SKILLS, (10, 50))
        ),
    ]


def _items() -> list[TaskSpec]:
    return [
        *count_events("EQUIP_ITEM", (1, 3, 10)),
        *count_events("HARVEST_ITEM", (1, 5, 20)),
        *count_events("CONSUME_ITEM", (1, 5)),
        *(
            task(predicates.OwnItem, item=item, level=level, quantity=1)
            for item, level in product(EQUIPMENT + CONSUMABLES, (1, 2, 3))
        ),
        *(task(predicates.EquipItem, item=item, level=2, num_agent=1) for item in EQUIPMENT),
        *(task(predicates.FullyArmed, combat_style=style, level=2, num_agent=1) for style in COMBAT_SKILLS),
        *(
            task(predicates.HarvestItem, item=item, level=level, quantity=number)
            for item, level, number in product(AMMUNITION + CONSUMABLES, (1, 2), (1, 5, 10))
        ),
        *(
            task(predicates.ConsumeItem, item=item, level=level, quantity=number)
            for item, level, number in product(CONSUMABLES, (1, 2), (1, 5, 10))
        ),
    ]


def _market() -> list[TaskSpec]:
    gold = (predicates.HoardGold, predicates.EarnGold, predicates.SpendGold, predicates.MakeProfit)
    return [
        *(spec for event in ("LIST_ITEM", "BUY_ITEM", "EARN_GOLD") for spec in count_events(event, (1, 5, 10))),
        *(task(predicate, amount=amount) for predicate, amount in product(gold, (5, 20, 50))),
        *(
            task(predicate, item=item, level=1, quantity=1)
            for predicate, item in product((predicates.ListItem, predicates.BuyItem), EQUIPMENT + CONSUMABLES)
        ),
    ]
