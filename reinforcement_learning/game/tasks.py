"""Agents' tasks as code.

The game itself reads tasks only from a pickle of Python functions; here they are built at run time from the game's own
predicates and passed to `Env.reset`. The 63 held-out tasks for scoring policies, in six categories, are those of the
NeurIPS 2023 competition.

The training curriculum is a broad mix of tasks, from basic survival to rare achievements. They are grouped; each group
has a fixed share of the draws, spread evenly over its tasks, so more variants do not give a group more weight. The
held-out tasks are excluded, and so are tasks of giving, since several agents are not allowed to give.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from nmmo.lib import event_code, material
from nmmo.systems import item as nmmo_item
from nmmo.systems import skill as nmmo_skill
from nmmo.task import base_predicates as predicates
from nmmo.task.task_api import Task
from nmmo.task.task_spec import TaskSpec, make_task_from_spec

from common.files import read_json, write_json
from common.progress_view import Progress, no_progress
from common.user_error import UserError
from common.yaml_file import read_yaml, shown
from reinforcement_learning.game.fast_game.ways import water_tasks, ways_tasks
from reinforcement_learning.game.maps import MAP_BORDER
from reinforcement_learning.game.task_encoder import encode_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

_NAMES_SHOWN = 8
_WAYS = {"two_ways": 2, "four_ways": 4}
Category = Literal["survival", "combat", "exploration", "skill", "item", "market"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
LEVELS = (1, 3)
EPISODE_TICKS = 1024
MIDDLE = 80  # row and column of the middle of a map of 128 tiles with its border

COMBAT_SKILLS = (nmmo_skill.Melee, nmmo_skill.Range, nmmo_skill.Mage)
SKILLS = (
    *COMBAT_SKILLS, nmmo_skill.Fishing, nmmo_skill.Herbalism, nmmo_skill.Prospecting, nmmo_skill.Carving,
    nmmo_skill.Alchemy,
)  # fmt: skip
AMMUNITION = (nmmo_item.Whetstone, nmmo_item.Arrow, nmmo_item.Runes)
CONSUMABLES = (nmmo_item.Ration, nmmo_item.Potion)
EQUIPMENT = (
    nmmo_item.Hat, nmmo_item.Top, nmmo_item.Bottom, nmmo_item.Spear, nmmo_item.Bow, nmmo_item.Wand, nmmo_item.Rod,
    nmmo_item.Gloves, nmmo_item.Pickaxe, nmmo_item.Axe, nmmo_item.Chisel, *AMMUNITION,
)  # fmt: skip
RESOURCES = (
    material.Water, material.Foilage, material.Ore, material.Tree, material.Crystal, material.Herb, material.Fish,
)  # fmt: skip


def curriculum(task: TaskSettings, env: EnvironmentSettings) -> list[TaskSpec]:
    """Return the tasks of a curriculum; each is drawn with a probability proportional to its sampling weight.

    Raises:
        UserError: the curriculum does not exist, its file is invalid, or `task.only` matches no task or several.
    """
    if task.curriculum == "training":
        specs = training_tasks(env.map_size)
    elif task.curriculum == "evaluation":
        specs = evaluation_tasks()
    elif task.curriculum == "survival":
        specs = _tasks(predicates.TickGE, num_tick=env.horizon)
    elif task.curriculum in _WAYS:
        specs = ways_tasks(_WAYS[task.curriculum])
    elif task.curriculum == "to_water":
        specs = water_tasks()
    elif task.curriculum.endswith(FILE_SUFFIXES):
        specs = read_tasks(Path(task.curriculum))
    else:
        raise UserError(
            f"there is no curriculum {task.curriculum!r}: choose training, evaluation, survival, two_ways, "
            "four_ways, to_water or a YAML file"
        )
    return specs if task.only is None else [find_task(specs, task.only)]


def check_tasks(task: TaskSettings, env: EnvironmentSettings) -> None:
    """Refuse invalid or contradictory task settings before anything expensive starts.

    Raises:
        UserError: as `curriculum`, or a syllabus is set while there is only one task.
    """
    if len(curriculum(task, env)) == 1 and task.syllabus != "none":
        raise UserError(f"task.syllabus {task.syllabus} has nothing to choose from: there is only one task")


def find_task(specs: Sequence[TaskSpec], wanted: str) -> TaskSpec:
    """Return the task with that number (from 0) or name, or the only one whose name contains the text.

    Raises:
        UserError: there is none, or there are several; the message lists names.
    """
    if wanted.isdecimal():
        if int(wanted) < len(specs):
            return specs[int(wanted)]
        raise UserError(f"there is no task number {wanted}: the curriculum has {len(specs)}, numbered from 0")
    matches = [spec for spec in specs if spec.name == wanted] or [
        spec for spec in specs if wanted.lower() in spec.name.lower()
    ]
    if len(matches) == 1:
        return matches[0]
    names = [spec.name for spec in matches or specs]
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" * (len(names) > _NAMES_SHOWN))
    raise UserError(f"{len(matches) or 'no'} tasks of the curriculum contain {wanted!r}; name one of: {shown}")


def offered_tasks(task: TaskSettings, env: EnvironmentSettings, progress: Progress = no_progress) -> list[TaskSpec]:
    """Return the curriculum with the embedding of each task; `progress` as in `language_model_embeddings`.

    Raises:
        UserError: as `curriculum`, or the language model cannot be used.
    """
    specs = curriculum(task, env)
    encode_tasks(specs, task, progress)
    return specs


def fixed_weights(specs: Sequence[TaskSpec]) -> np.ndarray:
    """Return the curriculum's own sampling weights, (tasks,) float64."""
    return np.array([spec.sampling_weight for spec in specs])


