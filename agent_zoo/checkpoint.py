"""A trained policy in one file that is safe to open, all but its weights as text in the header; lists of policies."""

import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from pydantic import ConfigDict, NonNegativeInt, TypeAdapter, ValidationError
from torch.overrides import TorchFunctionMode

import agent_zoo
from agent_zoo import Network
from agent_zoo.agent_settings import SemanticShape
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint_files import folders_of, import_hint, list_checkpoints, not_imported
from agent_zoo.observation import ObservationLayout
from agent_zoo.observation_masking import ObservationMask
from common import command_line
from common.array_files import Kind, read_tensors, write_tensors
from common.checked_json import first_fault
from common.files import read_bytes, write_bytes
from common.user_error import UserError

PACKAGES = ("nmmo", "pufferlib", "numpy", "torch")


@dataclass(frozen=True)
class Origin:
    """The file of another project that a policy was imported from."""

    file: str
    sha256: str  # of its bytes
    classes: tuple[str, ...]  # of the network and its parts, as the file names them; empty if it is a state dict
    steps_known: bool  # whether it, or a file beside it, says for how many agent-steps the policy was trained

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")


_MAKERS: set[Callable[..., Any]] = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.eye, torch.arange,
    torch.linspace,
}  # fmt: skip


class Allowance(TorchFunctionMode):
    """Within the block, tensors of so many numbers may be made in all; more is a ValueError before memory is taken.

    It keeps what a file's header says from deciding how much memory building a network takes. The tensors come out as
    they would without it, random numbers included.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._left = numbers

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count what is about to be made, then make it."""
        if func in _MAKERS:
            self._left -= math.prod(max(1, number) for number in _whole_numbers(args))
            if self._left < 0:
                raise ValueError("it would be larger than the weights in the file")
        return func(*args, **(kwargs or {}))


def _whole_numbers(values: Iterable[Any]) -> Iterable[int]:
    """Yield the whole numbers among arguments, which are sizes, also those in tuples and lists."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _whole_numbers(value)
        elif isinstance(value, int):
            yield value


FORMAT_VERSION = 1
_KIND: Kind = "policy"
_REASON_SHOWN = 200
_NUMBERS_BESIDE_WEIGHTS = 1 << 20
_HEADS = ("policy", "agent", "agent-steps", "seed", "task size", "folder")


@dataclass(frozen=True)
class CheckpointInfo:
    """Everything needed to rebuild an agent, except its weights."""

    agent: str  # folder in agent_zoo/
    policy_arguments: dict[str, Any]  # of the agent's `Policy`, without the layout
    recurrent_arguments: dict[str, Any]
    """Of the agent's `Recurrent`, without the policy; if there is no `cell`, the memory is an LSTM."""
    layout: ObservationLayout
    task: dict[str, Any]
    """The curriculum, the encoder and the embedding's size, as in the settings, without the cache folder of
    embeddings."""
    environment: dict[str, Any]  # the world that it was trained in, as in the settings, without the folder of its maps
    steps: NonNegativeInt  # agent-steps trained; 0 if they are unknown
    seed: int  # of the training run; 0 if it is unknown
    versions: dict[str, str]
    reward: dict[str, bool | int | float] = field(default_factory=dict)
    """As in the settings, without what was left to the agent; one that lacks `as_published` is older than the published
    rewards. Empty in the oldest, which had no settings of rewards."""
    semantic: SemanticShape | None = None  # of the semantic plane and its codebook; None in a policy without
    network: Network = "earlier"
    """`published` computes what the agent's original computed; `earlier`, also in headers that do not say, is what the
    agent's folder calls `EarlierPolicy`. An agent that has only one network ignores it."""
    origin: Origin | None = None  # of a policy that was imported; None in one that was trained here

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    def to_header(self) -> str:
        """Return the info as JSON text."""
        content = {**vars(self), "layout": self.layout.to_json(), "format_version": FORMAT_VERSION}
        for name in ("semantic", "origin"):
            part = content.pop(name)
            if part:  # left out otherwise, so that earlier versions can read the checkpoint
                content[name] = asdict(part)
        if self.network == "earlier":  # likewise
            del content["network"]
        return json.dumps(content, sort_keys=True)

    @property
    def known_steps(self) -> int | None:
        """Agent-steps trained; None if they are unknown."""
        return self.steps if self.origin is None or self.origin.steps_known else None

    @property
    def shown_steps(self) -> str:
        """Agent-steps trained, as text."""
        return "unknown" if self.known_steps is None else f"{self.known_steps:,}"

    @staticmethod
    def from_header(text: str, path: Path) -> "CheckpointInfo":
        """Parse the info from JSON text (UserError: it has another format version, or is damaged)."""
        try:
            content = orjson.loads(text)
            version = content.pop("format_version")
            if version != FORMAT_VERSION:
                raise UserError(f"{path} has format version {version!r}; this version reads {FORMAT_VERSION}")
            info = _VALIDATOR.validate_json(orjson.dumps(content))
            ObservationMask.of(info.environment)
        except ValidationError as error:
            fault = first_fault(error)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            fault = str(error)
        else:
            return info
        raise UserError(f"{path} has a damaged header ({fault}): copy the checkpoint again")


