"""Read a user-defined curriculum: a YAML list of tasks, checked against the game's predicates.

- {predicate: CountEvent, arguments: {event: EAT_FOOD, N: 10}, weight: 2}
- {predicate: AttainSkill, arguments: {skill: Fishing, level: 4, num_agent: 1}}
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmmo.lib import event_code, material
from nmmo.systems import item as nmmo_item
from nmmo.systems import skill as nmmo_skill
from nmmo.task import base_predicates
from nmmo.task.task_spec import TaskSpec

from common.user_error import UserError
from common.yaml_file import read_yaml, shown

FILE_SUFFIXES = (".yaml", ".yml")
_KEYS = {"predicate", "arguments", "weight"}
_LARGEST_WEIGHT = 1e9
_LARGEST_NUMBER = 2**31 - 1
_GIVEN_BY_THE_GAME = ("gs", "subject")
_WORDS = {
    "event": [name for name in vars(event_code.EventCode) if name.isupper()],
    "agent_type": ["npc", "player"],
    "quadrant": ["first", "second", "third", "fourth"],
}


def read_tasks(path: Path) -> list[TaskSpec]:
    """Return the tasks in a file, in order.

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
    predicate = _predicate(entry["predicate"])
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


def _predicate(name: object) -> Callable[..., Any]:
    return _choose("predicate", _predicates(), name)


@functools.cache
def _predicates() -> dict[str, Callable[..., Any]]:
    """Predicates about one agent; those about other agents cannot be given to anyone."""
    return {
        name: predicate
        for name, predicate in inspect.getmembers(base_predicates, inspect.isfunction)
        if tuple(inspect.signature(predicate).parameters)[:2] == _GIVEN_BY_THE_GAME
        and not any(other.startswith("target") for other in inspect.signature(predicate).parameters)
    }


def _value(name: str, annotation: str, value: object) -> object:
    """Convert an argument from the file to the predicate's type."""
    if annotation == "type[Skill]":
        return _choose(name, _subclasses(nmmo_skill, nmmo_skill.Skill, "SKILL_ID"), value)
    if annotation == "type[Item]":
        return _choose(name, _subclasses(nmmo_item, nmmo_item.Item, "ITEM_TYPE_ID"), value)
    if annotation == "type[Material]":
        return _choose(name, _subclasses(material, material.Material, "index"), value)
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
