"""A trained policy in one file that anyone can open safely: weights as safetensors, all else in its header as text."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agent_zoo
from activation_store.files import write_bytes
from activation_store.tensor_file import Kind, read_tensors, read_text, write_tensors
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout
from agent_zoo.observation_masking import ObservationMask
from agent_zoo.tensors import as_arrays, as_tensors
from user_error import UserError

FORMAT_VERSION = 1
_KIND: Kind = "policy"


@dataclass(frozen=True)
class CheckpointInfo:
    """All that rebuilds an agent beside its weights.

    Attributes:
        agent: folder in agent_zoo/.
        policy_arguments: of the agent's `Policy`, beside the layout.
        recurrent_arguments: of the agent's `Recurrent`, beside the policy; without `cell`, its memory is an LSTM.
        layout: observations and actions.
        task: the curriculum, and the encoder with the embedding's size, as in the settings, without the folder that
            embeddings are kept in.
        environment: the world that it was trained in, as in the settings, without the folder of its maps.
        steps: agent-steps trained.
        seed: of the training run.
        versions: of the packages that made it.
        reward: what it was paid for, as in the settings; older checkpoints mention nothing, and had the default.
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
        """Read the info back.

        Raises:
            UserError: it is of another format version, or damaged.
        """
        try:
            content = json.loads(text)
            version = content.pop("format_version")
            if version != FORMAT_VERSION:
                raise UserError(f"{path} has format version {version}; this version reads {FORMAT_VERSION}")
            return CheckpointInfo(**{**content, "layout": ObservationLayout.from_json(content["layout"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UserError(f"{path} has a damaged header ({error}): copy the checkpoint again") from None


def build_policy(info: CheckpointInfo) -> RecurrentPolicy:
    """Build the agent's network with fresh weights."""
    agent = agent_zoo.load(info.agent)
    policy = agent.Recurrent(agent.Policy(info.layout, **info.policy_arguments), **info.recurrent_arguments)
    policy.mask = ObservationMask.of(info.environment)
    return policy


def save_checkpoint(path: Path, policy: RecurrentPolicy, info: CheckpointInfo) -> None:
    """Write a checkpoint, whole or not at all."""
    write_tensors(path, as_arrays(policy.state_dict()), info.to_header(), _KIND)


def read_info(path: Path) -> CheckpointInfo:
    """Read a checkpoint's header only.

    Raises:
        UserError: as `load_checkpoint`, but the weights are not looked at.
    """
    return CheckpointInfo.from_header(read_text(path, _KIND), path)


def load_checkpoint(path: Path) -> tuple[RecurrentPolicy, CheckpointInfo]:
    """Rebuild the agent from a checkpoint, ready to run on the CPU.

    Raises:
        UserError: the file is missing, a pickle, truncated, altered, of another kind or version, or its weights do not
            fit the agent of that name in this version.
    """
    tensors, text = read_tensors(path, _KIND)
    info = CheckpointInfo.from_header(text, path)
    try:
        policy = build_policy(info)
        policy.load_state_dict(as_tensors(tensors))
    except (RuntimeError, TypeError, KeyError):
        raise UserError(
            f"{path} does not fit the agent {info.agent!r} of this version: it was made by another architecture"
        ) from None
    return policy.eval(), info


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint, whole or not at all."""
    write_bytes(target, source.read_bytes())
