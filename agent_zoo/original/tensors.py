"""Read tensors from torch's archive, given what its pickle says of them."""

import math
from typing import Any

import torch

from agent_zoo.original.inert_pickle import PERSISTENT, Global, Record
from agent_zoo.original.torch_archive import TorchArchive

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
        return self._numbers(key, count, _TYPES[name])

    def _numbers(self, key: str, count: int, dtype: torch.dtype) -> torch.Tensor:
        if (key, dtype) not in self._storages:
            content = self._archive.storage(key, count * dtype.itemsize)
            if not content:
                numbers = torch.empty(0, dtype=dtype)
            elif dtype == torch.bool:  # a byte other than 0 and 1 is no bool
                numbers = torch.frombuffer(bytearray(content), dtype=torch.uint8) != 0
            else:
                numbers = torch.frombuffer(bytearray(content), dtype=dtype)
            self._storages[key, dtype] = numbers
        return self._storages[key, dtype]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NUMBERS
