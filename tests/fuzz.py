"""Damage of every kind, a fixed number of cases, and limits within which a reader must say what is wrong.

A case may end in two ways: with the reader's own error in one line, or with the content that the file tells.
`tests/readers/` registers every reader, and `tests/test_fuzz.py` tries and counts them.
"""

import contextlib
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from common.array_files import Kind, read_tensors, write_tensors
from common.checked_json import CHECKSUM, with_checksum
from common.user_error import LONGEST_MESSAGE, TOO_LITTLE_MEMORY, UserError

SECONDS = 5
"""Of a processor: other tests on the same machine must not make a case fail. By the clock, six times as much."""
BYTES = 1 << 30
Read = TypeVar("Read")
_MARK = "where the damage goes"

_ODD_NUMBERS = (-1, 0, 1, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 0.5, -0.0, 1e308, 1e-320)
_ODD_TEXTS = ("", "x", "7", "a\nb", "\x1b[31m", "\u202e", "\x00", "\x7f", "é" * 300, "../..", "/dev/zero")
_ODD_CONTAINERS: tuple[Any, ...] = ([], {}, [[]], [{}], {"": []}, [None] * 300)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
"""Of all characters that UTF-8 can encode; naming the codec instead would try each of them."""
VALUES = st.one_of(
    st.sampled_from([None, True, False, *_ODD_NUMBERS, *_ODD_TEXTS, *_ODD_CONTAINERS]),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
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
    """Settings that draw the same cases each time; a failing one is shown as it is, since looking for a simpler one
    may take very long where a reader does.
    """
    return settings(
        max_examples=cases, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


class TooLong(BaseException):
    """A reader took longer than it may; no reader can catch this by mistake."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Interrupt what takes longer than `SECONDS`, and let memory grow by `BYTES` at most."""

    def interrupt(*_: object) -> None:
        raise TooLong(f"it took more than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    timers = ((signal.ITIMER_PROF, signal.SIGPROF, SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, 6 * SECONDS))
    before = [signal.signal(number, interrupt) for _, number, _ in timers]
    resource.setrlimit(resource.RLIMIT_AS, (in_use + BYTES, hard))
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


refused: list[str] = []
"""What readers have said of damaged files."""


def read_or_refuse(read: Callable[[], Read], place: Path) -> Read | None:
    """Return what a reader made of a file, or None where it refused it in one line that names the place."""
    try:
        with limited():
            return read()
    except UserError as error:
        message = str(error)
        if TOO_LITTLE_MEMORY in message or "does not fit into memory" in message:
            raise MemoryError(message) from None
        assert message.isprintable() and len(message) <= LONGEST_MESSAGE and str(place) in message, message
        refused.append(message)
        return None


@dataclass(frozen=True, eq=False)
class Bench:
    """What readers take their whole files from: fixtures by name, and folders."""

    request: pytest.FixtureRequest
    factory: pytest.TempPathFactory

    def __getitem__(self, fixture: str) -> Any:
        return self.request.getfixturevalue(fixture)

    def folder(self) -> Path:
        return self.factory.mktemp("whole")


@dataclass(frozen=True)
class Reader:
    """A way of reading that must withstand damage."""

    name: str
    opens: tuple[str, ...]  # the functions by which it opens files, as `package.module:function`
    cases: int  # how often it is tried
    attempt: Callable[[Bench, Path, st.DataObject], None]
    """Damages a file in an empty folder and has it read; asserts that what is read is what the file tells."""


READERS: list[Reader] = []


def reader(*opens: str, cases: int = 40) -> Callable[[Any], Any]:
    """Register a function as `Reader.attempt`, under its own name."""

    def register(attempt: Any) -> Any:
        READERS.append(Reader(attempt.__name__, opens, cases, attempt))
        return attempt

    return register


def file_reader(
    *opens: str, write: Callable[[Bench, Path], Path], read: Callable[[Path], object], kind: Kind | None = None,
    cases: int = 40,
) -> None:  # fmt: skip
    """Register the reader of one file, of which no more is asked than to refuse it or to read it.

    Args:
        write: makes a whole file, and what it needs, in an empty folder; returns its path.
        read: gets that path.
        kind: of a file of tensors.
    """

    def attempt(bench: Bench, folder: Path, data: st.DataObject) -> None:
        path = write(bench, folder)
        if kind:
            damaged_tensors(data, path, kind)
        else:
            path.write_bytes(damaged_file(data, path.name, path.read_bytes()))
        read_or_refuse(lambda: read(path), folder)

    READERS.append(Reader(opens[0], opens, cases, attempt))


def as_pipe(path: Path) -> None:
    """Put a named pipe in place of a file."""
    path.unlink()
    os.mkfifo(path)


def flip(path: Path, place: int, bits: int = 1, whole: bytes | None = None) -> None:
    """Flip bits of one byte of a file, or of what was the whole of it."""
    changed = bytearray(path.read_bytes() if whole is None else whole)
    changed[place] ^= bits
    path.write_bytes(changed)


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


def junk_or_json(data: st.DataObject, content: Any) -> bytes:
    """Damage the bytes of JSON one time in four, and otherwise a value in it."""
    as_bytes = data.draw(st.integers(0, 3), label="bytes") == 0
    return junk(data, orjson.dumps(content)) if as_bytes else damaged_json(data, content)


def damaged_file(data: st.DataObject, name: str, content: bytes) -> bytes:
    """Damage JSON, a line of JSON, or bytes; what carries a checksum gets one that fits half of the time."""
    if not name.endswith((".json", ".jsonl")) or data.draw(st.integers(0, 3), label="bytes") == 0:
        return junk(data, content)
    if name.endswith(".json"):
        text = damaged_json(data, orjson.loads(content))
        return resigned(text) if CHECKSUM in orjson.loads(content) and data.draw(st.booleans(), label="sign") else text
    lines = content.splitlines()
    place = data.draw(st.integers(0, len(lines) - 1), label="line")
    lines[place] = damaged_json(data, orjson.loads(lines[place]))
    return b"".join(line + b"\n" for line in lines)


def resigned(text: bytes) -> bytes:
    """Give JSON that carries a checksum the one that fits its content, if it can be read at all."""
    try:
        content = orjson.loads(text)
        if isinstance(content, dict):
            return orjson.dumps(with_checksum({key: value for key, value in content.items() if key != CHECKSUM}))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):  # nested too deep to be written
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


ARRAYS: tuple[np.ndarray, ...] = (
    np.zeros(0, np.float32), np.zeros((0, 3), np.float32), np.array(0.5), np.full(3, np.nan, np.float32),
    np.arange(4, dtype=np.uint64), np.array([True]), np.zeros((1,) * 9, np.float16), np.full((2, 2), np.inf),
    np.zeros(1, np.complex64),
)  # fmt: skip
"""Arrays that belong into no file."""


def damaged_tensors(data: st.DataObject, path: Path, kind: Kind) -> tuple[dict[str, np.ndarray], str] | None:
    """Damage a file of tensors, most times with a hash that fits; returns what it then holds, or None for no file."""
    arrays, text = read_tensors(path, kind)
    what = data.draw(st.sampled_from(["header", "header", "header", "arrays", "container", "bytes"]), label="what")
    if what == "bytes":
        path.write_bytes(junk(data, path.read_bytes()))
        return (arrays, text) if _same_tensors(path, kind, arrays, text) else None
    if what == "container":
        _damage_container(data, path)
        return (arrays, text) if _same_tensors(path, kind, arrays, text) else None
    if what == "header":
        text = damaged_json(data, orjson.loads(text)).decode() if text.startswith("{") else data.draw(TEXTS)
    else:
        _damage_arrays(data, arrays)
    write_tensors(path, arrays, text, kind)
    return arrays, text


def _same_tensors(path: Path, kind: Kind, arrays: dict[str, np.ndarray], text: str) -> bool:
    """Whether damage of the bytes has left the content, such as the order of keys in the header."""
    try:
        result, found_text = read_tensors(path, kind)
    except UserError:
        return False
    same = all(np.array_equal(result[name], arrays[name], equal_nan=True) for name in arrays.keys() & result.keys())
    assert same and result.keys() == arrays.keys() and found_text == text, "the hash fits, and the content differs"
    return True


def _damage_arrays(data: st.DataObject, arrays: dict[str, np.ndarray]) -> None:
    name = data.draw(st.sampled_from(sorted(arrays)), label="array")
    kind = data.draw(
        st.sampled_from(["other", "remove", "rename", "flatten", "type", "nan", "add", "cut"]), label="kind"
    )
    array = arrays.pop(name)
    if kind == "other":
        arrays[name] = data.draw(st.sampled_from(ARRAYS))
    elif kind in ("rename", "add"):
        arrays[data.draw(st.sampled_from(["", f"{name} ", name.upper(), "é\n", "policy/x/y", "actions/-1"]))] = array
    elif kind == "flatten":
        arrays[name] = array.ravel()
    elif kind == "type":
        arrays[name] = array.astype(data.draw(st.sampled_from([np.float64, np.float16, np.int32, np.uint8])))
    elif kind == "nan" and array.dtype.kind == "f" and array.size:
        arrays[name] = array.copy()
        arrays[name].flat[0] = np.nan
    elif kind == "cut" and array.ndim:
        arrays[name] = array[:-1]
    if kind == "add":
        arrays[name] = array


def _damage_container(data: st.DataObject, path: Path) -> None:
    """Change what the safetensors format says of the tensors and of itself."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = orjson.loads(content[8:start])
    kind = data.draw(st.sampled_from(["dtype", "shape", "offsets", "json", "entry", "length"]), label="container")
    name = data.draw(st.sampled_from(sorted(header.keys() - {"__metadata__"})), label="tensor")
    length = start - 8
    if kind == "dtype":
        header[name]["dtype"] = data.draw(
            st.sampled_from(["BF16", "F8_E4M3", "F4", "F16", "I32", "U64", "C64", "", "x"])
        )
    elif kind == "shape":
        header[name]["shape"] = data.draw(
            st.sampled_from([[], [0], [1 << 62, 1 << 62], [-1], [0, (1 << 64) - 1], [0.5], None])
        )
    elif kind == "offsets":
        header[name]["data_offsets"] = data.draw(st.sampled_from([[0, 0], [4, 0], [0, 1 << 60], [-4, 4], [0], None]))
    elif kind == "entry":
        entry = orjson.loads(header["__metadata__"]["nmmo_interpretability"])
        header["__metadata__"]["nmmo_interpretability"] = damaged_json(data, entry).decode()
    text = damaged_json(data, header) if kind == "json" else orjson.dumps(header)
    if kind == "length":
        length = data.draw(st.sampled_from([0, 1, (1 << 63), (1 << 64) - 1, 100_000_001, length + 1, length - 1]))
    else:
        length = len(text)
    path.write_bytes(length.to_bytes(8, "little") + text + content[start:])
