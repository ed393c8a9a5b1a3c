"""A trained policy in one file that is safe to open: weights as safetensors, all else as text in its header."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agent_zoo
from activation_store.files import write_bytes
from activation_store.tensor_file import read_tensors, read_text, write_tensors
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout
from agent_zoo.observation_masking import ObservationMask
from agent_zoo.tensors import as_arrays, as_tensors
from user_error import UserError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class CheckpointInfo:
    """Everything needed to rebuild an agent, except its weights.

    Attributes:
        agent: folder in agent_zoo/.
        policy_arguments: of the agent's `Policy`, without the layout.
        recurrent_arguments: of the agent's `Recurrent`, without the policy.
        layout: of observations and actions.
        task: the curriculum, the encoder and the embedding's size, as in the settings, without the cache folder of
            embeddings.
        environment: the world that it was trained in, as in the settings, without the folder of its maps.
        steps: agent-steps trained.
        seed: of the training run.
        versions: of the packages used.
        reward: as in the settings; empty in older checkpoints, which used the default.
    """

    agent: str
    policy_arguments: dict[str, Any]
    recurrent_arguments: dict[str, Any]
    layout: ObservationLayout
    task: dict[str, Any]
    environment: dict[str, Any]
    steps: int
    seed: int
    versions: dict[str, str]
    reward: dict[str, float] = field(default_factory=dict)

    def to_header(self) -> str:
        """Return the info as JSON text."""
        content = {**vars(self), "layout": self.layout.to_json(), "format_version": FORMAT_VERSION}
        return json.dumps(content, sort_keys=True)

    @staticmethod
    def from_header(text: str, path: Path) -> "CheckpointInfo":
        """Parse the info from JSON text.

        Raises:
            UserError: it has another format version, or is damaged.
        """
        try:
            content = json.loads(text)
            version = content.pop("format_version")
            if version != FORMAT_VERSION:
                raise UserError(f"{path} has format version {version}; this version reads {FORMAT_VERSION}")
            return CheckpointInfo(**{**content, "layout": ObservationLayout.from_json(content["layout"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path} has a damaged header ({error}): copy the checkpoint again") from None


def build_policy(info: CheckpointInfo) -> RecurrentPolicy:
    """Build the agent's network with newly initialised weights."""
    agent = agent_zoo.load(info.agent)
    policy = agent.Recurrent(agent.Policy(info.layout, **info.policy_arguments), **info.recurrent_arguments)
    policy.mask = ObservationMask.of(info.environment)
    return policy


def save_checkpoint(path: Path, policy: RecurrentPolicy, info: CheckpointInfo) -> None:
    """Write a checkpoint atomically."""
    write_tensors(path, as_arrays(policy.state_dict()), info.to_header())


def read_info(path: Path) -> CheckpointInfo:
    """Read only a checkpoint's header.

    Raises:
        UserError: as `load_checkpoint`, except for faults of the weights.
    """
    return CheckpointInfo.from_header(read_text(path), path)


def load_checkpoint(path: Path) -> tuple[RecurrentPolicy, CheckpointInfo]:
    """Rebuild the agent from a checkpoint, ready to run on the CPU.

    Raises:
        UserError: the file is missing, a pickle, truncated, altered or of another version, or its weights do not fit
            this version's agent of that name.
    """
    tensors, text = read_tensors(path)
    info = CheckpointInfo.from_header(text, path)
    try:
        policy = build_policy(info)
        policy.load_state_dict(as_tensors(tensors))
    except (RuntimeError, TypeError):
        raise UserError(
            f"{path} does not fit the agent {info.agent!r} of this version: it was made by another architecture"
        ) from None
    return policy.eval(), info


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint atomically."""
    write_bytes(target, source.read_bytes())
