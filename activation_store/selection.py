"""Which records, layers and columns to read; decided from a few integers before anything large is read.

Neighbouring ticks of a life are nearly identical, so that most of them can be left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.lives import Life
from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, MAY_BE_UNRECORDED, TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata
from common import argument_checks
from common.argument_checks import did_you_mean
from common.user_error import UserError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Subsample:
    """Keeps one in `every` records of each life, in order of ticks.

    The first record kept is drawn for each life among its first `every` records after `skip_first`. So every record
    after the skipped ones is equally likely to be kept, and different lives keep different ticks. The draw depends only
    on the seed and the life, not on what else is read or in which order.
    """

    every: int = 1  # keep one record in this many, from 1 (all)
    skip_first: int = 0  # records at the start of each life that are never kept, from 0
    seed: int = 0  # of the draws, from 0 to 2**32 - 1

    def check(self) -> None:
        """Refuse invalid values."""
        if self.every < 1:
            raise UserError(f"--subsample is {self.every}: must be 1 (keep every record) or more")
        argument_checks.check(
            self, skip_first=argument_checks.at_least(self.skip_first, 0), seed=argument_checks.seed_value(self.seed)
        )

    @property
    def keeps_all(self) -> bool:
        """Whether all records are kept."""
        return self.every == 1 and self.skip_first == 0

    def capacity(self, records: int, lives: int) -> int:
        """Return an upper bound on the records kept, given numbers of records and lives."""
        return min(records, records // self.every + lives)

    def first_kept(self, lives: np.ndarray) -> np.ndarray:
        """Draw the first record of each life that is kept, counted from 0 in its life.

        Args:
            lives: slot, agent and episode of each life, (L, 3) int64.

        Returns:
            (L,) int64; a life shorter than that keeps no records.
        """
        state = np.full(len(lives), self.seed, np.uint64)
        for column in np.asarray(lives, np.int64).T:
            state = _mixed(state ^ column.astype(np.uint64))
        return self.skip_first + (state % np.uint64(self.every)).astype(np.int64)

    def keep(self, rank: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Return which records are kept, (B,) bool.

        Args:
            rank: of each record in its life, from 0, (B,) int64.
            first: of its life, from `first_kept`, (B,) int64.
        """
        return (rank >= first) & ((rank - first) % self.every == 0)

    def in_words(self) -> str:
        """Describe in words which records of each life are kept."""
        skipped = f"{self.skip_first} ticks" if self.skip_first > 1 else "tick"
        after = f" after its first {skipped}" if self.skip_first else ""
        if self.every == 1:
            return f"all of each life{after}"
        return f"one in {self.every} of each life, from a random tick on{after}"


ALL_RECORDS = Subsample()


def _mixed(state: np.ndarray) -> np.ndarray:
    """Scramble each number, uint64 to uint64: one step of splitmix64 (Steele, Lea and Flood 2014)."""
    state = state + _GOLDEN  # overflow is meant to wrap around
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLIERS[0]
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLIERS[1]
    return state ^ (state >> np.uint64(31))


OBSERVATIONS = ("tile", "entity", "inventory")
CAN_BE_LEFT_OUT = (*OBSERVATIONS, "tables", *MAY_BE_UNRECORDED)


