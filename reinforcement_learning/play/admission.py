"""Decide which policies of a folder fit a world and which must be left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_zoo.observation import ObservationLayout
from common.user_error import UserError
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.play.entrants import Entrant, check_fits, shared_tasks, with_embeddings, with_own_tasks
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings


@dataclass(frozen=True)
class Admitted:
    """Policies that can share a world."""

    entrants: tuple[Entrant, ...]
    tasks: TaskSettings  # with the encoding that most of them were trained on; the others have their own
    left_out: tuple[str, ...] = ()  # one sentence per policy that does not fit, with the reason


def admit_all(entrants: Sequence[Entrant], env: EnvironmentSettings, settings: TaskSettings, maps: Path) -> Admitted:
    """Check that all these policies fit into one world; for policies requested by name.

    Args:
        entrants: at least one.

    Raises:
        UserError: one does not fit; the message names it and what differs.
    """
    named = [with_embeddings(entrant, settings.embeddings) for entrant in entrants]
    tasks = shared_tasks(named, settings)
    ready = with_own_tasks(named, tasks, env)
    layout = _layout(ready[0], env, tasks, maps)
    for entrant in ready:
        check_fits(entrant, layout)
    return Admitted(ready, tasks)


def admit_fitting(
    entrants: Sequence[Entrant], env: EnvironmentSettings, settings: TaskSettings, maps: Path
) -> Admitted:
    """Keep the policies that fit into one world; for all policies of a folder. Arguments as `admit_all`.

    Raises:
        UserError: none fits; the message names the first and what differs.
    """
    fitting: list[Entrant] = []
    left_out: list[str] = []
    layout: ObservationLayout | None = None
    for entrant in entrants:
        try:
            named = with_embeddings(entrant, settings.embeddings)
            alone = shared_tasks([named], settings)
            (ready,) = with_own_tasks([named], alone, env)
            layout = layout or _layout(ready, env, alone, maps)
            check_fits(ready, replace(layout, task_size=alone.embedding_size))
            fitting.append(named)
        except UserError as error:
            left_out.append(str(error))
    if not fitting:
        raise UserError(left_out[0])
    return replace(admit_all(fitting, env, settings, maps), left_out=tuple(left_out))


def _layout(entrant: Entrant, env: EnvironmentSettings, tasks: TaskSettings, maps: Path) -> ObservationLayout:
    """Return a world's layout; only the size of task embeddings matters, so no language model is run."""
    same_size = replace(tasks, encoder="structural")
    return observation_layout(make_environment(entrant.info.agent, env, same_size, maps))
