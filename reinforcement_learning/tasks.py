"""What agents are asked to do, as code.

The game itself reads tasks only from a pickle of Python functions; here they are made at run time instead, from the
game's own predicates, and handed to `Env.reset`.
"""

from collections.abc import Sequence

import numpy as np
from nmmo.systems import item as nmmo_item
from nmmo.systems import skill as nmmo_skill
from nmmo.task import base_predicates as predicates
from nmmo.task.task_api import Task
from nmmo.task.task_spec import TaskSpec, make_task_from_spec

COMBAT_SKILLS = (nmmo_skill.Melee, nmmo_skill.Range, nmmo_skill.Mage)
HARVEST_SKILLS = (
    nmmo_skill.Fishing, nmmo_skill.Herbalism, nmmo_skill.Prospecting, nmmo_skill.Carving, nmmo_skill.Alchemy,
)  # fmt: skip
ARMOUR = (nmmo_item.Hat, nmmo_item.Top, nmmo_item.Bottom)
WEAPONS = (nmmo_item.Spear, nmmo_item.Bow, nmmo_item.Wand)
TOOLS = (nmmo_item.Rod, nmmo_item.Gloves, nmmo_item.Pickaxe, nmmo_item.Axe, nmmo_item.Chisel)
AMMUNITION = (nmmo_item.Whetstone, nmmo_item.Arrow, nmmo_item.Runes)
CONSUMABLES = (nmmo_item.Ration, nmmo_item.Potion)


def curriculum(name: str, horizon: int) -> list[TaskSpec]:
    """Return the tasks of a curriculum; each is drawn with a probability proportional to its sampling weight.

    Args:
        name: `training` (a broad mix) or `survival` (stay alive, nothing else).
        horizon: ticks of an episode, the length of the survival task.
    """
    if name == "survival":
        return [_survive(horizon)]
    return [_survive(horizon), *_basic(), *_explore(), *_combat(), *_skills(), *_items(), *_market()]


def draw_tasks(specs: Sequence[TaskSpec], agents: Sequence[int], random: np.random.Generator) -> list[Task]:
    """Draw one task for each agent, independently, by sampling weight."""
    weights = np.array([spec.sampling_weight for spec in specs])
    drawn = random.choice(len(specs), size=len(agents), p=weights / weights.sum())
    return make_task_from_spec(list(agents), [specs[index] for index in drawn])


def _survive(horizon: int) -> TaskSpec:
    return TaskSpec(eval_fn=predicates.TickGE, eval_fn_kwargs={"num_tick": horizon}, sampling_weight=10)


def _count(event: str, number: int, weight: float) -> TaskSpec:
    return TaskSpec(eval_fn=predicates.CountEvent, eval_fn_kwargs={"event": event, "N": number}, sampling_weight=weight)


def _basic() -> list[TaskSpec]:
    return [_count(event, number, 5) for event in ("EAT_FOOD", "DRINK_WATER") for number in (5, 10, 20)]


def _explore() -> list[TaskSpec]:
    distances = [
        TaskSpec(eval_fn=predicates.DistanceTraveled, eval_fn_kwargs={"dist": distance}, sampling_weight=2)
        for distance in (8, 16, 32, 64)
    ]
    return distances + [_count("GO_FARTHEST", number, 2) for number in (8, 16, 32)]


def _combat() -> list[TaskSpec]:
    hits = [
        TaskSpec(eval_fn=predicates.ScoreHit, eval_fn_kwargs={"combat_style": skill, "N": number}, sampling_weight=1)
        for skill in COMBAT_SKILLS
        for number in (5, 20)
    ]
    kills = [
        TaskSpec(
            eval_fn=predicates.DefeatEntity,
            eval_fn_kwargs={"agent_type": kind, "level": level, "num_agent": number},
            sampling_weight=1,
        )
        for kind in ("player", "npc")
        for level in (1, 3)
        for number in (1, 5)
    ]
    return hits + kills


def _skills() -> list[TaskSpec]:
    return [
        TaskSpec(
            eval_fn=predicates.AttainSkill,
            eval_fn_kwargs={"skill": skill, "level": level, "num_agent": 1},
            sampling_weight=1,
        )
        for skill in COMBAT_SKILLS + HARVEST_SKILLS
        for level in (2, 5)
    ]


def _items() -> list[TaskSpec]:
    owned = ARMOUR + WEAPONS + TOOLS
    equip = [
        TaskSpec(
            eval_fn=predicates.EquipItem,
            eval_fn_kwargs={"item": item, "level": 1, "num_agent": 1},
            sampling_weight=0.5,
        )
        for item in owned + AMMUNITION
    ]
    harvest = [
        TaskSpec(
            eval_fn=predicates.HarvestItem,
            eval_fn_kwargs={"item": item, "level": 1, "quantity": number},
            sampling_weight=0.5,
        )
        for item in AMMUNITION + CONSUMABLES
        for number in (1, 5)
    ]
    consume = [
        TaskSpec(
            eval_fn=predicates.ConsumeItem,
            eval_fn_kwargs={"item": item, "level": 1, "quantity": number},
            sampling_weight=0.5,
        )
        for item in CONSUMABLES
        for number in (1, 5)
    ]
    return equip + harvest + consume


def _market() -> list[TaskSpec]:
    gold = [
        TaskSpec(eval_fn=function, eval_fn_kwargs={"amount": amount}, sampling_weight=1)
        for function in (predicates.HoardGold, predicates.EarnGold)
        for amount in (5, 20)
    ]
    return gold + [_count(event, number, 1) for event in ("LIST_ITEM", "BUY_ITEM") for number in (1, 5)]
