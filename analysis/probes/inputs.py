"""What a probe reads: the layers of a memory and the baselines that it is compared with, as arrays side by side.

From them, parts of some records are copied only as they are needed: the inputs of a dump can be larger than memory, and
so can copies of one of them: of some records, beside a memory, in double precision.
"""

import re
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Literal, Self

import numpy as np

from activation_store.layers import (
    ACTION_DECODER,
    ENCODER_OUTPUT,
    LSTM_CELL,
    LSTM_HIDDEN,
    SEMANTIC_CODE,
    SEMANTIC_PLANE,
    UNTRAINED,
)
from activation_store.schema import DumpMetadata
from common.files import NO_ROOM
from common.user_error import UserError

CHUNK = 8192
"""Records that are copied at a time."""
_COLUMNS = 128


@dataclass(frozen=True)
class Input:
    """One thing that a probe reads."""

    name: str
    kind: Literal["memory", "baseline"]
    """Memory, whose advantage is measured, or baseline, which holds nothing that a memory was trained to keep."""
    title: str
    layers: tuple[str, ...] = ()  # of the dump that it is made of; none if it is made of observations alone
    observations: int = 1  # how many, the present one included, of a history; 1 for everything else

    @property
    def as_observations(self) -> int:
        """Observations in a history that takes as much memory."""
        return _TRACES_AS_OBSERVATIONS if self.name == TRACES else self.observations


OBSERVATION, HISTORY, TRACES, RESERVOIR = "observation", "history", "traces", "reservoir"
_TRACES_AS_OBSERVATIONS = 4
_HISTORY = re.compile(rf"{HISTORY}_(\d+)")
_CHECKPOINT = re.compile(rf"steps_(\d+)_({LSTM_HIDDEN}|{LSTM_CELL})")


_MEMORIES = (
    Input(LSTM_HIDDEN, "memory", "hidden state", (LSTM_HIDDEN,)),
    Input(LSTM_CELL, "memory", "cell state", (LSTM_CELL,)),
    Input(SEMANTIC_PLANE, "memory", "semantic plane", (SEMANTIC_PLANE,)),
    Input(SEMANTIC_CODE, "memory", "semantic code", (SEMANTIC_CODE,)),
    Input(ACTION_DECODER, "memory", "decoder input", (ACTION_DECODER,)),
)
_BASELINES = (
    Input(ENCODER_OUTPUT, "baseline", "encoder output", (ENCODER_OUTPUT,)),
    Input(OBSERVATION, "baseline", "observation"),
    Input(HISTORY, "baseline", "one for each number of observations"),
    Input(TRACES, "baseline", "traces of observations"),
    Input(RESERVOIR, "baseline", "reservoir on encoder", (ENCODER_OUTPUT,)),
    Input(UNTRAINED, "baseline", "untrained memory", (f"{UNTRAINED}_{LSTM_HIDDEN}", f"{UNTRAINED}_{LSTM_CELL}")),
)
_KNOWN = {source.name: source for source in (*_MEMORIES, *_BASELINES)}
NAMES = tuple(_KNOWN)
"""What `--inputs` takes, in the order of tables."""

MEMORIES = tuple(source.name for source in _MEMORIES)


def input_named(name: str) -> Input:
    """Return the input of a name: one of `NAMES`, history_N or a checkpoint's layer such as steps_750000_lstm_cell.

    The memory of a checkpoint that watched (`--shadow-networks`) is a baseline: that of the same network with less
    training, on the same episodes. A history is the present observation and a digest of those before it, N in all.
    """
    if past := _HISTORY.fullmatch(name):
        return Input(name, "baseline", f"last {past[1]} observations", (), int(past[1]))
    if earlier := _CHECKPOINT.fullmatch(name):
        state = "hidden state" if earlier[2] == LSTM_HIDDEN else "cell state"
        return Input(name, "baseline", f"{state} after {int(earlier[1]):,} steps", (name,))
    return _KNOWN[name]


def inputs_named(names: Iterable[str], histories: Sequence[int]) -> tuple[Input, ...]:
    """Return the inputs of the given names, in the order of `NAMES`; all of them for `all`.

    Args:
        names: of inputs, or of a checkpoint's layers such as steps_750000_lstm_cell, which `all` leaves out.
        histories: numbers of observations; each gives one input for the name `history`.

    Raises:
        UserError: there is no such input.
    """
    names = list(names)
    checkpoints = {name: input_named(name) for name in names if _CHECKPOINT.fullmatch(name)}
    wanted = set(names) - set(checkpoints)
    wanted = (wanted - {"all"}) | set(NAMES) if "all" in wanted else wanted
    if unknown := sorted(wanted - set(NAMES)):
        raise UserError(f"there is no input {unknown[0]!r}; there are: {', '.join(NAMES)}, or all")
    if not wanted and not checkpoints:
        raise UserError(f"no input is named; there are: {', '.join(NAMES)}, or all")
    past = [input_named(f"{HISTORY}_{observations}") for observations in sorted(histories)]
    groups = [past if name == HISTORY else [_KNOWN[name]] for name in NAMES if name in wanted]
    return (*chain.from_iterable(groups), *checkpoints.values())


def recorded(inputs: Iterable[Input], metadata: DumpMetadata) -> tuple[Input, ...]:
    """Return the inputs that a dump has the layers of; an untrained memory may have hidden states only."""
    there = set(metadata.layers)
    has_cells = any(layer == LSTM_CELL or layer.endswith(f"_{LSTM_CELL}") for layer in there)
    fitted = (
        replace(source, layers=source.layers[:1]) if source.name == UNTRAINED and not has_cells else source
        for source in inputs
    )
    return tuple(source for source in fitted if set(source.layers) <= there)


def title_of(name: str) -> str:
    """Return an input's title in figures."""
    return input_named(name).title


def observations_of(name: str) -> int | None:
    """Return the number of observations in a history, by its name; None for other inputs."""
    match = _HISTORY.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of several arrays side by side, for some records."""

    parts: tuple[np.ndarray, ...]  # arrays of the same B records, (B, columns) float32 each
    rows: np.ndarray  # which of the B records these are, (N,) int64

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
        values = np.ascontiguousarray(values, np.float32)
        try:
            if name not in self._files:
                # Without a buffer, so that a full disk is noticed here and not as the file is closed.
                file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 (open while this is used)
                self._files[name] = self._open.enter_context(file)
                self._records[name] = 0
                self._range[name] = np.full((2, values.shape[1]), [[np.inf], [-np.inf]], np.float32)
            left = memoryview(values.tobytes())
            while left:
                left = left[self._files[name].write(left) :]
        except OSError as error:
            what = f"what the probes read cannot be kept in {self._folder or tempfile.gettempdir()}: {error.strerror}"
            space = ": free some space, choose another --output, or keep fewer records with --max-records"
            raise UserError(what + space * (error.errno in NO_ROOM)) from None
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