def save_weights(path: Path, specs: Sequence[TaskSpec], weights: np.ndarray) -> None:
    """Write sampling weights atomically to the file that worlds read when an episode starts."""
    write_json(path, {spec.name: float(weight) for spec, weight in zip(specs, weights, strict=True)})


def read_weights(path: Path, specs: Sequence[TaskSpec]) -> np.ndarray:
    """Read the exact sampling weights, (tasks,) float64 (UserError: the file is missing or damaged)."""
    saved: Any = read_json(path)
    try:
        weights = np.array([saved[spec.name] for spec in specs], np.float64)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} is damaged: it must hold the weight of each task") from None
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise UserError(f"{path} is damaged: weights must be 0 or more, and not all 0")
    return weights


def draw_tasks(
    specs: Sequence[TaskSpec], weights: np.ndarray, agents: Sequence[int], random: np.random.Generator
) -> list[Task]:
    """Draw one task for each agent, independently, with probabilities proportional to the weights."""
    drawn = random.choice(len(specs), size=len(agents), p=weights / weights.sum())
    return make_task_from_spec(list(agents), [specs[index] for index in drawn])


FILE_SUFFIXES = (".yaml", ".yml")
_KEYS = {"predicate", "arguments", "weight"}
_LARGEST_WEIGHT = 1e9
_LARGEST_NUMBER = 2**31 - 1
_GIVEN_BY_THE_GAME = ("gs", "subject")
_CLASSES = {
    "type[Skill]": (nmmo_skill, nmmo_skill.Skill, "SKILL_ID"),
    "type[Item]": (nmmo_item, nmmo_item.Item, "ITEM_TYPE_ID"),
    "type[Material]": (material, material.Material, "index"),
}
_WORDS = {
    "event": [name for name in vars(event_code.EventCode) if name.isupper()],
    "agent_type": ["npc", "player"],
    "quadrant": ["first", "second", "third", "fourth"],
}


def read_tasks(path: Path) -> list[TaskSpec]:
    """Return the tasks in a YAML file, in order, checked against the game's predicates.

    - {predicate: CountEvent, arguments: {event: EAT_FOOD, N: 10}, weight: 2}
    - {predicate: AttainSkill, arguments: {skill: Fishing, level: 4, num_agent: 1}}

    Raises:
        UserError: as `read_yaml`; or the file holds no such list, or a task is not one of the game's: the message says
            which.
    """
    content = read_yaml(path, "-c")
    if not isinstance(content, list) or not content:
        raise UserError(f"{path} must hold a list of tasks: `- {{predicate: NAME, arguments: {{...}}, weight: 1}}`")
    specs: dict[str, TaskSpec] = {}
    for number, entry in enumerate(content):
        try:
            spec = _task(entry)
            if spec.name in specs:
                raise UserError(f"{spec.name} is listed twice")
        except UserError as error:
            raise UserError(f"{path}, task {number}: {error}") from None
        specs[spec.name] = spec
    return list(specs.values())