@dataclass(frozen=True)
class Selection:
    """What to read of a dump."""

    layers: tuple[str, ...]
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    leave_out: frozenset[str] = frozenset()
    """Fields not to read: `OBSERVATIONS` are returned without rows, `MAY_BE_UNRECORDED` as NaN."""
    subsample: Subsample = ALL_RECORDS
    episodes: frozenset[int] | None = None  # to keep; None for all
    lives: frozenset[Life] | None = None  # to keep; None for all

    def wants_episode(self, episode: int) -> bool:
        """Return whether any record of this episode may be kept."""
        return self.episodes is None or episode in self.episodes

    def wants(self, life: Life) -> bool:
        """Return whether any record of this life may be kept."""
        return (self.lives is None or life in self.lives) and self.wants_episode(life[2])

    def numbers(self, metadata: DumpMetadata) -> list[str]:
        """Return the fields of `MAY_BE_UNRECORDED` that are recorded and selected."""
        return [name for name in MAY_BE_UNRECORDED if name not in {*metadata.unrecorded, *self.leave_out}]

    @property
    def read_tables(self) -> list[str]:
        """The tables whose rows are read, by their names in the game's observation."""
        left_out = {name.capitalize() for name in self.leave_out}
        return [name for name in ("Entity", "Inventory", *self.tables) if name not in left_out]

    def capacity(self, metadata: DumpMetadata) -> int:
        """Return an upper bound on the number of records kept."""
        return self.subsample.capacity(metadata.records, metadata.lives)

    def keep(self, lives: np.ndarray, inverse: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """Return which records are kept, (B,) bool.

        Args:
            lives: the distinct lives, (L, 3).
            inverse: each record's row in `lives`, (B,).
            rank: of each record in its life, from 0, (B,).
        """
        wanted = np.array([self.wants((life[0], life[1], life[2])) for life in lives.tolist()], bool)
        return wanted[inverse] & self.subsample.keep(rank, self.subsample.first_kept(lives)[inverse])


def select(
    folder: Path,
    metadata: DumpMetadata,
    *,
    layers: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    leave_out: Iterable[str] = (),
    subsample: Subsample = ALL_RECORDS,
    episodes: Iterable[int] | None = None,
    lives: Iterable[Sequence[int]] | None = None,
) -> Selection:
    """Check a selection against the contents of a dump; `None` means all.

    Raises:
        UserError: `subsample` is invalid, or the dump lacks a layer or a column.
        ValueError: `leave_out` names something that is always read.
    """
    subsample.check()
    if unknown := set(leave_out) - set(CAN_BE_LEFT_OUT):
        raise ValueError(f"{', '.join(unknown)} cannot be left out")
    chosen_layers = tuple(metadata.layers if layers is None else layers)
    chosen_columns = tuple(metadata.columns if columns is None else columns)
    for kind, chosen, there in (
        ("layer", chosen_layers, tuple(metadata.layers)),
        ("column", chosen_columns, tuple(metadata.columns)),
    ):
        for name in chosen:
            if name not in there:
                only = f"{', '.join(there) or 'none'}{did_you_mean(name, there)}"
                raise UserError(f"{folder} holds no {kind} {name!r}, only: {only}")
    return Selection(
        layers=chosen_layers,
        columns=chosen_columns,
        tables=() if "tables" in leave_out else tuple(metadata.tables),
        leave_out=frozenset(leave_out) - {"tables"},
        subsample=subsample,
        episodes=None if episodes is None else frozenset(episodes),
        lives=None if lives is None else frozenset((int(a), int(b), int(c)) for a, b, c in lives),
    )


class Gathering:
    """Columns with capacity for a known number of records, filled in order.

    The memory is reserved at once but used only as it fills, so usage follows the records kept. Tables, whose number
    of rows is not known in advance, are kept in pieces until the end.

    Attributes:
        size: records so far.
        arrays: reserved memory, by a field of `Records` and, in a field of several arrays, the array's name; else "".
        pieces: rows of each table so far.
    """

    def __init__(self, metadata: DumpMetadata, selection: Selection, capacity: int) -> None:
        self.size = 0
        self.arrays = _room(metadata, selection, capacity)
        self.pieces: dict[str, list[RaggedRows]] = {}
        self._widths = {name: len(columns) for name, columns in metadata.all_tables.items()}
        self._tables = ("Entity", "Inventory", *selection.tables)

    def add(self, batch: Records) -> None:
        """Append some records."""
        place = slice(self.size, self.size + len(batch))
        for (field, name), room in self.arrays.items():
            value = getattr(batch, field)
            room[place] = value[name] if name else value
        tables = batch.all_tables
        for table in self._tables:
            self.pieces.setdefault(table, []).append(tables[table])
        self.size += len(batch)

    def finish(self) -> Records:
        """Return all appended records, as views of the reserved memory."""
        parts: dict[str, Any] = {"activations": {}, "columns": {}}
        for (field, name), room in self.arrays.items():
            if name:
                parts[field][name] = room[: self.size]
            else:
                parts[field] = room[: self.size]
        tables = {table: join_rows(self.pieces.pop(table, []), self._widths[table]) for table in self._tables}
        return Records(**parts, entity=tables.pop("Entity"), inventory=tables.pop("Inventory"), tables=tables)


def join_rows(pieces: list[RaggedRows], width: int) -> RaggedRows:
    """Return the rows of several batches of records as one table with `width` columns."""
    values = np.concatenate([np.empty((0, width), np.int16), *(piece.values for piece in pieces)])
    counts = np.concatenate([np.empty(0, np.int64), *(piece.counts for piece in pieces)])
    return RaggedRows(values, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def tiles_shape(selection: Selection, records: int) -> tuple[int, int, int]:
    """Return the shape of `Records.tile` for this number of records, without rows if it is left out."""
    return records, 0 if "tile" in selection.leave_out else TILES_IN_VIEW, len(TILE_COLUMNS)


def no_rows(records: int, width: int) -> RaggedRows:
    """Return a table without rows for any record."""
    return RaggedRows(np.empty((0, width), np.int16), np.zeros(records + 1, np.int64))


def _room(metadata: DumpMetadata, selection: Selection, capacity: int) -> dict[tuple[str, str], np.ndarray]:
    heads = len(metadata.action_heads)
    room = {(name, ""): np.empty(capacity, np.int64) for name in IDENTITY}
    for name in MAY_BE_UNRECORDED:
        room[name, ""] = np.empty((capacity, heads) if name == "log_probability" else capacity, np.float32)
    room["action", ""] = np.empty((capacity, heads), np.int64)
    room["tile", ""] = np.empty(tiles_shape(selection, capacity), np.int16)
    for name in selection.layers:
        room["activations", name] = np.empty((capacity, metadata.layers[name]), np.float32)
    for name in selection.columns:
        column = metadata.columns[name]
        room["columns", name] = np.empty(column.shape(capacity), column.dtype)
    return room
