"""The one way this project puts an artefact on disk: whole or not at all, and with a hash that proves it."""

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from common.user_error import UserError

PARTIAL_SUFFIX = ".partial"
SUMS_FILE = "SHA256SUMS"
"""Holds the hashes of files beside it, as `sha256sum --check` reads them."""
_MOST_SUMS_BYTES = 1 << 20
_HASH_BLOCK_BYTES = 1 << 18
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}  # some network file systems have none
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Numbers of errors that mean a full disk."""
_written: set[Path] = set()


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Hand out a temporary path beside `path` for a library that opens files itself; it takes its name at the end.

    It does so only once the block ends without an exception. The bytes are flushed to the disk before the rename and
    the folder after it, so a kill at any moment leaves either the old file or the new one. On an exception the
    temporary file is removed.

    Raises:
        UserError: the folder cannot be made or written to, or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        lock, name = _temporary(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {_obstacle(error)}") from None
    try:
        with full_disk_named(path):
            yield Path(name)
            umask = os.umask(0)
            os.umask(umask)
            sync(Path(name), 0o666 & ~umask)
            Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)
    sync(path.parent)
    _written.add(path)


def has_written() -> bool:
    """Return whether this process has written any file."""
    return bool(_written)


def _temporary(path: Path) -> tuple[int, str]:
    """Make a temporary file beside `path`; return a descriptor that locks it for as long as it is open, and its name.

    The lock ends with the process, so that `_remove_leftovers` of another one sees whether somebody still writes.
    """
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PARTIAL_SUFFIX, dir=path.parent)
        if _lock(descriptor) is not False and os.path.lexists(name):
            return descriptor, name
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files that killed processes left beside `path` when they wrote it."""
    with os.scandir(path.parent) as places:
        names = [place.name for place in places if is_leftover(Path(place.name), path.name)]
    for name in names:
        with contextlib.suppress(OSError):  # gone meanwhile, or of somebody else
            descriptor = os.open(path.parent / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if _lock(descriptor):
                    (path.parent / name).unlink()
            finally:
                os.close(descriptor)


def is_leftover(path: Path, name: str) -> bool:
    """Return whether a path is a temporary file that stood for a file of some name."""
    return re.fullmatch(re.escape(f".{name}.") + "[a-z0-9_]{8}" + re.escape(PARTIAL_SUFFIX), path.name) is not None


def _lock(descriptor: int) -> bool | None:
    """Lock an open file, and return whether that worked; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its name only once the block ends without an exception.

    Raises:
        UserError: as `atomic_path`.
    """
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        yield file


@contextlib.contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turn a full disk, or a file that may not grow, into a `UserError` that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise UserError(f"{path} cannot be written: {error.strerror}") from error
        raise


class HashedFile:
    """A binary file that is only ever appended to, and knows its SHA-256 and size so far.

    Attributes:
        bytes: written so far.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        """Append to `file`, which stays its opener's to close."""
        self._file = file
        self._digest = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        """Of all that was written, 64 hexadecimal digits."""
        return self._digest.hexdigest()

    def write(self, content: bytes | memoryview) -> int:
        """Append some bytes and return how many."""
        self._file.write(content)
        self._digest.update(content)
        self.bytes += len(content)
        return len(content)

    def tell(self) -> int:
        """Return where the next byte goes."""
        return self.bytes

    def flush(self) -> None:
        """Do nothing: `atomic_file` flushes in the end."""

    def close(self) -> None:
        """Do nothing: the opener closes."""


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Keep other processes that would lock the same folder out; the lock ends with the process, however it ends.

    Yields:
        Whether it is locked: False where the file system has no locks.

    Raises:
        UserError: another process has locked it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        locked = _lock(descriptor)
        if locked is False:
            raise UserError(f"another process is writing to {folder}: wait for it, or choose another folder")
        yield bool(locked)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, if it is not there (UserError: it cannot be made or written to)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be made: {_obstacle(error)}") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"the folder {folder} cannot be written to: permission denied")


def _obstacle(error: OSError) -> str | None:
    """Return why a folder could not be made; the system says "File exists" of a link that leads nowhere, too."""
    if not isinstance(error, FileExistsError):
        return error.strerror
    place = Path(error.filename)
    if not place.is_symlink():
        return f"{place} is not a folder"
    return f"{place} is a link to {place.readlink()}, which is {'no folder' if place.exists() else 'not there'}"


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False where it cannot be one, such as a name that is too long."""
    try:
        return path.is_dir()
    except OSError:
        return False


def visible(folder: Path, pattern: str) -> list[Path]:
    """Return what a folder holds under names of a pattern, sorted, without hidden files.

    Those are of the system, such as `._x.safetensors`, which macOS puts beside a copy of `x.safetensors`, or
    temporary.
    """
    return sorted(path for path in folder.glob(pattern) if not is_hidden(path.relative_to(folder)))


def is_hidden(path: Path) -> bool:
    """Return whether the name of a file, or of a folder above it, begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def free_bytes(folder: Path) -> int:
    """Return how much room there is for a folder, which need not exist yet."""
    existing = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    return shutil.disk_usage(existing).free


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write `content` to `path` as UTF-8, whole or not at all; of paths that are not, odd bytes become escapes."""
    write_bytes(path, content.encode(errors="backslashreplace"))


def as_json(content: object) -> bytes:
    """Return `content` as indented JSON; data classes, paths' strings and numpy values are understood.

    Paths that are not UTF-8 are written with escapes, `caf\\xe9`.
    """
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    try:
        return orjson.dumps(content, option=option)
    except TypeError:
        return orjson.dumps(in_utf_8(content), option=option)


def in_utf_8(content: Any) -> Any:
    """Return JSON's values with escapes in place of bytes that paths hold and texts cannot."""
    if isinstance(content, str):
        return os.fsencode(content).decode(errors="backslashreplace")
    if isinstance(content, dict):
        return {in_utf_8(key): in_utf_8(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [in_utf_8(value) for value in content]
    return content


def write_json(path: Path, content: object) -> None:
    """Write what `as_json` returns."""
    write_bytes(path, as_json(content))


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[io.FileIO]:
    """Open a file for reading, without a buffer, in a block that does nothing but read it.

    Raises:
        UserError: the file is missing, no plain file (opening a named pipe would wait for a writer), or unreadable.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{path} is not a plain file")
            yield file
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        if "\0" in str(path):
            raise UserError(f"{path} is not a valid path: it contains a null character") from None
        raise


@contextlib.contextmanager
def open_to_append(path: Path) -> Iterator[io.FileIO]:
    """Open a file to append to it, without a buffer; it is made if there is none.

    Raises:
        UserError: it is not a plain file (opening a named pipe would wait for a reader), cannot be opened, or the disk
            is full.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        reason = "it is not a plain file" if error.errno == errno.ENXIO else error.strerror  # a pipe that nobody reads
        raise UserError(f"{path} cannot be written: {reason}") from None
    with os.fdopen(descriptor, "ab", buffering=0) as file, full_disk_named(path):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserError(f"{path} cannot be written: it is not a plain file")
        yield file


def append_bytes(path: Path, content: bytes, begin: bool = False, sync: bool = False) -> None:
    """Append `content` to a file.

    Args:
        begin: whether to drop first what it holds.
        sync: whether to wait until it is on the disk.

    Raises:
        UserError: as `open_to_append`.
    """
    with open_to_append(path) as file:
        if begin:
            file.truncate(0)
        rest = memoryview(content)
        while rest:  # a write may be cut short, and then the next one says why
            rest = rest[file.write(rest) :]
        if sync:
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[bytes]:
    """Read the lines of a file, with their ends; [] if there is no file.

    Raises:
        UserError: as `open_file`, except for a missing file.
    """
    return read_bytes(path).splitlines(keepends=True) if os.path.lexists(path) else []


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Read a whole file (UserError: as `open_file`, it has more than `most` bytes, or it does not fit into memory)."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise UserError(f"{path} has {size:,} bytes: files of its kind have at most {most:,}")
        try:
            return file.read()
        except MemoryError:
            raise UserError(f"{path} does not fit into memory: {size:,} bytes") from None


def read_json(path: Path, most: int | None = None) -> object:
    """Read a JSON file (UserError: as `read_bytes`, or it is not JSON)."""
    try:
        return orjson.loads(read_bytes(path, most))
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON ({error}): it is damaged or of another kind") from None


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with a JSON object on each line; a last line that a kill cut short is passed over.

    Raises:
        UserError: as `read_bytes`; or a line is no JSON object.
    """
    objects = []
    for number, line in enumerate(read_bytes(path).splitlines(keepends=True), 1):
        if line.endswith(b"\n"):
            try:
                objects.append(orjson.loads(line))
            except orjson.JSONDecodeError as error:
                raise UserError(f"{path} is damaged: line {number} is not JSON ({error})") from None
            if not isinstance(objects[-1], dict):
                raise UserError(f"{path} is damaged: line {number} is not a JSON object")
    return objects


def sha256(path: Path, report: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file's bytes as 64 hexadecimal digits; `report` gets the number of bytes read so far.

    Raises:
        UserError: as `open_file`.
    """
    digest, done = hashlib.sha256(), 0
    block = memoryview(bytearray(_HASH_BLOCK_BYTES))  # one for all: fresh memory costs more than the digest
    with open_file(path) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
            done += count
            if report:
                report(done)
    return digest.hexdigest()


def write_sums(folder: Path, names: Sequence[str]) -> None:
    """Put files of a folder on the disk, and then their hashes, for `sums_hold`."""
    for name in names:
        sync(folder / name)
    write_bytes(folder / SUMS_FILE, _sums(folder, names))


def sums_hold(folder: Path, names: Sequence[str]) -> bool:
    """Return whether files are what they were when `write_sums` was called with the same names."""
    try:
        return read_bytes(folder / SUMS_FILE, _MOST_SUMS_BYTES) == _sums(folder, names)
    except UserError:  # missing, cut off or unreadable
        return False


def _sums(folder: Path, names: Sequence[str]) -> bytes:
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in names).encode()


def sync(path: Path, mode: int | None = None) -> None:
    """Make a file, or renames inside a folder, survive a power cut; `mode` sets who may read and write it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