def _task(entry: Any) -> TaskSpec:
    if not isinstance(entry, dict) or "predicate" not in entry or set(entry) - _KEYS:
        raise UserError(f"a task has the keys predicate, arguments and weight, not {shown(entry)}")
    predicate = _choose("predicate", _predicates(), entry["predicate"])
    weight = entry.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= _LARGEST_WEIGHT:
        raise UserError(f"weight {shown(weight)} must be a number above 0 and at most {_LARGEST_WEIGHT:g}")
    arguments = entry.get("arguments") or {}
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(predicate).parameters.items()
        if name not in _GIVEN_BY_THE_GAME
    }
    if not isinstance(arguments, dict) or set(arguments) - set(parameters):
        raise UserError(f"{predicate.__name__} takes {', '.join(parameters) or 'no arguments'}, not {shown(arguments)}")
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    if missing := [name for name in needed if name not in arguments]:
        raise UserError(f"{predicate.__name__} also needs {', '.join(missing)}")
    values = {name: _value(name, str(parameters[name].annotation), value) for name, value in arguments.items()}
    return TaskSpec(eval_fn=predicate, eval_fn_kwargs=values, sampling_weight=float(weight))


@functools.cache
def _predicates() -> dict[str, Callable[..., Any]]:
    """Predicates about one agent; those about other agents cannot be given to anyone."""
    return {
        name: predicate
        for name, predicate in inspect.getmembers(predicates, inspect.isfunction)
        if tuple(inspect.signature(predicate).parameters)[:2] == _GIVEN_BY_THE_GAME
        and not any(other.startswith("target") for other in inspect.signature(predicate).parameters)
    }


def _value(name: str, annotation: str, value: object) -> object:
    if annotation in _CLASSES:
        return _choose(name, _subclasses(*_CLASSES[annotation]), value)
    if annotation == "str":
        return _choose(name, {word: word for word in _WORDS[name]}, value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_NUMBER:
        raise UserError(f"{name} {shown(value)} must be a whole number of at least 1 and at most {_LARGEST_NUMBER}")
    return value


@functools.cache
def _subclasses(module: Any, base: type, identifier: str) -> dict[str, type]:
    """Return the game's concrete classes of a kind, by identifier: those that define an identifier of their own."""
    return {
        name: member
        for name, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, base) and isinstance(getattr(member, identifier, None), int)
    }


def _choose(what: str, known: dict[str, Any], name: object) -> Any:
    if not isinstance(name, str) or name not in known:
        raise UserError(f"there is no {what} {shown(name)}; choose one of {', '.join(sorted(known))}")
    return known[name]


def _tasks(predicate: Callable[..., Any], **arguments: Any) -> list[TaskSpec]:
    """Return a task for one agent for each combination of arguments, of which a tuple holds the values to take.

    The order of the arguments is part of a task's name.
    """
    values = [value if isinstance(value, tuple) else (value,) for value in arguments.values()]
    return [
        TaskSpec(eval_fn=predicate, eval_fn_kwargs=dict(zip(arguments, chosen, strict=True)))
        for chosen in product(*values)
    ]


def evaluation_tasks() -> list[TaskSpec]:
    """Return the held-out tasks; a task's first tag is its category."""
    groups: dict[Category, list[TaskSpec]] = {
        "survival": _tasks(predicates.TickGE, num_tick=EPISODE_TICKS),
        "combat": [
            *_tasks(predicates.CountEvent, event="PLAYER_KILL", N=20),
            *_tasks(predicates.DefeatEntity, agent_type="npc", level=LEVELS, num_agent=20),
        ],
        "exploration": [
            *_tasks(predicates.CountEvent, event="GO_FARTHEST", N=64),
            *_tasks(predicates.OccupyTile, row=MIDDLE, col=MIDDLE),
        ],
        "skill": _tasks(predicates.AttainSkill, skill=SKILLS, level=10, num_agent=1),
        "item": [
            *_tasks(predicates.HarvestItem, item=AMMUNITION, level=LEVELS, quantity=20),
            *_tasks(predicates.ConsumeItem, item=CONSUMABLES, level=LEVELS, quantity=20),
            *_tasks(predicates.EquipItem, item=EQUIPMENT, level=LEVELS, num_agent=1),
            *_tasks(predicates.FullyArmed, combat_style=COMBAT_SKILLS, level=LEVELS, num_agent=1),
        ],
        "market": [
            *_tasks(predicates.CountEvent, event=("EARN_GOLD", "BUY_ITEM"), N=20),
            *_tasks(predicates.EarnGold, amount=100),
            *_tasks(predicates.HoardGold, amount=100),
            *_tasks(predicates.MakeProfit, amount=100),
        ],
    }
    for category, specs in groups.items():
        for spec in specs:
            spec.tags.append(category)
    return [spec for specs in groups.values() for spec in specs]


