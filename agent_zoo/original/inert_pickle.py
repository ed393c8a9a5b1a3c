"""Read what a pickle says without doing what it says, and find it in the zip archive that torch writes.

A pickle is a program: it names functions and has them called. Here only plain values are made: numbers, texts, lists,
tuples and dictionaries. Whatever the pickle would import, call or build becomes a `Record` of the request.
Of an archive, no more is read than the file holds.
"""

import io
import pickletools
import struct
import warnings
import zipfile
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

MOST_OPERATIONS = 1 << 19
_MOST_NUMBER_BITS = 1 << 12
_LONGEST_NAME = 256
_MOST_KEY = 1 << 60  # larger ones can be made to share a hash, which makes a dictionary slow
_PLAIN = (str, bytes, bool, float, type(None))

PERSISTENT = "persistent id"
"""`Record.of` of a reference to something beside the pickle."""


class PickleError(ValueError):
    """A pickle that is damaged, or larger than any that is read here."""


class Global:
    """A function or class that a pickle names; it is not imported.

    Attributes:
        name: with its module, as in `collections.OrderedDict`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name


class Record:
    """A call that a pickle asks for and that is not made, with what it would do to the result.

    Attributes:
        of: the function or class with its module, `PERSISTENT`, or "" where the pickle computes what it calls.
        state: what the object would be given at the end; None if nothing.
        items: what would be put into it by key.
        elements: what would be appended to it.
    """

    __slots__ = ("arguments", "elements", "items", "of", "state")

    def __init__(self, of: str, arguments: tuple[Any, ...]):
        self.of = of
        self.arguments = arguments
        self.state: Any = None
        self.items: dict[Any, Any] = {}
        self.elements: list[Any] = []


def load(content: bytes) -> tuple[Any, list[str]]:
    """Return the value of a pickle, and the names of all functions and classes in it in the order of appearance.

    Time and memory are proportional to the length of the pickle. Values can contain themselves, and one can occur in
    many places.

    Raises:
        PickleError: it is no whole pickle, or has more than `MOST_OPERATIONS` operations.
    """
    try:
        with warnings.catch_warnings():  # of texts with escapes that are none, which damage makes
            warnings.simplefilter("ignore", DeprecationWarning)
            return _value_of(content)
    except PickleError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, struct.error):
        raise PickleError("its pickle is damaged") from None


def _value_of(content: bytes) -> tuple[Any, list[str]]:
    machine = _Machine()
    for number, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if number >= MOST_OPERATIONS:
            raise PickleError(f"its pickle has more than {MOST_OPERATIONS:,} operations")
        if operation.name == "STOP":
            return machine.stack.pop(), list(machine.named)
        machine.perform(operation.name, argument)
    raise PickleError("its pickle does not end")


_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # of Python 2, as protocol 2 writes them
_PUSHES_ARGUMENT = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
_TAKES_MARKED = {
    "POP_MARK", "LIST", "DICT", "TUPLE", "FROZENSET", "APPENDS", "ADDITEMS", "SETITEMS", "OBJ", "INST",
}  # fmt: skip
"""Operations on all values since the last mark."""


class _Machine:
    """The stack and memo of a pickle that is being read.

    Attributes:
        stack: of values since the last mark.
        marked: stacks before each mark.
        memo: values by number.
        named: each `Global` by name.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.named: dict[str, Global] = {}

    def perform(self, operation: str, argument: Any) -> None:
        values = self._since_mark() if operation in _TAKES_MARKED else []
        if not (self._make(operation, argument, values) or self._call(operation, argument, values)):
            raise PickleError(f"its pickle has the operation {operation}, which neither Python nor torch writes here")

    def _since_mark(self) -> list[Any]:
        values, self.stack = self.stack, self.marked.pop()
        return values

    def _make(self, operation: str, argument: Any, values: list[Any]) -> bool:
        """Make, move or fill a plain value; return False for other operations."""
        stack = self.stack
        match operation:
            case "PROTO" | "FRAME" | "POP_MARK":
                pass
            case _ if operation in _PUSHES_ARGUMENT:
                if isinstance(argument, int) and argument.bit_length() > _MOST_NUMBER_BITS:
                    raise PickleError(f"its pickle has a number of {argument.bit_length():,} bits")
                stack.append(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[operation])
            case "MARK":
                self.marked.append(stack)
                self.stack = []
            case "POP" if stack:
                stack.pop()
            case "POP":
                self._since_mark()
            case "DUP":
                stack.append(stack[-1])
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self.memo[len(self.memo) if argument is None else argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "EMPTY_TUPLE" | "TUPLE":
                stack.append(tuple(values))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple([stack.pop() for _ in range(int(operation[-1]))][::-1]))
            case "EMPTY_LIST" | "LIST":
                stack.append(values)
            case "EMPTY_DICT" | "DICT":
                stack.append(_put({}, values))
            case "APPEND" | "APPENDS" | "ADDITEMS":
                added = [stack.pop()] if operation == "APPEND" else values
                (stack[-1].elements if isinstance(stack[-1], Record) else _of_type(stack[-1], list)).extend(added)
            case "SETITEM" | "SETITEMS":
                added = [stack.pop(), stack.pop()][::-1] if operation == "SETITEM" else values
                _put(stack[-1].items if isinstance(stack[-1], Record) else _of_type(stack[-1], dict), added)
            case _:
                return False
        return True

    def _call(self, operation: str, argument: Any, values: list[Any]) -> bool:
        """Note what a pickle names, calls or builds; return False for other operations."""
        stack = self.stack
        match operation:
            case "GLOBAL":
                self._name(*argument.split(" ", 1))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                self._name(_of_type(module, str), _of_type(name, str))
            case "REDUCE" | "NEWOBJ" | "NEWOBJ_EX":
                keywords = stack.pop() if operation == "NEWOBJ_EX" else {}
                arguments, called = stack.pop(), stack.pop()
                self._record(called, _of_type(arguments, tuple))
                stack[-1].items = _of_type(keywords, dict)  # shared: a copy for each call would have no bound
            case "OBJ":
                called, *rest = values
                self._record(called, tuple(rest))
            case "INST":
                self._name(*argument.split(" ", 1))
                self._record(stack.pop(), tuple(values))
            case "EMPTY_SET" | "FROZENSET":
                stack.append(Record("builtins.set" if operation == "EMPTY_SET" else "builtins.frozenset", ()))
                stack[-1].elements = values
            case "BINPERSID":
                stack.append(Record(PERSISTENT, (stack.pop(),)))
            case "BUILD":
                state = stack.pop()
                _of_type(stack[-1], Record).state = state
            case _:
                return False
        return True

    def _name(self, module: str, name: str) -> None:
        full = f"{_RENAMED.get(module, module)}.{name}"
        if len(full) > _LONGEST_NAME or not full.isprintable():
            raise PickleError("its pickle is damaged: it names a function that no Python has")
        self.stack.append(self.named.setdefault(full, Global(full)))

    def _record(self, called: Any, arguments: tuple[Any, ...]) -> None:
        of = called.name if isinstance(called, Global) else ""
        if of == "copyreg._reconstructor" and arguments and isinstance(arguments[0], Global):
            of, arguments = arguments[0].name, ()
        self.stack.append(Record(of, arguments))


