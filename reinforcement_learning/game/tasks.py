"""Agents' tasks as code.

The game itself reads tasks only from a pickle of Python functions; here they are built at run time from the game's own
predicates and passed to `Env.reset`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nmmo.task.task_api import Task
from nmmo.task.task_spec import TaskSpec, make_task_from_spec

from common.files import read_json, write_json
from common.user_error import UserError
from reinforcement_learning.game.evaluation_tasks import evaluation_tasks
from reinforcement_learning.game.fast_game.ways import ways_tasks
from reinforcement_learning.game.task_encoder import encode_tasks
from reinforcement_learning.game.task_file import FILE_SUFFIXES, read_tasks
from reinforcement_learning.game.training_tasks import survival_tasks, training_tasks
from reinforcement_learning.progress import Progress, no_progress
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

_NAMES_SHOWN = 8
_WAYS = {"two_ways": 2, "four_ways": 4}


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
        specs = survival_tasks([env.horizon])
    elif task.curriculum in _WAYS:
        specs = ways_tasks(_WAYS[task.curriculum])
    elif task.curriculum.endswith(FILE_SUFFIXES):
        specs = read_tasks(Path(task.curriculum))
    else:
        raise UserError(
            f"there is no curriculum {task.curriculum!r}: choose training, evaluation, survival, two_ways, "
            "four_ways or a YAML file"
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
    """Read the exact sampling weights, (tasks,) float64.

    Raises:
        UserError: the file is missing or damaged.
    """
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
