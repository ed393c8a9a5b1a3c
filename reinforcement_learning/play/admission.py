"""Decide which policies of a folder fit a world and which must be left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_zoo.observation import ObservationLayout
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.play.entrants import Entrant, check_fits, encoding_of, shared_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from user_error import UserError


@dataclass(frozen=True)
class Admitted:
    """Policies that can share a world.

    Attributes:
        entrants: those that fit.
        tasks: with the encoding that they were trained on.
        left_out: one sentence per policy that does not fit, with the reason.
    """

    entrants: tuple[Entrant, ...]
    tasks: TaskSettings
    left_out: tuple[str, ...] = ()


def admit_all(entrants: Sequence[Entrant], env: EnvironmentSettings, asked: TaskSettings, maps: Path) -> Admitted:
    """Check that all these policies fit into one world; for policies requested by name.

    Args:
        entrants: at least one.
        env: settings of the world.
        asked: tasks, with any encoding.
        maps: folder from `ensure_maps`.

    Raises:
        UserError: one does not fit; the message names it and what differs.
    """
    tasks = shared_tasks(entrants, asked)
    layout = _layout(entrants[0], env, tasks, maps)
    for entrant in entrants:
        check_fits(entrant, layout)
    return Admitted(tuple(entrants), tasks)


def admit_fitting(entrants: Sequence[Entrant], env: EnvironmentSettings, asked: TaskSettings, maps: Path) -> Admitted:
    """Keep the policies that fit into one world; for all policies of a folder. Arguments as `admit_all`.

    The world uses the encoding of tasks that admits the most policies.

    Raises:
        UserError: none fits; the message names the first and what differs.
    """
    found = [_admitted_with(entrant, entrants, env, asked, maps) for entrant in _one_for_each_encoding(entrants)]
    best = max(found, key=lambda each: len(each.entrants))
    if not best.entrants:
        raise UserError(best.left_out[0])
    return best


def _one_for_each_encoding(entrants: Sequence[Entrant]) -> list[Entrant]:
    first: dict[str, Entrant] = {}
    for entrant in entrants:
        first.setdefault(str(encoding_of(entrant)), entrant)
    return list(first.values())


def _admitted_with(
    model: Entrant, entrants: Sequence[Entrant], env: EnvironmentSettings, asked: TaskSettings, maps: Path
) -> Admitted:
    """Keep the policies that fit into a world with the encoding of tasks that `model`, one of them, was trained on."""
    tasks = shared_tasks([model], asked)
    layout = _layout(model, env, tasks, maps)
    faults = {entrant.name: _fault(entrant, model, layout) for entrant in entrants}
    fitting = tuple(entrant for entrant in entrants if not faults[entrant.name])
    return Admitted(fitting, tasks, tuple(filter(None, faults.values())))


def _fault(entrant: Entrant, model: Entrant, layout: ObservationLayout) -> str:
    """Return why a policy does not fit; "" if it does."""
    if encoding_of(entrant) != encoding_of(model):
        return f"the policy {entrant.name} was trained on a different encoding of tasks than the policies that play"
    try:
        check_fits(entrant, layout)
    except UserError as error:
        return str(error)
    return ""


def _layout(entrant: Entrant, env: EnvironmentSettings, tasks: TaskSettings, maps: Path) -> ObservationLayout:
    """Return a world's layout; only the size of task embeddings matters, so no language model is run."""
    same_size = replace(tasks, encoder="structural")
    return observation_layout(make_environment(entrant.info.agent, env, same_size, maps))
