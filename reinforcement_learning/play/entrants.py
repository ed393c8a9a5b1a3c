"""The policies that play together, and networks that watch them.

Networks that watch a policy receive its observations, keep their own memory, and never act. They are baselines: the
information in a trained memory is compared with that in an untrained or less trained memory on the same observations.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

import agent_zoo
from activation_store.layers import STATES, UNTRAINED
from agent_zoo.agent_settings import SemanticShape
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_policy, build_untrained, load_checkpoint, versions
from agent_zoo.checkpoint_files import SUFFIX, policy_names, policy_path
from agent_zoo.observation import ObservationLayout
from common.files import in_utf_8, sha256
from common.user_error import UserError
from reinforcement_learning.game.environment import Kind, make_environment, observation_layout
from reinforcement_learning.game.task_encoder import pin_embeddings
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.play.stepper import Decision, remember
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, Settings, TaskSettings, task_record


def untrained_info(agent: str, settings: Settings, layout: ObservationLayout) -> CheckpointInfo:
    """Return the info of an agent with these settings before its first step."""
    world = {name: value for name, value in asdict(settings.env).items() if name != "maps_dir"}
    memory: dict[str, Any] = {"layers": settings.policy.lstm_layers}
    if settings.policy.cell != "lstm":  # what a header without a cell means, as older ones have none
        memory["cell"] = settings.policy.cell
    chosen = settings.semantic
    return CheckpointInfo(
        agent=agent,
        policy_arguments={"hidden_size": settings.policy.hidden_size},
        recurrent_arguments=memory,
        layout=layout,
        task=task_record(settings.task),
        environment=world,
        steps=0,
        seed=settings.train.seed,
        versions=versions(),
        reward=settings.reward.to_header(),
        network=settings.policy.network if hasattr(agent_zoo.load(agent), agent_zoo.EARLIER_CLASS) else "earlier",
        semantic=SemanticShape(chosen.codes, chosen.plane_dimensions, chosen.feed) if chosen.codes else None,
    )


ENCODER_SETTINGS = (
    "encoder", "language_model", "language_model_revision", "embeddings", "embeddings_sha256", "embedding_size",
)  # fmt: skip
UNTRAINED_PREFIX = "untrained_"


@dataclass(frozen=True)
class Entrant:
    """A policy that enters a world."""

    name: str
    policy: RecurrentPolicy
    info: CheckpointInfo
    sha256: str | None  # of the checkpoint file; None for a policy without one
    shadow_networks: "tuple[Entrant, ...]" = ()
    """Networks that receive its agents' observations and are recorded, but never act."""
    own_tasks: np.ndarray | None = None
    """The tasks of its world as it was trained to know them, (tasks, size) float16; None if the world encodes them
    so."""

    @property
    def kind(self) -> Kind:
        """The restrictions and rewards of its agents."""
        return Kind(self.info.agent, RewardSettings.of_header(self.info.reward))

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, with its weights in one piece: its tensors would use too many open files."""
        weights = save(self.policy.state_dict())
        return _unpacked, (self.name, weights, self.info, self.sha256, self.shadow_networks, self.own_tasks)


def _unpacked(name: str, weights: bytes, info: CheckpointInfo, *others: Any) -> Entrant:
    policy = build_policy(info)
    policy.load_state_dict(load(weights))
    return Entrant(name, policy.eval(), info, *others)


def load_entrants(folder: Path, only: Sequence[str] = ()) -> list[Entrant]:
    """Load the policies of a folder, or only the requested ones (UserError: one is missing, or cannot be loaded)."""
    return [load_entrant(policy_path(folder, name)) for name in policy_names(folder, only)]


def load_entrant(path: Path) -> Entrant:
    """Load a checkpoint; the entrant has the name of the file.

    Raises:
        UserError: as `load_checkpoint`; or the name is not UTF-8, in which every record would have to hold it.
    """
    name = path.name.removesuffix(SUFFIX)
    if in_utf_8(name) != name:
        raise UserError(f"{path} cannot name a policy: the name is not UTF-8; rename the file")
    policy, info = load_checkpoint(path)
    return Entrant(name, policy, info, sha256(path))


def with_embeddings(entrant: Entrant, file: str | None, folder: Path) -> Entrant:
    """Name the file of task embeddings for a policy that was trained on such a file.

    Others stay as they are, also those whose checkpoint names another file.

    Args:
        folder: in which files of embeddings are looked for, too.

    Raises:
        UserError: the file cannot be read, or its embeddings have another size than the policy reads.
    """
    if file is None or entrant.info.task.get("encoder") != "file":
        return entrant
    size = entrant.info.layout.task_size
    given = {"embeddings": file, "embeddings_dir": folder, "embeddings_sha256": None}
    task = pin_embeddings(TaskSettings(**{**entrant.info.task, **given}))
    if entrant.info.task.get("embeddings_sha256") not in (None, task.embeddings_sha256):
        return entrant
    if task.embedding_size != size:
        raise UserError(f"{entrant.name} reads task embeddings of {size} numbers, and {file} has {task.embedding_size}")
    return replace(entrant, info=replace(entrant.info, task=task_record(task)))


def shared_tasks(entrants: Sequence[Entrant], settings: TaskSettings) -> TaskSettings:
    """Return the requested tasks in the encoding that most of these policies were trained on, of several the first."""
    encodings = [encoding_of(entrant) for entrant in entrants]
    return replace(settings, syllabus="none", **max(encodings, key=encodings.count))


def with_own_tasks(entrants: Sequence[Entrant], tasks: TaskSettings, env: EnvironmentSettings) -> tuple[Entrant, ...]:
    """Give each policy its own encoding of a world's tasks, where that is not the world's.

    Raises:
        UserError: tasks cannot be encoded as a policy knows them; the message names it.
    """
    ready = []
    for entrant in entrants:
        own = replace(tasks, **encoding_of(entrant))
        try:
            specs = offered_tasks(own, env) if own != tasks or own.encoder == "file" else []
        except UserError as error:
            raise UserError(f"no encoding of these tasks for the policy {entrant.name}: {error}") from None
        ready.append(replace(entrant, own_tasks=None if own == tasks else np.stack([spec.embedding for spec in specs])))
    return tuple(ready)


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
    """Refuse a policy that was trained with a different layout of observations or actions."""
    theirs, ours = entrant.info.layout.to_json(), layout.to_json()
    if entrant.own_tasks is not None:
        ours["task_size"] = entrant.own_tasks.shape[1]
    for name, value in ours.items():
        if theirs[name] != value:
            raise UserError(
                f"the policy {entrant.name} was trained in a world whose {name} is {_brief(theirs[name])}, not "
                f"{_brief(value)} as here: it cannot play in this one"
            )


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def admit(
    entrants: Sequence[Entrant], env: EnvironmentSettings, settings: TaskSettings, maps: Path, *, must_fit: bool
) -> tuple[tuple[Entrant, ...], TaskSettings, list[str]]:
    """Return policies that fit into one world, its tasks, and a sentence on each policy that is left out.

    The tasks have the encoding that most of the policies were trained on; the others have their own.

    Args:
        entrants: at least one.
        must_fit: whether all must fit, as those that are requested by name must.

    Raises:
        UserError: one does not fit that must, or none does; the message names the first and what differs.
    """
    fitting, left_out = (list(entrants), []) if must_fit else _fitting(entrants, env, settings, maps)
    named = [with_embeddings(entrant, settings.embeddings, settings.embeddings_dir) for entrant in fitting]
    tasks = shared_tasks(named, settings)
    ready = with_own_tasks(named, tasks, env)
    layout = _layout(ready[0], env, tasks, maps)
    for entrant in ready:
        check_fits(entrant, layout)
    return ready, tasks, left_out


def _fitting(
    entrants: Sequence[Entrant], env: EnvironmentSettings, settings: TaskSettings, maps: Path
) -> tuple[list[Entrant], list[str]]:
    fitting: list[Entrant] = []
    left_out: list[str] = []
    layout: ObservationLayout | None = None
    for entrant in entrants:
        try:
            named = with_embeddings(entrant, settings.embeddings, settings.embeddings_dir)
            alone = shared_tasks([named], settings)
            (ready,) = with_own_tasks([named], alone, env)
            layout = layout or _layout(ready, env, alone, maps)
            check_fits(ready, replace(layout, task_size=alone.embedding_size))
            fitting.append(named)
        except UserError as error:
            left_out.append(str(error))
    if not fitting:
        raise UserError(left_out[0])
    return fitting, left_out


def _layout(entrant: Entrant, env: EnvironmentSettings, tasks: TaskSettings, maps: Path) -> ObservationLayout:
    """Return a world's layout; only the size of task embeddings matters, so no language model is run."""
    same_size = replace(tasks, encoder="structural")
    return observation_layout(make_environment(entrant.info.agent, env, same_size, maps))


