"""The policies that play together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from activation_store.files import sha256
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_policy, load_checkpoint
from agent_zoo.checkpoint_files import SUFFIX, policy_names
from agent_zoo.observation import ObservationLayout
from reinforcement_learning.game.environment import make_environment, observation_layout
from reinforcement_learning.game.shared_world import Kind
from reinforcement_learning.settings import RewardSettings, Settings, TaskSettings
from reinforcement_learning.untrained_info import untrained_info
from user_error import UserError

ENCODER_SETTINGS = ("encoder", "language_model", "language_model_revision", "embedding_size")
UNTRAINED_PREFIX = "untrained_"


@dataclass(frozen=True)
class Entrant:
    """A policy that enters a world.

    Attributes:
        name: of the policy.
        policy: ready to run.
        info: from its checkpoint.
        sha256: of the checkpoint file; None for a policy without one.
        shadow_networks: networks that receive its agents' observations and are recorded, but never act.
    """

    name: str
    policy: RecurrentPolicy
    info: CheckpointInfo
    sha256: str | None
    shadow_networks: "tuple[Entrant, ...]" = ()

    @property
    def kind(self) -> Kind:
        """The restrictions and rewards of its agents."""
        return Kind(self.info.agent, RewardSettings.of_header(self.info.reward))


def load_entrants(folder: Path, only: Sequence[str] = ()) -> list[Entrant]:
    """Load the policies of a folder, or only the requested ones.

    Raises:
        UserError: as `policy_names` and `load_checkpoint`.
    """
    return [load_entrant(folder / f"{name}{SUFFIX}") for name in policy_names(folder, only)]


def load_entrant(path: Path) -> Entrant:
    """Load a checkpoint; the entrant has the name of the file.

    Raises:
        UserError: as `load_checkpoint`.
    """
    policy, info = load_checkpoint(path)
    return Entrant(path.name.removesuffix(SUFFIX), policy, info, sha256(path))


def shared_tasks(entrants: Sequence[Entrant], asked: TaskSettings) -> TaskSettings:
    """Return the requested tasks with the encoding that these policies were trained on.

    Raises:
        UserError: the policies were trained on different encodings, but a world has only one; names two of them.
    """
    first, *others = entrants
    told = encoding_of(first)
    for other in others:
        if told != encoding_of(other):
            raise UserError(
                f"{first.name} and {other.name} were trained on different encodings of tasks and cannot share a world: "
                "move one of them to another folder, or choose policies by name"
            )
    return replace(asked, syllabus="none", **told)


def encoding_of(entrant: Entrant) -> dict[str, Any]:
    """Return the settings of the encoding of tasks that a policy was trained on."""
    task = TaskSettings(**entrant.info.task)  # settings missing from older checkpoints had their defaults
    return {name: getattr(task, name) for name in ENCODER_SETTINGS}


def untrained_entrant(agent: str, settings: Settings, maps: Path, seed: int) -> Entrant:
    """Build an untrained agent, with weights determined by the seed, for tests or as a baseline."""
    layout = observation_layout(make_environment(agent, settings.env, settings.task, maps))
    info = untrained_info(agent, settings, layout)
    torch.manual_seed(seed)
    return Entrant(UNTRAINED_PREFIX + agent, build_policy(info).eval(), info, sha256=None)


def check_fits(entrant: Entrant, layout: ObservationLayout) -> None:
    """Refuse a policy that was trained with a different layout of observations or actions.

    Raises:
        UserError: names the policy and the first difference.
    """
    theirs, ours = entrant.info.layout.to_json(), layout.to_json()
    for name, value in ours.items():
        if theirs[name] != value:
            raise UserError(
                f"the policy {entrant.name} was trained in a world whose {name} is {_brief(theirs[name])}, not "
                f"{_brief(value)} as here: it cannot play in this one"
            )


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
