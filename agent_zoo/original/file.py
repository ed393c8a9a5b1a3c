"""Read a checkpoint of the original repository without running the code that it names."""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent_zoo.checkpoint_files import TRAINER_STATE
from agent_zoo.original.inert_pickle import PERSISTENT, Global, Record, TorchArchive, load
from common.files import read_bytes
from common.user_error import UserError

_TENSOR = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"}
_PARAMETER = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
_TYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_METADATA = 6
"""Place among the arguments of a tensor of what says that its numbers are to be negated or conjugated."""
_MOST_DIMENSIONS = 16
_MOST_NUMBERS = 1 << 40


def is_tensor(value: Any) -> bool:
    """Return whether a pickle's value stands for a tensor or a parameter."""
    return isinstance(value, Record) and value.of in _TENSOR | _PARAMETER


class TensorReader:
    """Reads the tensors of one archive; one that has several names is read once."""

    def __init__(self, archive: TorchArchive, most_numbers: int):
        self._archive = archive
        self._left = most_numbers
        self._storages: dict[tuple[str, torch.dtype], torch.Tensor] = {}
        self._tensors: dict[Record, torch.Tensor] = {}

    def tensor(self, name: str, reference: Record) -> torch.Tensor:
        """Return a tensor on the CPU that shares no memory with others; half and double precision become float32.

        Raises:
            ValueError: names the tensor and says what is wrong with it.
        """
        while reference.of in _PARAMETER:
            if not (reference.arguments and is_tensor(reference.arguments[0])):
                raise ValueError(f"{name!r} is a parameter without a tensor")
            reference = reference.arguments[0]
        if reference not in self._tensors:
            try:
                self._tensors[reference] = self._read(reference.arguments)
            except ValueError as error:
                raise ValueError(f"{name!r} cannot be read: {error}") from None
        return self._tensors[reference]

    def _read(self, arguments: tuple[Any, ...]) -> torch.Tensor:
        if len(arguments) < 4 or (len(arguments) > _METADATA and arguments[_METADATA]):
            raise ValueError("it is of a kind that this version does not know")
        offset, size, stride = arguments[1:4]
        if not (isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride) <= _MOST_DIMENSIONS):
            raise ValueError("its shape is damaged")
        if not all(map(_is_count, (offset, *size, *stride))):
            raise ValueError("its shape has something else than whole numbers from 0")
        count = math.prod(size)
        self._left -= count
        if self._left < 0:
            raise ValueError("its shape has more numbers than the file")
        storage = self._storage(arguments[0])
        reach = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if count else 0
        if reach >= max(len(storage), 1) or (count and not len(storage)):
            raise ValueError("its shape reaches beyond its storage")
        tensor = torch.as_strided(storage, size, stride, offset if count else 0)
        wanted = torch.float32 if tensor.is_floating_point() else tensor.dtype
        return tensor.to(wanted, copy=True, memory_format=torch.contiguous_format)

    def _storage(self, reference: Any) -> torch.Tensor:
        """Return the numbers of a storage, (N,), on whatever device they were."""
        persistent_id = reference.arguments[0] if isinstance(reference, Record) and reference.of == PERSISTENT else ()
        if not (
            isinstance(persistent_id, tuple)
            and len(persistent_id) == 5
            and persistent_id[0] == "storage"
            and isinstance(persistent_id[1], Global)
        ):
            raise ValueError("it has no storage in the file")
        _, kind, key, _, count = persistent_id
        module, _, name = kind.name.rpartition(".")
        if module not in ("torch", "torch.cuda") or name not in _TYPES:
            raise ValueError(f"its numbers are of the type {kind.name}, which this version does not know")
        if not isinstance(key, str) or not _is_count(count):
            raise ValueError("its storage has no proper name or length")
        dtype = _TYPES[name]
        if (key, dtype) not in self._storages:
            content = bytearray(self._archive.storage(key, count * dtype.itemsize))
            if not content:
                numbers = torch.empty(0, dtype=dtype)
            elif dtype == torch.bool:  # a byte other than 0 and 1 is no bool
                numbers = torch.frombuffer(content, dtype=torch.uint8) != 0
            else:
                numbers = torch.frombuffer(content, dtype=dtype)
            self._storages[key, dtype] = numbers
        return self._storages[key, dtype]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NUMBERS


MOST_MODULES = 1 << 12
MOST_TENSORS = 1 << 14
_DEEPEST = 64
_LONGEST_NAME = 256
_COMPILED = "_orig_mod"
_SEVERAL_DEVICES = "module"
"""Names under which torch wraps a network that it compiles or copies to several devices."""


