"""Files as torch writes them, made by hand, so that they can say anything: what tests of their reader need."""

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.original_networks import random_weights

REBUILD = ("torch._utils", "_rebuild_tensor_v2")
PARAMETER = ("torch._utils", "_rebuild_parameter")
ORDERED = ("collections", "OrderedDict")


@dataclass(frozen=True)
class Name:
    """A function or class that is imported when the pickle is opened."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A call that is made when the pickle is opened, and what is then done to its result."""

    of: Any
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: Any = None
    operation: bytes = b"R"


@dataclass(frozen=True)
class Persistent:
    """A reference to something beside the pickle."""

    what: Any


@dataclass(frozen=True)
class Code:
    """Operations of a pickle as they are."""

    content: bytes


def call(module: str, name: str, *arguments: Any, **more: Any) -> Call:
    return Call(Name(module, name), arguments, **more)


def pickled(value: Any) -> bytes:
    return b"\x80\x02" + code(value) + b"."


def code(value: Any) -> bytes:
    """The operations that put a value on the stack."""
    match value:
        case Code(content):
            return content
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            length = value.bit_length() // 8 + 1
            return b"\x8b" + struct.pack("<i", length) + value.to_bytes(length, "little", signed=True)
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case bytes():
            return b"B" + struct.pack("<I", len(value)) + value
        case tuple():
            return b"(" + b"".join(map(code, value)) + b"t"
        case list():
            return b"](" + b"".join(map(code, value)) + b"e"
        case dict():
            return b"}" + _items(value)
        case Name(module, name):
            return f"c{module}\n{name}\n".encode()
        case Persistent(what):
            return code(what) + b"Q"
        case Call():
            built = code(value.of) + code(value.arguments) + value.operation
            built += _items(value.items) if value.items is not None else b""
            return built + (code(value.state) + b"b" if value.state is not None else b"")
    raise TypeError(type(value))


def _items(items: Mapping[Any, Any]) -> bytes:
    return b"(" + b"".join(code(key) + code(entry) for key, entry in items.items()) + b"u"


def archive(
    pickle: bytes, storages: Mapping[str, bytes] | None = None, *, root: str = "model_000001", **more: bytes
) -> bytes:
    """A zip archive with a pickle, storages and other entries."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, entry in {"data.pkl": pickle, "byteorder": b"little", **more}.items():
            file.writestr(f"{root}/{name}", entry)
        for key, entry in (storages or {}).items():
            file.writestr(f"{root}/data/{key}", entry)
    return content.getvalue()


def storage(key: Any, count: Any, kind: str = "FloatStorage", location: str = "cpu") -> Persistent:
    return Persistent(("storage", Name("torch", kind), key, location, count))


def tensor(where: Any, *size: Any, offset: Any = 0, stride: Any = None) -> Call:
    """A tensor in a storage; by default contiguous."""
    if stride is None:
        stride = tuple(int(np.prod(size[place + 1 :])) for place in range(len(size)))
    return call(*REBUILD, where, offset, size, stride, False, call(*ORDERED))


def parameter(inner: Any) -> Call:
    return call(*PARAMETER, inner, True, call(*ORDERED))


def module(of: str, parameters: Any = None, modules: Any = None, **more: Any) -> Call:
    """A module as torch pickles one, of the class with this full name."""
    state = {
        "training": True,
        "_parameters": parameters or {},
        "_buffers": {},
        "_non_persistent_buffers_set": call("__builtin__", "set", []),
        "_forward_hooks": call(*ORDERED),
        "_modules": modules or {},
        **more,
    }
    package, _, name = of.rpartition(".")
    return Call(Name(package, name), (), state, operation=b"\x81")


def saved_tensors(tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, Call], dict[str, bytes]]:
    """Records of float32 tensors by name, and their storages."""
    records, storages = {}, {}
    for number, (name, values) in enumerate(tensors.items()):
        storages[str(number)] = np.ascontiguousarray(values, np.float32).tobytes()
        records[name] = tensor(storage(str(number), values.size), *values.shape)
    return records, storages


def saved_network(tensors: Mapping[str, np.ndarray], *, wrapper: str, inner: str) -> bytes:
    """A whole network as the original saves it: modules nested by the dots in the names, in two classes of its own."""
    records, storages = saved_tensors(tensors)
    return archive(pickled(_nested(records, [wrapper, inner])), storages)


def _nested(records: Mapping[str, Call], classes: list[str]) -> Call:
    of, rest = (classes[0], classes[1:]) if classes else ("torch.nn.modules.container.ModuleDict", [])
    own = {name: parameter(record) for name, record in records.items() if "." not in name}
    inner: dict[str, dict[str, Call]] = {}
    for name, record in records.items():
        if "." in name:
            inner.setdefault(name.partition(".")[0], {})[name.partition(".")[2]] = record
    return module(of, own, {name: _nested(part, rest) for name, part in inner.items()})


def start_kit_tensors(units: int = 16, task_size: int = 24, *, seed: int = 7) -> dict[str, np.ndarray]:
    """Random weights under the names and in the shapes of the original's start kit with an LSTM."""
    return random_weights("neurips23_start_kit", units, task_size, layers=1, seed=seed)


def saved_start_kit(units: int = 16, task_size: int = 24, *, seed: int = 7) -> bytes:
    return saved_network(
        start_kit_tensors(units, task_size, seed=seed),
        wrapper="pufferlib.frameworks.cleanrl.RecurrentPolicy",
        inner="agent_zoo.neurips23_start_kit.baseline_policy.Recurrent",
    )


def saved_curriculum(vectors: Mapping[str, Any]) -> bytes:
    """A curriculum as the original pickles one: tasks with names and embeddings."""
    return pickled(
        [call("nmmo.task.task_spec", "TaskSpec", state=_task(*task), operation=b"\x81") for task in vectors.items()]
    )


def _task(name: str, vector: Any) -> dict[str, Any]:
    embedding = saved_array(vector) if isinstance(vector, np.ndarray) else vector
    return {"name": name, "eval_fn": Name("nmmo.task.base_predicates", "TickGE"), "embedding": embedding}


def saved_array(values: np.ndarray) -> Call:
    """An array as numpy pickles one."""
    dtype = call("numpy", "dtype", values.dtype.str[1:], False, True, state=(3, "<", None, None, None, -1, -1, 0))
    empty = call("numpy.core.multiarray", "_reconstruct", Name("numpy", "ndarray"), (0,), b"b")
    return Call(empty.of, empty.arguments, (1, values.shape, dtype, False, values.tobytes()))