def _of_type(value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted):
        raise PickleError("its pickle is damaged: it puts something where it cannot go")
    return value


def _put(target: dict[Any, Any], values: list[Any]) -> dict[Any, Any]:
    """Put keys and values into a dictionary; keys that take time to hash become records, different from all else."""
    if len(values) % 2:
        raise PickleError("its pickle is damaged: a key lacks its value")
    for key, value in zip(values[::2], values[1::2], strict=True):
        small = isinstance(key, int) and abs(key) < _MOST_KEY
        target[key if small or isinstance(key, (*_PLAIN, Record, Global)) else Record("", (key,))] = value
    return target


MOST_PICKLE_BYTES = 1 << 26
_MOST_ENTRIES = 1 << 14
_ENTRY_MARK = b"PK\x01\x02"
_ARCHIVE_START = b"PK\x03\x04"
_LOCAL_HEADER_BYTES = 30
_PICKLE = "data.pkl"
_SCRIPT = "constants.pkl"
_UNREADABLE = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, OverflowError, struct.error,
)  # fmt: skip


class TorchArchive:
    """The parts of an archive.

    Attributes:
        pickle: the program that says how the saved objects are made.
    """

    def __init__(self, content: bytes):
        """Look through a file's bytes (ValueError: it is no such archive, is damaged, or claims more than it holds)."""
        if not content:
            raise ValueError("it is empty: copy it again")
        if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
            raise ValueError("it is a bare pickle or of torch before 1.6: save it again with a newer torch")
        if not content.startswith(_ARCHIVE_START):
            raise ValueError("it is not a file that torch wrote, or is damaged: copy it again")
        if content.count(_ENTRY_MARK) > _MOST_ENTRIES:  # before zipfile makes an object of each
            raise ValueError(f"its archive has more than {_MOST_ENTRIES:,} entries")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _UNREADABLE as error:
            raise ValueError(f"its archive is damaged ({error}): copy it again") from None
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        self._check_entries(len(content))
        self._root = self._only_root()
        self.pickle = self._read(_PICKLE)
        if len(self.pickle) > MOST_PICKLE_BYTES:
            raise ValueError(f"its pickle has {len(self.pickle):,} bytes, more than any network needs")
        if "byteorder" in self and self._read("byteorder") != b"little":
            raise ValueError("it was saved on a machine with another byte order: save it again on a common one")

    def __contains__(self, name: str) -> bool:
        return str(self._root / name) in self._entries

    def storage(self, key: str, size: int) -> bytes:
        """Return the bytes of a storage (ValueError: there is none, its length is not `size`, or it is damaged)."""
        name = f"data/{key}"
        if name not in self:
            raise ValueError(f"its storage {key!r} is missing")
        held = self._entries[str(self._root / name)].file_size
        if held != size:
            raise ValueError(f"its storage {key!r} should have {size:,} bytes and has {held:,}")
        return self._read(name)

    def _read(self, name: str) -> bytes:
        try:
            return self._zip.read(str(self._root / name))
        except _UNREADABLE as error:
            raise ValueError(f"its archive is damaged ({error}): copy it again") from None

    def _check_entries(self, size: int) -> None:
        """Refuse entries that could take more memory than the file, or that mean different things to other readers."""
        entries = sorted(self._zip.infolist(), key=lambda entry: entry.header_offset)
        if len(self._entries) != len(entries):
            (name, _), *_ = Counter(entry.filename for entry in entries).most_common(1)
            raise ValueError(f"its archive has the entry {name!r} twice")
        ends = [*(entry.header_offset for entry in entries[1:]), size]
        for entry, end in zip(entries, ends, strict=True):
            if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                raise ValueError(f"its archive has the compressed entry {entry.filename!r}, which torch never writes")
            if entry.header_offset < 0 or entry.header_offset + _LOCAL_HEADER_BYTES + entry.file_size > end:
                raise ValueError(f"its archive has entries that overlap ({entry.filename!r})")

    def _only_root(self) -> PurePosixPath:
        """Return the folder in the archive that holds the pickle."""
        paths = [PurePosixPath(name) for name in self._entries]
        if any(path.name == _SCRIPT for path in paths):
            raise ValueError("it is a TorchScript program, not a checkpoint: save the network's state dict instead")
        roots = [path.parent for path in paths if path.name == _PICKLE and len(path.parts) == 2]
        if len(roots) != 1:
            raise ValueError("it is a zip archive, but not one that torch wrote")
        return roots[0]
