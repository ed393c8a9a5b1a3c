"""Find the pickle and the storages in the zip archive that torch writes, without reading more than the file holds."""

import io
import struct
import zipfile
from collections import Counter
from pathlib import PurePosixPath

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
        _check_start(content)
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


def _check_start(content: bytes) -> None:
    if content.startswith(_ARCHIVE_START):
        return
    if not content:
        raise ValueError("it is empty: copy it again")
    if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        raise ValueError("it is a bare pickle or of torch before 1.6: save it again with a newer torch")
    raise ValueError("it is not a file that torch wrote, or is damaged: copy it again")
