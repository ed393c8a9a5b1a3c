"""Damage of every kind, a fixed number of cases, and limits within which a reader must say what is wrong.

A case may end in two ways: with the reader's own error in one line, or with the content that the file tells.
"""

import contextlib
import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from activation_store.checked_json import CHECKSUM, with_checksum
from user_error import LONGEST_MESSAGE, UserError

SECONDS = 5
BYTES = 1 << 30
Read = TypeVar("Read")
_MARK = "where the damage goes"

_ODD_NUMBERS = (-1, 0, 1, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 0.5, -0.0, 1e308, 1e-320)
_ODD_TEXTS = ("", "x", "7", "a\nb", "\x1b[31m", "\u202e", "\x00", "\x7f", "é" * 300, "../..", "/dev/zero")
_ODD_CONTAINERS: tuple[Any, ...] = ([], {}, [[]], [{}], {"": []}, [None] * 300)
VALUES = st.one_of(
    st.sampled_from([None, True, False, *_ODD_NUMBERS, *_ODD_TEXTS, *_ODD_CONTAINERS]),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.lists(st.integers(-3, 300), max_size=5),
)
"""Values that JSON can hold."""

_DEEP = ("[" * 100_000, '{"a":' * 20_000, "[" * 300 + "]" * 300, "[" * 1000 + "]" * 1000)
_LONG = (
    "9" * 5000, "0." + "1" * 5000, '"' + "x" * (1 << 20) + '"', " " * (1 << 20) + "1", "[" + "0," * (1 << 18) + "0]",
    "[" + "{}," * (1 << 16) + "{}]",
)  # fmt: skip
_BROKEN = ("NaN", "-Infinity", "1e999", "tru", "", ",", '"', "\x00", "\x1b]0;title\x07", "01", "0x10", "// x\n1")
RAW_VALUES = st.sampled_from(['"\\ud800"', '{"\\udfff": 1}', '{"a": 1, "a": 2}', *_DEEP, *_LONG, *_BROKEN])
"""Texts in place of a value, most of which are no JSON."""


def budget(cases: int) -> Any:
    """Settings that draw the same cases each time."""
    return settings(
        max_examples=cases, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


class TooLong(BaseException):
    """A reader took longer than it may; no reader can catch this by mistake."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Interrupt what takes longer than `SECONDS`, and let memory grow by `BYTES` at most."""

    def interrupt(*_: object) -> None:
        raise TooLong(f"it took more than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, interrupt)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def read_or_refuse(read: Callable[[], Read], place: Path) -> Read | None:
    """Return what a reader made of a file, or None where it refused it in one line that names the place."""
    try:
        with limited():
            return read()
    except UserError as error:
        message = str(error)
        assert message.isprintable() and len(message) <= LONGEST_MESSAGE and str(place) in message, message
        return None


def junk(data: st.DataObject, content: bytes) -> bytes:
    """Flip bytes, cut, repeat or replace some of them, or all."""
    place, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2), label="place"))
    other = data.draw(st.binary(max_size=20), label="bytes")
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove", "repeat", "replace", "all"]), label="kind")
    if kind == "flip" and place < len(content):
        flipped = content[place] ^ data.draw(st.integers(1, 255), label="bits")
        return content[:place] + bytes([flipped]) + content[place + 1 :]
    changed = {
        "cut": content[:place],
        "remove": content[:place] + content[end:],
        "repeat": content[:end] + content[place:],
        "replace": content[:place] + other + content[place + len(other) :],
        "all": other,
    }
    return changed.get(kind, content[:place] + other + content[place:])


def damaged_json(data: st.DataObject, content: Any) -> bytes:
    """Replace, remove, add or rename a value somewhere in JSON, or put in what is no JSON; returns the text."""
    content = orjson.loads(orjson.dumps(content))
    inside = _somewhere(data, content)
    if inside is None:
        return _text(data, content)
    holder, key = inside
    kind = data.draw(
        st.sampled_from(["value", "value", "value", "raw", "remove", "add", "rename", "swap"]), label="kind"
    )
    if kind == "remove":
        del holder[key]
    elif kind == "add" and isinstance(holder, dict):
        holder[data.draw(st.sampled_from(["", "more", "__class__", "a\nb", "é"]), label="key")] = data.draw(VALUES)
    elif kind == "add":
        holder.insert(key, data.draw(VALUES, label="value"))
    elif kind == "rename" and isinstance(holder, dict):
        holder[data.draw(st.sampled_from([f"{key} ", key.upper(), ""]), label="key")] = holder.pop(key)
    elif kind == "swap":
        other = data.draw(
            st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))), label="with"
        )
        holder[key], holder[other] = holder[other], holder[key]
    elif kind == "raw":
        holder[key] = _MARK
        return _text(data, content)
    else:
        holder[key] = data.draw(VALUES, label="value")
    return orjson.dumps(content)


def resigned(text: bytes) -> bytes:
    """Give JSON that carries a checksum the one that fits its content, if it can be read at all."""
    try:
        content = orjson.loads(text)
        if isinstance(content, dict):
            return orjson.dumps(with_checksum({key: value for key, value in content.items() if key != CHECKSUM}))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return text


def _somewhere(data: st.DataObject, content: Any) -> tuple[Any, Any] | None:
    """Walk into JSON; returns a container and a key in it, or nothing where the whole is empty."""
    holder, key = None, None
    while isinstance(content, dict | list) and content:
        holder = content
        key = data.draw(
            st.sampled_from(list(content)) if isinstance(content, dict) else st.integers(0, len(content) - 1)
        )
        content = content[key]
        if data.draw(st.integers(0, 3), label="stop") == 0:
            break
    return None if holder is None else (holder, key)


def _text(data: st.DataObject, content: Any) -> bytes:
    raw = data.draw(RAW_VALUES, label="raw")
    return json.dumps(content).replace(json.dumps(_MARK), raw).encode()