def training_tasks(map_size: int) -> list[TaskSpec]:
    """Return the training curriculum for maps of a given side, in tiles."""
    survival = _tasks(predicates.TickGE, num_tick=(50, 100, 200, 400, 800))
    needs = _tasks(predicates.CountEvent, event=("EAT_FOOD", "DRINK_WATER"), N=(5, 10, 20, 40))
    eighths = tuple(MAP_BORDER + map_size * part // 8 for part in range(1, 8))
    left_out = [{"row": place, "col": place} for place in (MIDDLE, MAP_BORDER + map_size // 2)]
    exploration = [
        *_tasks(predicates.CountEvent, event="GO_FARTHEST", N=(8, 16, 32, 48)),
        *_tasks(predicates.DistanceTraveled, dist=(8, 16, 32, 48)),
        *_tasks(predicates.CanSeeTile, tile_type=RESOURCES),
        *(s for s in _tasks(predicates.OccupyTile, row=eighths, col=eighths) if s.eval_fn_kwargs not in left_out),
        *_tasks(predicates.ProgressTowardCenter),
    ]
    combat = [
        *_tasks(predicates.CountEvent, event="SCORE_HIT", N=(5, 20, 50)),
        *_tasks(predicates.CountEvent, event="PLAYER_KILL", N=(1, 3, 10)),
        *_tasks(predicates.CountEvent, event="LOOT_ITEM", N=(1, 5)),
        *_tasks(predicates.ScoreHit, combat_style=COMBAT_SKILLS, N=(5, 20, 50)),
        *_tasks(predicates.DefeatEntity, agent_type=("player", "npc"), level=(1, 2, 3), num_agent=(1, 3, 10)),
        *_tasks(predicates.FireAmmo, item=AMMUNITION, level=1, quantity=(1, 10)),
    ]
    skills = [
        *_tasks(predicates.CountEvent, event="LEVEL_UP", N=(1, 3, 10)),
        *_tasks(predicates.AttainSkill, skill=SKILLS, level=(2, 3, 4, 5, 7), num_agent=1),
        *_tasks(predicates.GainExperience, skill=SKILLS, experience=(10, 50), num_agent=1),
    ]
    items = [
        *_tasks(predicates.CountEvent, event="EQUIP_ITEM", N=(1, 3, 10)),
        *_tasks(predicates.CountEvent, event="HARVEST_ITEM", N=(1, 5, 20)),
        *_tasks(predicates.CountEvent, event="CONSUME_ITEM", N=(1, 5)),
        *_tasks(predicates.OwnItem, item=EQUIPMENT + CONSUMABLES, level=(1, 2, 3), quantity=1),
        *_tasks(predicates.EquipItem, item=EQUIPMENT, level=2, num_agent=1),
        *_tasks(predicates.FullyArmed, combat_style=COMBAT_SKILLS, level=2, num_agent=1),
        *_tasks(predicates.HarvestItem, item=AMMUNITION + CONSUMABLES, level=(1, 2), quantity=(1, 5, 10)),
        *_tasks(predicates.ConsumeItem, item=CONSUMABLES, level=(1, 2), quantity=(1, 5, 10)),
    ]
    of_gold = (predicates.HoardGold, predicates.EarnGold, predicates.SpendGold, predicates.MakeProfit)
    market = [
        *_tasks(predicates.CountEvent, event=("LIST_ITEM", "BUY_ITEM", "EARN_GOLD"), N=(1, 5, 10)),
        *(spec for predicate in of_gold for spec in _tasks(predicate, amount=(5, 20, 50))),
        *_tasks(predicates.ListItem, item=EQUIPMENT + CONSUMABLES, level=1, quantity=1),
        *_tasks(predicates.BuyItem, item=EQUIPMENT + CONSUMABLES, level=1, quantity=1),
    ]
    groups = (
        (10, survival), (30, needs), (14, exploration), (14, combat), (16, skills), (18, items), (8, market),
    )  # fmt: skip
    for share, specs in groups:
        for spec in specs:
            spec.sampling_weight = share / len(specs)
    return [spec for _, specs in groups for spec in specs]
