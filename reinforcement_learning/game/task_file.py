"""Read a user-defined curriculum: a YAML list of tasks, checked against the game's predicates.

- {predicate: CountEvent, arguments: {event: EAT_FOOD, N: 10}, weight: 2}
- {predicate: AttainSkill, arguments: {skill: Fishing, level: 4, num_agent: 1}}
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from nmmo.lib import event_code, material
from nmmo.systems import item as nmmo_item
from nmmo.systems import skill as nmmo_skill
from nmmo.task import base_predicates
from nmmo.task.task_spec import TaskSpec

from user_error import UserError

FILE_SUFFIXES = (".yaml", ".yml")
_KEYS = {"predicate", "arguments", "weight"}
_GIVEN_BY_THE_GAME = ("gs", "subject")
_WORDS = {
    "event": [name for name in vars(event_code.EventCode) if name.isupper()],
    "agent_type": ["npc", "player"],
    "quadrant": ["first", "second", "third", "fourth"],
}


def read_tasks(path: Path) -> list[TaskSpec]:
    """Return the tasks in a file, in order.

    Raises:
        UserError: the file is missing or not such a list, or a task is not valid in the game; the message says which.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"the curriculum {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, list) or not content:
        raise UserError(f"{path} must hold a list of tasks: `- {{predicate: NAME, arguments: {{...}}, weight: 1}}`")
    specs: list[TaskSpec] = []
    for number, entry in enumerate(content):
        try:
            spec = _task(entry)
            if spec.name in [known.name for known in specs]:
                raise UserError(f"{spec.name} is listed twice")
        except UserError as error:
            raise UserError(f"{path}, task {number}: {error}") from None
        specs.append(spec)
    return specs


def _task(entry: Any) -> TaskSpec:
    if not isinstance(entry, dict) or "predicate" not in entry or set(entry) - _KEYS:
        raise UserError(f"a task has the keys predicate, arguments and weight, not {entry!r}")
    predicate = _predicate(entry["predicate"])
    weight = entry.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        raise UserError(f"weight {weight!r} must be a number above 0")
    arguments = entry.get("arguments") or {}
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(predicate).parameters.items()
        if name not in _GIVEN_BY_THE_GAME
    }
    if not isinstance(arguments, dict) or set(arguments) - set(parameters):
        raise UserError(f"{predicate.__name__} takes {', '.join(parameters) or 'no arguments'}, not {arguments!r}")
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    if missing := [name for name in needed if name not in arguments]:
        raise UserError(f"{predicate.__name__} also needs {', '.join(missing)}")
    values = {name: _value(name, str(parameters[name].annotation), value) for name, value in arguments.items()}
    return TaskSpec(eval_fn=predicate, eval_fn_kwargs=values, sampling_weight=float(weight))


def _predicate(name: object) -> Callable[..., Any]:
    """Return the predicate with this name; it must be about one agent, since others cannot be assigned."""
    known = {
        name: predicate
        for name, predicate in inspect.getmembers(base_predicates, inspect.isfunction)
        if tuple(inspect.signature(predicate).parameters)[:2] == _GIVEN_BY_THE_GAME
        and not any(other.startswith("target") for other in inspect.signature(predicate).parameters)
    }
    return _choose("predicate", known, name)


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
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name} {value!r} must be a whole number of at least 1")
    return value


def _subclasses(module: Any, base: type, identifier: str) -> dict[str, type]:
    """Return the game's concrete classes of a kind, by identifier: those that define an identifier of their own."""
    return {
        name: each
        for name, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, base) and isinstance(getattr(each, identifier, None), int)
    }


def _choose(what: str, known: dict[str, Any], name: object) -> Any:
    if not isinstance(name, str) or name not in known:
        raise UserError(f"there is no {what} {name!r}; choose one of {', '.join(sorted(known))}")
    return known[name]