_VALIDATOR = TypeAdapter(CheckpointInfo)


def build_policy(info: CheckpointInfo) -> RecurrentPolicy:
    """Build the agent's network with newly initialised weights."""
    agent = agent_zoo.load(info.agent)
    network = agent_zoo.policy_class(info.agent, info.network)(info.layout, **info.policy_arguments)
    policy: RecurrentPolicy = agent.Recurrent(network, **info.recurrent_arguments)
    policy.mask = ObservationMask.of(info.environment)
    if info.semantic:
        policy.add_codebook(info.semantic)
    return policy


def build_untrained(info: CheckpointInfo, seed: int) -> RecurrentPolicy:
    """Build the agent's network with untrained weights that the seed determines, ready to run."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_policy(info).eval()


def save_checkpoint(path: Path, policy: RecurrentPolicy, info: CheckpointInfo) -> None:
    """Write a checkpoint, whole or not at all."""
    write_tensors(path, as_arrays(policy.state_dict()), info.to_header(), _KIND)


def read_info(path: Path) -> CheckpointInfo:
    """Read what a checkpoint says of its agent, once the hash has proved the whole file.

    Raises:
        UserError: as `load_checkpoint`, but whether the weights fit the agent is not looked at.
    """
    return CheckpointInfo.from_header(read_tensors(path, _KIND)[1], path)


def load_checkpoint(path: Path) -> tuple[RecurrentPolicy, CheckpointInfo]:
    """Rebuild the agent from a checkpoint, ready to run on the CPU; half-precision weights become float32.

    Raises:
        UserError: the file is missing, a pickle, truncated, altered, of another kind or version, or its weights do not
            fit the agent of that name in this version.
    """
    tensors, text = read_tensors(path, _KIND)
    info = CheckpointInfo.from_header(text, path)
    try:
        policy = _build_for(info, tensors)
        policy.load_state_dict(as_tensors(tensors))
    except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:_REASON_SHOWN]
        raise UserError(
            f"{path} does not fit the agent {info.agent!r} of this version ({reason}): it was made by another "
            "architecture, or is damaged"
        ) from None
    except UserError as error:  # the agent that the file names is not here
        raise UserError(f"{path}: {error}") from None
    return policy.eval(), info


def _build_for(info: CheckpointInfo, tensors: Mapping[str, np.ndarray]) -> RecurrentPolicy:
    """Build the agent for these weights; raises ValueError where it would need others, before it takes much memory."""
    layers = info.recurrent_arguments.get("layers", 0)
    if len(info.layout.heads) > len(tensors) or (isinstance(layers, int) and layers > len(tensors)):
        raise ValueError(f"it has {len(tensors)} tensors, fewer than its header's action heads and layers need")
    with Allowance(2 * sum(tensor.size for tensor in tensors.values()) + _NUMBERS_BESIDE_WEIGHTS):
        policy = build_policy(info)
    needed = policy.state_dict()
    if needed.keys() != tensors.keys():
        raise ValueError(f"only one of the two has {min(needed.keys() ^ tensors.keys())}")
    for name, tensor in needed.items():
        wanted = f"{tuple(tensor.shape)} {tensor.dtype}"
        actual = f"{tensors[name].shape} torch.{tensors[name].dtype.name}"
        if actual not in (wanted, wanted.replace("float32", "float16")):
            raise ValueError(f"{name} is {actual}, not {wanted}")
    return policy


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint atomically."""
    write_bytes(target, read_bytes(source))


def as_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the same numbers as arrays in main memory."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return the same numbers as tensors on the CPU that share no memory with the arrays."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def print_policies(folder: Path) -> None:
    """Show the policies in a folder, and beside the shipped ones one's own; what cannot be read, with the reason.

    Raises:
        UserError: there is none.
    """
    places = folders_of(folder)
    rows = [_row(path) for place in places for path in list_checkpoints(place)]
    originals = [path for place in places for path in not_imported(place)]
    if not rows and not originals:
        raise UserError(f"there is no policy in {folder}/: train one with `python train.py`")
    command_line.print_table(_HEADS, [*rows, *((path.stem, "", "", "", "", str(path.parent)) for path in originals)])
    for path in originals:
        print(import_hint(path))


def _row(path: Path) -> tuple[str, ...]:
    try:
        info = read_info(path)
    except UserError as error:
        return path.stem, f"unreadable: {error}", "", "", "", str(path.parent)
    seed = "unknown" if info.origin else str(info.seed)
    return path.stem, info.agent, info.shown_steps, seed, str(info.layout.task_size), str(path.parent)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