def state_dict(value: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the tensors that a saved value holds, by their names in a state dict, and the classes of the modules.

    The value is a whole network, a state dict, or a dictionary with one of either. Tensors come as records, which
    `TensorReader` reads.

    Raises:
        ValueError: it holds no network or several, or one that torch could not have saved.
    """
    value = _network(value)
    if _is_module(value):
        tensors, classes = _walk(value)
    else:
        tensors, classes = dict(_mapping(value) or {}), ()
    if not tensors:
        raise ValueError("its network has no weights")
    named = {}
    for name, entry in tensors.items():
        plain = _checked(name).replace(f"{_COMPILED}.", "").removeprefix(f"{_SEVERAL_DEVICES}.")
        if not is_tensor(entry):
            what = f"a call of {entry.of or 'something it computes'}" if isinstance(entry, Record) else "another value"
            raise ValueError(f"{name!r} should be a tensor and is {what}, which is not carried out")
        named[plain] = entry
    if len(named) != len(tensors):
        raise ValueError("two of its tensors have the same name")
    return named, classes


def _network(value: Any) -> Any:
    if _holds_network(value):
        return value
    inner = {key: item for key, item in (_mapping(value) or {}).items() if _holds_network(item)}
    if len(inner) == 1:
        return next(iter(inner.values()))
    if inner:
        shown = ", ".join(str(key) if isinstance(key, str | int) else type(key).__name__ for key in [*inner][:3])
        raise ValueError(f"it holds several networks ({shown}): save one of them alone")
    what = f"a call of {value.of or 'something it computes'}" if isinstance(value, Record) else "other values"
    raise ValueError(f"it holds {what}, no network")


def _holds_network(value: Any) -> bool:
    return _is_module(value) or any(map(is_tensor, (_mapping(value) or {}).values()))


def _is_module(value: Any) -> bool:
    return isinstance(value, Record) and isinstance(value.state, dict) and "_modules" in value.state


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Record) and value.of.startswith("collections."):
        return value.items
    return value if isinstance(value, dict) else None


def _walk(network: Record) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the tensors of a module and of those inside, by name, and their classes."""
    tensors: dict[str, Any] = {}
    classes: dict[str, None] = {}
    waiting: list[tuple[str, Any, int]] = [("", network, 0)]
    visits = 0
    while waiting:
        prefix, module, depth = waiting.pop()
        visits += 1
        if depth > _DEEPEST:
            raise ValueError(f"its network has parts nested more than {_DEEPEST} deep")
        if not _is_module(module):
            raise ValueError(f"{prefix[:-1]!r} in its network is not a module that torch wrote")
        classes[module.of] = None
        own = _part(module, "_parameters", prefix) | _persistent_buffers(module, prefix)
        if len(tensors) + len(own) > MOST_TENSORS:
            raise ValueError(f"its network has more than {MOST_TENSORS:,} tensors")
        tensors |= {_joined(prefix, name): tensor for name, tensor in own.items() if tensor is not None}
        inner = {name: part for name, part in _part(module, "_modules", prefix).items() if part is not None}
        if visits + len(waiting) + len(inner) > MOST_MODULES:
            raise ValueError(f"its network has more than {MOST_MODULES:,} parts")
        waiting += [(_joined(prefix, name) + ".", part, depth + 1) for name, part in reversed(inner.items())]
    return tensors, tuple(classes)


def _part(module: Record, name: str, prefix: str) -> dict[Any, Any]:
    part = _mapping(module.state.get(name, {}))
    if part is None:
        raise ValueError(f"{prefix + name!r} in its network is not a dictionary")
    return dict(part)


def _persistent_buffers(module: Record, prefix: str) -> dict[Any, Any]:
    """Return a module's buffers without those that a state dict leaves out."""
    left_out = module.state.get("_non_persistent_buffers_set")
    names: list[Any] = []
    if isinstance(left_out, Record):
        names = list(left_out.elements)
        names += next((part for part in left_out.arguments if isinstance(part, list)), [])
    omitted = {name for name in names if isinstance(name, str)}
    return {name: buffer for name, buffer in _part(module, "_buffers", prefix).items() if name not in omitted}


def _joined(prefix: str, name: Any) -> str:
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"a part of {prefix[:-1]!r} in its network has no proper name")
    return _checked(prefix + name)


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError("a tensor in its state dict has no proper name")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"a part of its network has a name of {len(name):,} characters")
    return name


MOST_BYTES = 1 << 30
_USUAL = {
    "agent_zoo", "collections", "copyreg", "gymnasium", "gym", "nmmo", "numpy", "pufferlib", "torch",
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
    strangers = tuple(name for name in named if name.partition(".")[0] not in _USUAL and name not in _USUAL_BUILTINS)
    return OriginalFile(path, hashlib.sha256(content).hexdigest(), tensors, classes, strangers, steps, unknown)


def newest_model(folder: Path) -> Path:
    """Return the checkpoint with the most updates in a run folder of the original (UserError: there is none)."""
    numbers = {int(match[1]): path for path in folder.glob("model_*.pt") if (match := _MODEL.fullmatch(path.name))}
    if not numbers:
        raise UserError(f"there is no checkpoint (model_NUMBER.pt) in {folder}: name a file or a run folder")
    return numbers[max(numbers)]


_MODEL = re.compile(r"model_(\d{1,18})\.pt", re.ASCII)


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
