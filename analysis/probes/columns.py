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
from typing import IO

import numpy as np

from common.user_error import UserError

CHUNK = 8192
"""Records that are copied at a time."""
_COLUMNS = 128


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of several arrays side by side, for some records.

    Attributes:
        parts: arrays of the same B records, (B, columns) float32 each.
        rows: numbers of the records that count, (N,) int64.
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

    def chunks(self, records: np.ndarray) -> Iterator[np.ndarray]:
        """Copy some of the N records, (n,) int64, a few thousand at a time; one empty chunk of none."""
        for start in range(0, max(1, len(records)), CHUNK):
            yield self.take(records[start : start + CHUNK])

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

    The files have no name, so nothing is left of them once the process has ended.
    """

    def __init__(self, folder: Path | None):
        """Keep the files on the disk of a folder; by default on that of temporary files."""
        self.folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)
        self._range: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def append(self, name: str, values: np.ndarray) -> None:
        """Add records, (n, columns) float32, to an array.

        Raises:
            UserError: the disk is full, or the folder cannot be written to.
        """
        try:
            self._append(name, values)
        except OSError as error:
            folder = self.folder or tempfile.gettempdir()
            raise UserError(
                f"what the probes read cannot be kept in {folder}: {error.strerror}: free some space, choose another "
                "--output, or keep fewer records with --max-records"
            ) from None

    def _append(self, name: str, values: np.ndarray) -> None:
        if name not in self._files:
            # Without a buffer, so that a full disk is noticed here and not as the file is closed.
            file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 (open as long as this is used)
            self._files[name] = self._open.enter_context(file)
            self._range[name] = np.full((2, values.shape[1]), [[np.inf], [-np.inf]], np.float32)
        low, high = self._range[name]
        self._range[name] = (
            np.minimum(low, values.min(axis=0, initial=np.inf)), np.maximum(high, values.max(axis=0, initial=-np.inf))
        )  # fmt: skip
        left = memoryview(np.ascontiguousarray(values, np.float32).tobytes())
        while left:
            left = left[self._files[name].write(left) :]

    def varying(self, name: str) -> np.ndarray:
        """Return which of all columns change, (all columns,) bool."""
        low, high = self._range[name]
        return high - low > 0

    def __getitem__(self, name: str) -> np.ndarray:
        """Return an array, (B, columns that change) float32."""
        file, varies = self._files[name], self.varying(name)
        records = file.seek(0, 2) // (len(varies) * np.dtype(np.float32).itemsize)
        kept = np.empty((records, int(varies.sum())), np.float32)
        file.seek(0)
        for start in range(0, records, CHUNK):
            count = min(CHUNK, records - start)
            values = np.fromfile(file, np.float32, count * len(varies)).reshape(count, -1)
            kept[start : start + count] = values[:, varies]
        return kept

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
