"""Read a checkpoint of the original repository without running the code that it names."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent_zoo.checkpoint_files import TRAINER_STATE
from agent_zoo.original.inert_pickle import load
from agent_zoo.original.modules import state_dict
from agent_zoo.original.tensors import TensorReader
from agent_zoo.original.torch_archive import TorchArchive
from common.files import read_bytes
from common.user_error import UserError

MOST_BYTES = 1 << 30
_USUAL = {
    "agent_zoo", "builtins", "collections", "copyreg", "gymnasium", "gym", "nmmo", "numpy", "pufferlib", "torch",
    "_codecs",
}  # fmt: skip
_USUAL_BUILTINS = {f"builtins.{name}" for name in ("set", "frozenset", "dict", "list", "tuple", "slice", "complex")}
_MOST_STEPS = 1 << 62


@dataclass(frozen=True, eq=False)
class OriginalFile:
    """What a checkpoint of the original holds."""

    path: Path
    sha256: str  # of its bytes
    tensors: dict[str, torch.Tensor]
    """Parameters and buffers by their names in the network's state dict; floating-point ones as float32."""
    classes: tuple[str, ...]  # of the network and its parts, from outside to inside; empty for a bare state dict
    strangers: tuple[str, ...]  # functions and classes that such files do not usually name; none was imported or called
    steps: int | None  # agent-steps trained; None if nothing says it
    unknown: tuple[str, ...]  # what the file does not say, and why


def read_original(path: Path) -> OriginalFile:
    """Read a checkpoint, and the agent-steps from the `trainer_state.pt` beside it, if that is of this checkpoint.

    Nothing that the file names is imported or called. Memory is bounded by a small multiple of the file's size.

    Raises:
        UserError: the file is missing, damaged, larger than `MOST_BYTES`, in the format of torch before 1.6, or holds
            no network.
    """
    content = read_bytes(path, MOST_BYTES)
    try:
        archive = TorchArchive(content)
        value, named = load(archive.pickle)
        references, classes = state_dict(value)
        read = TensorReader(archive, len(content))
        tensors = {name: read.tensor(name, reference) for name, reference in references.items()}
    except ValueError as error:
        raise UserError(f"{path} cannot be imported: {error}") from None
    steps, fault = _steps(path)
    unknown = (*([f"agent-steps ({fault})"] if fault else []), "the world that it was trained in (no file says it)")
    strangers = tuple(name for name in named if not _usual(name))
    return OriginalFile(path, hashlib.sha256(content).hexdigest(), tensors, classes, strangers, steps, unknown)


def newest_model(folder: Path) -> Path:
    """Return the checkpoint with the most updates in a run folder of the original.

    Raises:
        UserError: there is none.
    """
    numbers = {int(match[1]): path for path in folder.glob("model_*.pt") if (match := _MODEL.fullmatch(path.name))}
    if not numbers:
        raise UserError(f"there is no checkpoint (model_NUMBER.pt) in {folder}: name a file or a run folder")
    return numbers[max(numbers)]


_MODEL = re.compile(r"model_(\d{1,18})\.pt", re.ASCII)


def _usual(name: str) -> bool:
    package = name.partition(".")[0]
    return package in _USUAL and (package != "builtins" or name in _USUAL_BUILTINS)


def _steps(path: Path) -> tuple[int | None, str]:
    """Return the agent-steps of a checkpoint, or None and why they are unknown."""
    state_path = path.parent / TRAINER_STATE
    if not state_path.exists():
        return None, f"there is no {TRAINER_STATE} beside it"
    try:
        value, _ = load(TorchArchive(read_bytes(state_path, MOST_BYTES)).pickle)
    except (ValueError, UserError) as error:
        return None, f"{state_path} cannot be read ({error})"
    content: Mapping[Any, Any] = value if isinstance(value, dict) else getattr(value, "items", {})
    if content.get("model_name") != path.name:
        return None, f"the {TRAINER_STATE} beside it is of another checkpoint"
    steps = content.get("agent_step")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 <= steps < _MOST_STEPS:
        return None, f"the {TRAINER_STATE} beside it does not say them"
    return steps, ""