class ShadowNetwork:
    """One network that watches all agents of an entrant."""

    def __init__(self, entrant: Entrant, slots: int, device: torch.device):
        self.name = entrant.name
        self.policy = entrant.policy.to(device)
        self.memory = self.policy.initial_state(slots)

    @torch.no_grad()
    def watch(self, decision: Decision) -> dict[str, np.ndarray]:
        """Process the entrant's observations of one tick; return the memory afterwards, layer -> (P, units) float32."""
        device = self.memory.hidden.device
        state = self.memory.take(torch.from_numpy(decision.present).to(device))
        encoded, _ = self.policy.encode(decision.observation.to(device))  # (P, hidden)
        _, after = self.policy.remember(encoded, state)
        remember(self.memory, replace(decision, next_state=after))
        last = [states[-1].cpu().numpy() for states in (after.hidden, after.cell) if len(states)]
        return dict(zip(shadow_layers(self.name, self.policy), last, strict=True))


def shadow_layers(name: str, policy: RecurrentPolicy) -> tuple[str, ...]:
    """Return the names in a dump of a shadow network's layers, the states of its last layer."""
    return tuple(f"{name}_{state}" for state in STATES[policy.cell])


def untrained_twin(entrant: Entrant, seed: int) -> Entrant:
    """Build a network like an entrant's with untrained weights determined by the seed."""
    policy = build_untrained(entrant.info, seed)
    return Entrant(UNTRAINED, policy, replace(entrant.info, steps=0, seed=seed), sha256=None)


def with_shadow_networks(entrant: Entrant, shadow_networks: tuple[Entrant, ...]) -> Entrant:
    """Attach networks that receive an entrant's observations.

    Raises:
        UserError: one of them has no memory to record, or a different layout of observations.
    """
    for network in shadow_networks:
        if not network.policy.layers:
            raise UserError(f"{network.name} cannot watch {entrant.name}: it is feed-forward and has no memory")
        if (network.info.layout, network.policy.mask) != (entrant.info.layout, entrant.policy.mask):
            raise UserError(f"{network.name} cannot watch {entrant.name}: it was trained to see another kind of world")
    return replace(entrant, shadow_networks=shadow_networks)
