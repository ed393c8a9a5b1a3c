"""Concatenate batches of records into memory reserved once, so that nothing large is held twice."""

from typing import Any

import numpy as np

from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, MAY_BE_UNRECORDED, TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata
from activation_store.selection import Selection


class Gathering:
    """Columns with capacity for a known number of records, filled in order.

    The memory is reserved at once but used only as it fills, so usage follows the records kept. Tables, whose number
    of rows is not known in advance, are kept in pieces until the end.
    """

    def __init__(self, metadata: DumpMetadata, selection: Selection, capacity: int) -> None:
        self.size = 0
        self._arrays = _room(metadata, selection, capacity)
        self._pieces: dict[str, list[RaggedRows]] = {}
        self._widths = {name: len(columns) for name, columns in metadata.all_tables.items()}
        self._tables = ("Entity", "Inventory", *selection.tables)
        self._selection = selection

    def add(self, batch: Records) -> None:
        """Append some records."""
        place = slice(self.size, self.size + len(batch))
        for (field, name), room in self._arrays.items():
            value = getattr(batch, field)
            room[place] = value[name] if name else value
        tables = batch.all_tables
        for table in self._tables:
            self._pieces.setdefault(table, []).append(tables[table])
        self.size += len(batch)

    def finish(self) -> Records:
        """Return all appended records, as views of the reserved memory."""
        parts: dict[str, Any] = {"activations": {}, "columns": {}}
        for (field, name), room in self._arrays.items():
            if name:
                parts[field][name] = room[: self.size]
            else:
                parts[field] = room[: self.size]
        tables = {table: join_rows(self._pieces.pop(table, []), self._widths[table]) for table in self._tables}
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
