"""Tables in a page: packed into one run of bytes that deflates well, and JSON that is safe inside a script element."""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

_BEST = 9
_SIGNED_BYTE = 127


def pack(tables: Mapping[str, np.ndarray], texts: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Pack tables of integers, of truth values and of floats, exactly, and JSON values, as `unpacking.js` reads them.

    Returns name, kind and shape of each, names must differ, and all in that order, deflated, as base64 text.

    Bytes (uint8) are taken as they are, other integers as differences along the last axis.

    Raises:
        ValueError: an integer needs more than 32 bits.
    """
    columns, parts = [], []
    for name, array in tables.items():
        kind, content = _bytes_of(array)
        columns.append({"name": name, "kind": kind, "shape": array.shape})
        parts.append(content)
    for name, value in texts.items():
        content = orjson.dumps(value)
        columns.append({"name": name, "kind": "json", "shape": [len(content)]})
        parts.append(content)
    return columns, base64.b64encode(zlib.compress(b"".join(parts), _BEST)).decode()


def embedded(content: Any) -> Any:
    """Return JSON that is safe inside a script element, whatever its texts hold."""
    from markupsafe import Markup

    text = orjson.dumps(content).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def signed_bytes(values: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return values in 127ths of the largest of them, int8, rounded; `most` must broadcast, and may be 0."""
    return np.rint(values / np.where(most > 0, most, 1) * _SIGNED_BYTE).astype(np.int8)


def _bytes_of(array: np.ndarray) -> tuple[str, bytes]:
    if array.dtype == np.uint8:
        return "u1", array.tobytes()
    return _floats(array) if array.dtype.kind == "f" else _differences(array)


def _differences(array: np.ndarray) -> tuple[str, bytes]:
    """Store differences along the last axis, in the smallest integers that hold the values: they deflate well."""
    values = array.astype(np.int64)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    fitting = [kind for kind in ("i1", "i2", "i4") if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    if not fitting:
        raise ValueError(f"values from {low} to {high} need more than 32 bits")
    steps = np.diff(values, axis=-1, prepend=0)
    # Where a step does not fit it wraps round, and adding it up wraps round the same way.
    return fitting[0], steps.astype(f"<{fitting[0]}").tobytes()


def _floats(array: np.ndarray) -> tuple[str, bytes]:
    """Store all first bytes, then all second bytes and so on: like bytes side by side deflate well."""
    width = array.dtype.itemsize
    kind = f"f{width}"
    planes = np.ascontiguousarray(array, dtype=f"<{kind}").reshape(-1).view(np.uint8).reshape(array.size, width)
    return kind, planes.T.tobytes()
