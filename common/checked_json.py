"""JSON that is checked when it is read: its checksum, so that damage and manual edits are detected, and its shape."""

import functools
import hashlib
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from common.files import as_json, read_json
from common.user_error import UserError

CHECKSUM = "checksum"
_BYTES_AT_MOST = 1 << 26
_Shape = TypeVar("_Shape")


def with_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with its checksum added; data classes and numpy values become plain values."""
    plain = orjson.loads(as_json(content))
    return {**plain, CHECKSUM: _checksum(plain)}


def without_checksum(content: dict[str, Any], source: str) -> dict[str, Any]:
    """Verify the checksum and return the content without it; `source` names the file in messages.

    Raises:
        UserError: the checksum does not match.
    """
    rest = {key: value for key, value in content.items() if key != CHECKSUM}
    try:
        checksum = _checksum(rest)
    except orjson.JSONEncodeError as error:
        raise UserError(f"{source} is damaged: {error}") from None
    if content.get(CHECKSUM) != checksum:
        raise UserError(f"{source} does not match its own checksum: damaged or edited; copy or extract it again")
    return rest


def entry_checksum(name: str, entry: dict[str, Any]) -> str:
    """Return the checksum of one entry of an object, over its name and all but its own checksum.

    Entries that carry their own can be added to a file one by one, and copied from one file to another.
    """
    return _checksum({name: {key: value for key, value in entry.items() if key != CHECKSUM}})


def entry_fits(name: str, entry: dict[str, Any]) -> bool:
    """Tell whether an entry fits the checksum that it carries; one without a checksum does."""
    try:
        return CHECKSUM not in entry or entry[CHECKSUM] == entry_checksum(name, entry)
    except orjson.JSONEncodeError:  # nested deeper than anything that was written
        return False


def in_shape(shape: type[_Shape], content: object, complaint: str, advice: str) -> _Shape:
    """Return JSON content, parsed or as text, as a value of a data class that pydantic knows to check.

    Args:
        complaint: how messages begin, such as "FILE is damaged"; they end in the advice.

    Raises:
        UserError: a key is missing, unknown or of the wrong type.
    """
    try:
        text = content if isinstance(content, str) else orjson.dumps(content)
        adapter: TypeAdapter[_Shape] = _adapter(cast(Any, shape))
        return adapter.validate_json(text)
    except orjson.JSONEncodeError as error:  # nested deeper than anything that was written
        fault = str(error)
    except ValidationError as error:
        fault = first_fault(error)
    raise UserError(f"{complaint}: {fault}; {advice}")


def first_fault(error: ValidationError) -> str:
    """Return where content first differs from its shape, unless it is the whole, and how, in a short line."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place[:80]!r}: {first['msg'][:200]}" if place else first["msg"][:200]


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def read_small_json(path: Path) -> object:
    """Read a small JSON file (UserError: as `read_json`; it has at most 64 MiB)."""
    return read_json(path, _BYTES_AT_MOST)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
