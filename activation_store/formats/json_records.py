"""Convert parsed JSON records one by one into the columns of `Records`, checking every value."""

from itertools import chain
from typing import Any

import numpy as np

from activation_store.columns import Column
from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, ROWS_AT_MOST, TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata
from activation_store.selection import Selection, join_rows, no_rows, tiles_shape

_INT64_BOUND = 1 << 63


class RecordError(Exception):
    """A record contradicts the dump's metadata; the message completes a sentence that names the line."""


class JsonRecords:
    """Columns with capacity for a known number of records, filled in order."""

    def __init__(self, metadata: DumpMetadata, selection: Selection, capacity: int) -> None:
        heads = len(metadata.action_heads)
        self._metadata = metadata
        self._selection = selection
        self._capacity = capacity
        self._size = 0
        self._identity = {name: np.empty(capacity, np.int64) for name in IDENTITY}
        self._floats = {name: np.full(capacity, np.nan, np.float32) for name in ("reward", "value")}
        self._action = np.empty((capacity, heads), np.int64)
        self._log_probability = np.full((capacity, heads), np.nan, np.float32)
        self._activations = {name: np.empty((capacity, metadata.layers[name]), np.float32) for name in selection.layers}
        self._columns = {
            name: np.empty(metadata.columns[name].shape(capacity), metadata.columns[name].dtype)
            for name in selection.columns
        }
        self._numbers = selection.numbers(metadata)
        self._tile = np.empty(tiles_shape(selection, capacity), np.int16)
        left_out = {name.capitalize() for name in selection.leave_out}
        self._rows: dict[str, list[np.ndarray]] = {
            name: [] for name in ("Entity", "Inventory", *selection.tables) if name not in left_out
        }

    def __len__(self) -> int:
        return self._size

    def append(self, record: dict[str, Any]) -> None:
        """Append one record.

        Raises:
            RecordError: a key is missing, a value has the wrong type, width or range, or the columns are full.
        """
        i, metadata = self._size, self._metadata
        if i == self._capacity:
            raise RecordError("there are more records than the metadata counts")
        if (policy := _get(record, "policy")) != metadata.policy:
            raise RecordError(f"policy is {str(policy)[:80]!r}, the metadata names {metadata.policy!r}")
        for name in IDENTITY:
            self._identity[name][i] = _integer(_get(record, name), name)
        heads = len(metadata.action_heads)
        for name in self._numbers:
            self._append_float(record, name, i, heads)
        self._action[i] = _integers(_get(record, "action"), heads, "action", np.int64)
        for head, index in zip(metadata.action_heads, self._action[i].tolist(), strict=True):
            if not 0 <= index < head.size:
                raise RecordError(f"action {head.name} is {index}, it has {head.size} choices")
        for name in self._selection.layers:
            self._activations[name][i] = _floats(self._layer(record, name), metadata.layers[name], name)
        for name, values in self._columns.items():
            values[i] = _column(_get(record, name), metadata.columns[name], name)
        self._append_observation(_get(record, "observation"), i)
        self._size += 1

    def finish(self) -> Records:
        """Return the appended records, as views of the columns."""
        kept = slice(self._size)
        tables = {name: self._table(name) for name in ("Entity", "Inventory", *self._selection.tables)}
        return Records(
            **{name: values[kept] for name, values in (self._identity | self._floats).items()},
            action=self._action[kept],
            log_probability=self._log_probability[kept],
            activations={name: values[kept] for name, values in self._activations.items()},
            tile=self._tile[kept],
            entity=tables.pop("Entity"),
            inventory=tables.pop("Inventory"),
            columns={name: values[kept] for name, values in self._columns.items()},
            tables=tables,
        )

    def _append_float(self, record: dict[str, Any], name: str, i: int, heads: int) -> None:
        if name == "log_probability":
            self._log_probability[i] = _floats(_get(record, name), heads, name)
        else:
            self._floats[name][i] = _floats([_get(record, name)], 1, name)[0]

    def _layer(self, record: dict[str, Any], name: str) -> Any:
        if name == self._metadata.main_layer:
            return _get(record, "activation")
        return _get(_get(record, "activations"), name)

    def _append_observation(self, observation: Any, i: int) -> None:
        if "tile" not in self._selection.leave_out:
            tiles = _rows(_get(observation, "Tile"), len(TILE_COLUMNS), "observation Tile")
            if len(tiles) != TILES_IN_VIEW:
                raise RecordError(f"observation Tile has {len(tiles)} rows instead of {TILES_IN_VIEW}")
            self._tile[i] = tiles
        for name, gathered in self._rows.items():
            width = len(self._metadata.all_tables[name])
            gathered.append(_rows(_get(observation, name), width, f"observation {name}"))
        if _get(observation, "CurrentTick") != [self._identity["tick"][i]]:
            raise RecordError("observation CurrentTick differs from tick")

    def _table(self, name: str) -> RaggedRows:
        width = len(self._metadata.all_tables[name])
        if name not in self._rows:
            return no_rows(self._size, width)
        pieces = [RaggedRows(rows, np.array([0, len(rows)])) for rows in self._rows[name][: self._size]]
        return join_rows(pieces, width)


def _get(mapping: Any, key: str) -> Any:
    if not isinstance(mapping, dict):
        raise RecordError(f"{key} should be inside a JSON object")
    if key not in mapping:
        raise RecordError(f"{key} is missing")
    return mapping[key]


def _integer(value: Any, name: str) -> int:
    if type(value) is not int or not -_INT64_BOUND <= value < _INT64_BOUND:
        raise RecordError(f"{name} is not a 64-bit integer")
    return value


def _check_list(value: Any, length: int, name: str) -> None:
    if type(value) is not list or len(value) != length:
        raise RecordError(f"{name} is not a list of {length} numbers")


def _integers(value: Any, length: int, name: str, dtype: Any) -> np.ndarray:
    _check_list(value, length, name)
    if not set(map(type, value)) <= {int}:
        raise RecordError(f"{name} holds something other than integers")
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise RecordError(f"{name} holds a number beyond {np.dtype(dtype).name}") from None


def _floats(value: Any, length: int, name: str) -> np.ndarray:
    _check_list(value, length, name)
    if not set(map(type, value)) <= {int, float}:
        raise RecordError(f"{name} holds something other than numbers")
    with np.errstate(over="ignore"):
        array = np.array(value, np.float64).astype(np.float32)
    if not np.isfinite(array).all():
        raise RecordError(f"{name} holds a number beyond float32")
    return array


def _column(value: Any, column: Column, name: str) -> Any:
    values, length = ([value], 1) if column.width is None else (value, column.width)
    if column.dtype == "bool":
        _check_list(values, length, name)
        if not set(map(type, values)) <= {bool}:
            raise RecordError(f"{name} holds something other than true and false")
        array = np.array(values, bool)
    elif column.dtype == "float32":
        array = _floats(values, length, name)
    else:
        array = _integers(values, length, name, column.dtype)
    return array[0] if column.width is None else array


def _rows(value: Any, width: int, name: str) -> np.ndarray:
    if type(value) is not list:
        raise RecordError(f"{name} is not a list of rows")
    if len(value) > ROWS_AT_MOST:
        raise RecordError(f"{name} has {len(value)} rows, more than {ROWS_AT_MOST}")
    if not (set(map(type, value)) <= {list} and set(map(len, value)) <= {width}):
        raise RecordError(f"a row of {name} is not a list of {width} numbers")
    flat = list(chain.from_iterable(value))
    return _integers(flat, len(flat), name, np.int16).reshape(-1, width)
