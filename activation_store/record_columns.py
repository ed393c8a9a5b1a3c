"""Turn parsed JSON records, one by one, into the columns of `Records`; every value is checked on the way."""

from itertools import chain
from typing import Any

import numpy as np

from activation_store.schema import TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata, RaggedRows, Records

_INTEGERS = ("step", "env_id", "agent_id", "episode", "tick")
_FLOATS = ("reward", "value")
_TABLE_CHUNK = 4096
_INT64_BOUND = 1 << 63


class RecordError(Exception):
    """A record is not what the dump's metadata promises; the message completes a sentence that names the line."""


class RecordColumns:
    """Columns with room for a known number of records, filled in order.

    The room is reserved at once and touched only as it fills, so memory follows the records that are kept; the two
    tables, whose rows no count foretells, grow by chunks.
    """

    def __init__(self, metadata: DumpMetadata, layers: tuple[str, ...], capacity: int) -> None:
        heads = len(metadata.action_heads)
        self._metadata = metadata
        self._layers = layers
        self._capacity = capacity
        self._size = 0
        self._scalars = {name: np.empty(capacity, np.int64) for name in _INTEGERS}
        self._scalars |= {name: np.empty(capacity, np.float32) for name in _FLOATS}
        self._action = np.empty((capacity, heads), np.int64)
        self._log_probability = np.empty((capacity, heads), np.float32)
        self._activations = {name: np.empty((capacity, metadata.layers[name]), np.float32) for name in layers}
        self._tile = np.empty((capacity, TILES_IN_VIEW, len(TILE_COLUMNS)), np.int16)
        self._entity = _Table(len(metadata.entity_columns))
        self._inventory = _Table(len(metadata.inventory_columns))

    def append(self, record: dict[str, Any]) -> None:
        """Take in one record.

        Raises:
            RecordError: a key is missing, a value has the wrong type, width or range, or the columns are full.
        """
        i, metadata = self._size, self._metadata
        if i == self._capacity:
            raise RecordError("there are more records than the metadata counts")
        if (policy := _get(record, "policy")) != metadata.policy:
            raise RecordError(f"policy is {str(policy)[:80]!r}, the metadata names {metadata.policy!r}")
        for name in _INTEGERS:
            self._scalars[name][i] = _integer(_get(record, name), name)
        for name in _FLOATS:
            self._scalars[name][i] = _floats([_get(record, name)], 1, name)[0]
        heads = len(metadata.action_heads)
        self._action[i] = _integers(_get(record, "action"), heads, "action", np.int64)
        for head, index in zip(metadata.action_heads, self._action[i].tolist(), strict=True):
            if not 0 <= index < head.size:
                raise RecordError(f"action {head.name} is {index}, it has {head.size} choices")
        self._log_probability[i] = _floats(_get(record, "log_probability"), heads, "log_probability")
        for name in self._layers:
            self._activations[name][i] = _floats(self._layer(record, name), metadata.layers[name], name)
        self._append_observation(_get(record, "observation"), i)
        self._size += 1

    def finish(self) -> Records:
        """Return the records taken in, as views of the columns."""
        kept = slice(self._size)
        return Records(
            **{name: values[kept] for name, values in self._scalars.items()},
            action=self._action[kept],
            log_probability=self._log_probability[kept],
            activations={name: values[kept] for name, values in self._activations.items()},
            tile=self._tile[kept],
            entity=self._entity.finish(),
            inventory=self._inventory.finish(),
        )

    def _layer(self, record: dict[str, Any], name: str) -> Any:
        if name == self._metadata.main_layer:
            return _get(record, "activation")
        return _get(_get(record, "activations"), name)

    def _append_observation(self, observation: Any, i: int) -> None:
        tiles = _rows(_get(observation, "Tile"), len(TILE_COLUMNS), "observation Tile")
        if len(tiles) != TILES_IN_VIEW:
            raise RecordError(f"observation Tile has {len(tiles)} rows instead of {TILES_IN_VIEW}")
        self._tile[i] = tiles
        self._entity.append(_rows(_get(observation, "Entity"), self._entity.width, "observation Entity"))
        self._inventory.append(_rows(_get(observation, "Inventory"), self._inventory.width, "observation Inventory"))
        if _get(observation, "CurrentTick") != [self._scalars["tick"][i]]:
            raise RecordError("observation CurrentTick differs from tick")


class _Table:
    """Rows of a ragged table, gathered into larger chunks as they come."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._recent: list[np.ndarray] = []
        self._chunks: list[np.ndarray] = []
        self._count_chunks: list[np.ndarray] = []

    def append(self, rows: np.ndarray) -> None:
        self._recent.append(rows)
        if len(self._recent) == _TABLE_CHUNK:
            self._gather()

    def finish(self) -> RaggedRows:
        self._gather()
        counts = np.concatenate(self._count_chunks)
        return RaggedRows(np.concatenate(self._chunks), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def _gather(self) -> None:
        self._chunks.append(np.concatenate([np.empty((0, self.width), np.int16), *self._recent]))
        self._count_chunks.append(np.array([len(rows) for rows in self._recent], np.int64))
        self._recent = []


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


def _integers(value: Any, length: int, name: str, dtype: type[np.integer[Any]]) -> np.ndarray:
    _check_list(value, length, name)
    if not set(map(type, value)) <= {int}:
        raise RecordError(f"{name} holds something else than integers")
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise RecordError(f"{name} holds a number beyond {np.dtype(dtype).name}") from None


def _floats(value: Any, length: int, name: str) -> np.ndarray:
    _check_list(value, length, name)
    if not set(map(type, value)) <= {int, float}:
        raise RecordError(f"{name} holds something else than numbers")
    with np.errstate(over="ignore"):
        array = np.array(value, np.float64).astype(np.float32)
    if not np.isfinite(array).all():
        raise RecordError(f"{name} holds a number beyond float32")
    return array


def _rows(value: Any, width: int, name: str) -> np.ndarray:
    """Return a list of rows as (rows, width) int16."""
    if type(value) is not list:
        raise RecordError(f"{name} is not a list of rows")
    for row in value:
        _check_list(row, width, f"a row of {name}")
    flat = list(chain.from_iterable(value))
    return _integers(flat, len(flat), name, np.int16).reshape(-1, width)
