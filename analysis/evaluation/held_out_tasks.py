"""The 63 tasks that policies are scored on: their names in result files, their categories, their weights."""

import re
from itertools import product
from typing import Literal, get_args

import numpy as np

Category = Literal["survival", "combat", "exploration", "skill", "item", "market"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
FULL_SCORE = 100.0
PREFIX = "curriculum/"

_SKILLS = ("Melee", "Range", "Mage", "Fishing", "Herbalism", "Prospecting", "Carving", "Alchemy")
_AMMUNITION = ("Whetstone", "Arrow", "Runes")
_CONSUMABLES = ("Ration", "Potion")
_ARMOUR_WEAPONS_TOOLS = (
    "Hat", "Top", "Bottom", "Spear", "Bow", "Wand", "Rod", "Gloves", "Pickaxe", "Axe", "Chisel",
)  # fmt: skip
_LEVELS = (1, 3)
_ITEMS = (
    ("HarvestItem", "item", _AMMUNITION, "quantity:20"),
    ("ConsumeItem", "item", _CONSUMABLES, "quantity:20"),
    ("EquipItem", "item", _ARMOUR_WEAPONS_TOOLS + _AMMUNITION, "num_agent:1"),
    ("FullyArmed", "combat_style", _SKILLS[:3], "num_agent:1"),
)
_TASKS: dict[Category, list[str]] = {
    "survival": ["TickGE_(num_tick:1024)"],
    "combat": [
        "CountEvent_(event:PLAYER_KILL_N:20)",
        *(f"DefeatEntity_(agent_type:npc_level:{level}_num_agent:20)" for level in _LEVELS),
    ],
    "exploration": ["CountEvent_(event:GO_FARTHEST_N:64)", "OccupyTile_(row:80_col:80)"],
    "skill": [f"AttainSkill_(skill:{skill}_level:10_num_agent:1)" for skill in _SKILLS],
    "item": [
        f"{predicate}_({argument}:{value}_level:{level}_{rest})"
        for predicate, argument, values, rest in _ITEMS
        for value, level in product(values, _LEVELS)
    ],
    "market": [
        *(f"CountEvent_(event:{event}_N:20)" for event in ("EARN_GOLD", "BUY_ITEM")),
        *(f"{predicate}_(amount:100)" for predicate in ("EarnGold", "HoardGold", "MakeProfit")),
    ],
}

TASK_NAMES = tuple(f"{PREFIX}Task_{task}_reward_to:agent" for tasks in _TASKS.values() for task in tasks)
"""The tasks' names as result files spell them, category after category."""

TASK_CATEGORIES: tuple[Category, ...] = tuple(category for category, tasks in _TASKS.items() for _ in tasks)
"""The category of each task."""

TASK_WEIGHTS = np.array([FULL_SCORE / len(CATEGORIES) / len(_TASKS[category]) for category in TASK_CATEGORIES])
"""What full progress on each task adds to the score, (tasks,): categories count alike, and tasks within one alike."""

IN_CATEGORY = np.array([[task == category for task in TASK_CATEGORIES] for category in CATEGORIES])
"""Which tasks belong to each category, (categories, tasks) bool."""

_FORM = re.compile(r"Task_(?P<predicate>\w+?)_\((?P<arguments>[^()]*)\)_reward_to:agent")
_ARGUMENT = re.compile(
    r"(?:^|_)(agent_type|amount|col|combat_style|event|item|level|N|num_agent|num_tick|quantity|row|skill):"
)


def task_index(key: str) -> int | None:
    """Return the place in `TASK_NAMES` of the task that a result file's key names, or None for any other key.

    The order of a task's arguments and spaces around them play no part.
    """
    meaning = _meaning(key)
    return None if meaning is None else _PLACES.get(meaning)


def _meaning(key: str) -> tuple[str, frozenset[tuple[str, str]]] | None:
    form = _FORM.fullmatch(key.removeprefix(PREFIX)) if key.startswith(PREFIX) else None
    if form is None:
        return None
    before, *parts = _ARGUMENT.split(form["arguments"].replace(" ", ""))
    arguments = frozenset(zip(parts[::2], parts[1::2], strict=True))
    return None if before or len(arguments) != len(parts) // 2 else (form["predicate"], arguments)


_PLACES = {_meaning(name): place for place, name in enumerate(TASK_NAMES)}
