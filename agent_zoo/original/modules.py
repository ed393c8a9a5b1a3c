"""Find the parameters and buffers in what a pickle says of a network."""

from collections.abc import Mapping
from typing import Any

from agent_zoo.original.inert_pickle import Record
from agent_zoo.original.tensors import is_tensor

MOST_MODULES = 1 << 12
_DEEPEST = 64
_LONGEST_NAME = 256
_COMPILED = "_orig_mod"
_SEVERAL_DEVICES = "module"
"""Names under which torch wraps a network that it compiles or copies to several devices."""


def state_dict(value: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the tensors that a saved value holds, by their names in a state dict, and the classes of the modules.

    The value is a whole network, a state dict, or a dictionary with one of either. Tensors come as records, which
    `original_tensors` reads.

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
    named = {_unwrapped(_checked(name)): _tensor(name, entry) for name, entry in tensors.items()}
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
        raise ValueError(f"it holds several networks ({_shown(list(inner))}): save one of them alone")
    what = f"a call of {value.of or 'something it computes'}" if isinstance(value, Record) else "other values"
    raise ValueError(f"it holds {what}, no network")


def _holds_network(value: Any) -> bool:
    return _is_module(value) or any(map(is_tensor, (_mapping(value) or {}).values()))


def _is_module(value: Any) -> bool:
    return isinstance(value, Record) and isinstance(value.state, dict) and "_modules" in value.state


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    """Return the entries of a dictionary, ordered or not; None for anything else."""
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
        if visits > MOST_MODULES or depth > _DEEPEST:
            raise ValueError(f"its network has more than {MOST_MODULES:,} parts, or parts nested {_DEEPEST} deep")
        if not _is_module(module):
            raise ValueError(f"{prefix[:-1]!r} in its network is no module that torch wrote")
        classes[module.of] = None
        own = _part(module, "_parameters", prefix) | _persistent_buffers(module, prefix)
        tensors |= {_joined(prefix, name): tensor for name, tensor in own.items() if tensor is not None}
        inner = {name: part for name, part in _part(module, "_modules", prefix).items() if part is not None}
        waiting += [(_joined(prefix, name) + ".", part, depth + 1) for name, part in reversed(inner.items())]
    return tensors, tuple(classes)


def _part(module: Record, name: str, prefix: str) -> dict[Any, Any]:
    part = _mapping(module.state.get(name, {}))
    if part is None:
        raise ValueError(f"{prefix + name!r} in its network is no dictionary")
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


def _tensor(name: str, entry: Any) -> Any:
    if not is_tensor(entry):
        what = f"a call of {entry.of or 'something it computes'}" if isinstance(entry, Record) else "another value"
        raise ValueError(f"{name!r} should be a tensor and is {what}, which is not carried out")
    return entry


def _unwrapped(name: str) -> str:
    return name.replace(f"{_COMPILED}.", "").removeprefix(f"{_SEVERAL_DEVICES}.")


def _shown(keys: list[Any]) -> str:
    return ", ".join(str(key) if isinstance(key, str | int) else type(key).__name__ for key in keys[:3])
