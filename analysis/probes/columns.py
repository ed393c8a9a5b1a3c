"""What probes read: arrays side by side, of some records, from which parts are copied only as they are needed.

The inputs of a dump can be larger than memory, and so can copies of one of them: of some records, beside a memory, in
double precision.
"""

import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np

from common.files import NO_ROOM
from common.user_error import UserError

CHUNK = 8192
"""Records that are copied at a time."""
_COLUMNS = 128


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of several arrays side by side, for some records.

    Attributes:
        parts: arrays of the same B records, (B, columns) float32 each.
        rows: which of the B records these are, (N,) int64.
    """

    parts: tuple[np.ndarray, ...]
    rows: np.ndarray

    @staticmethod
    def of(x: "np.ndarray | Columns") -> "Columns":
        """Return all records of an array, (B, columns), or what is given if it is some already."""
        return x if isinstance(x, Columns) else Columns((x,), np.arange(len(x)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """How many columns there are."""
        return sum(part.shape[1] for part in self.parts)

    def beside(self, *others: np.ndarray) -> "Columns":
        """Return these columns and, after them, those of other arrays of all B records."""
        return Columns((*self.parts, *others), self.rows)

    def take(self, records: np.ndarray) -> np.ndarray:
        """Copy some of the N records, (n,) int64, to (n, width)."""
        rows = self.rows[records]
        return np.concatenate([part[rows] for part in self.parts], axis=1)

    def chunks(self, records: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Copy some of the N records, (n,) int64, a few thousand at a time; yield which of the n, and their columns."""
        for start in range(0, len(records), CHUNK):
            here = slice(start, start + CHUNK)
            yield here, self.take(records[here])

    def by_column(self, records: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Copy some of the N records, (n,) int64, a few columns at a time; yield which, and (n, some of a part)."""
        rows, first = self.rows[records], 0
        for part in self.parts:
            width = part.shape[1]
            for start in range(0, max(1, width), _COLUMNS):
                stop = min(start + _COLUMNS, width)
                yield slice(first + start, first + stop), part[rows, start:stop]
            first += width


class StoredInputs(Mapping[str, np.ndarray]):
    """Arrays by name, kept on disk and read when one is asked for, without columns that never change.

    The files have no name, so nothing is left of them once they are closed, at the end of the block or of the process.
    """

    def __init__(self, folder: Path | None = None):
        """Keep the files on the disk of a folder; by default on that of temporary files."""
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self._records: dict[str, int] = {}
        self._range: dict[str, np.ndarray] = {}  # least and greatest value of each column, (2, all columns)
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def append(self, name: str, values: np.ndarray) -> None:
        """Add records, (n, columns) float32, to an array.

        Raises:
            UserError: the disk is full, or the folder cannot be written to.
        """
        try:
            self._append(name, np.ascontiguousarray(values, np.float32))
        except OSError as error:
            what = f"what the probes read cannot be kept in {self._folder or tempfile.gettempdir()}: {error.strerror}"
            space = ": free some space, choose another --output, or keep fewer records with --max-records"
            raise UserError(what + space * (error.errno in NO_ROOM)) from None

    def _append(self, name: str, values: np.ndarray) -> None:
        if name not in self._files:
            # Without a buffer, so that a full disk is noticed here and not as the file is closed.
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 (open as long as this is used)
            self._files[name] = self._open.enter_context(file)
            self._records[name] = 0
            self._range[name] = np.full((2, values.shape[1]), [[np.inf], [-np.inf]], np.float32)
        left = memoryview(values.tobytes())
        while left:
            left = left[self._files[name].write(left) :]
        if len(values):
            low, high = self._range[name]
            self._range[name] = np.stack([np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))])
            self._records[name] += len(values)

    def varying(self, name: str) -> np.ndarray:
        """Return which of all columns change, (all columns,) bool."""
        low, high = self._range[name]
        return high > low

    def __getitem__(self, name: str) -> np.ndarray:
        """Return an array, (B, columns that change) float32."""
        file, varies, records = self._files[name], self.varying(name), self._records[name]
        kept = np.empty((records, int(varies.sum())), np.float32)
        file.seek(0)
        for start in range(0, records, CHUNK):
            here = kept[start : start + CHUNK]
            here[:] = np.fromfile(file, np.float32, len(here) * len(varies)).reshape(len(here), len(varies))[:, varies]
        return kept

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
