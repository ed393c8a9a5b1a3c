"""What agents are asked to do, as code.

The game itself reads tasks only from a pickle of Python functions; here they are made at run time instead, from the
game's own predicates, and handed to `Env.reset`.
"""

from collections.abc import Sequence

import numpy as np
from nmmo.task.task_api import Task
from nmmo.task.task_spec import TaskSpec, make_task_from_spec

from reinforcement_learning.evaluation_tasks import evaluation_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from reinforcement_learning.training_tasks import survival_tasks, training_tasks
from user_error import UserError

_NAMES_SHOWN = 8


def curriculum(task: TaskSettings, env: EnvironmentSettings) -> list[TaskSpec]:
    """Return the tasks that agents are given; each is drawn with a probability proportional to its sampling weight.

    Raises:
        UserError: `task.only` names no task of the curriculum, or several.
    """
    if task.curriculum == "survival":
        specs = survival_tasks([env.horizon])
    elif task.curriculum == "evaluation":
        specs = evaluation_tasks()
    else:
        specs = training_tasks(env.map_size)
    return specs if task.only is None else [find_task(specs, task.only)]


def find_task(specs: Sequence[TaskSpec], wanted: str) -> TaskSpec:
    """Return the task of that number (from 0), of that name, or the only one whose name contains the text.

    Raises:
        UserError: there is none, or there are several; the message shows names.
    """
    if wanted.isdecimal():
        if int(wanted) < len(specs):
            return specs[int(wanted)]
        raise UserError(f"there is no task number {wanted}: the curriculum has {len(specs)}, numbered from 0")
    found = [spec for spec in specs if spec.name == wanted] or [
        spec for spec in specs if wanted.lower() in spec.name.lower()
    ]
    if len(found) == 1:
        return found[0]
    names = [spec.name for spec in found or specs]
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" * (len(names) > _NAMES_SHOWN))
    raise UserError(f"{len(found) or 'no'} tasks of the curriculum contain {wanted!r}; name one of: {shown}")


def draw_tasks(specs: Sequence[TaskSpec], agents: Sequence[int], random: np.random.Generator) -> list[Task]:
    """Draw one task for each agent, independently, by sampling weight."""
    weights = np.array([spec.sampling_weight for spec in specs])
    drawn = random.choice(len(specs), size=len(agents), p=weights / weights.sum())
    return make_task_from_spec(list(agents), [specs[index] for index in drawn])
