"""Records as JSON: one agent-tick per line, inside an array that the original tools can read unchanged.

Parsed records are converted into the columns of `Records` one by one, checking every value.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from activation_store.columns import Column
from activation_store.lives import Life, number_lives
from activation_store.records import RaggedRows, Records
from activation_store.schema import (
    IDENTITY,
    MAY_BE_UNRECORDED,
    RECORDS_FILE,
    ROWS_AT_MOST,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
)
from activation_store.selection import Gathering, Selection
from common.files import HashedFile, atomic_file, open_file
from common.user_error import UserError

_INT64_BOUND = 1 << 63


class RecordError(Exception):
    """A record contradicts the dump's metadata; the message completes a sentence that names the line."""


def _append(batch: Gathering, record: dict[str, Any], metadata: DumpMetadata, selection: Selection) -> None:
    """Append one parsed record.

    Raises:
        RecordError: a key is missing, or a value has the wrong type, width or range.
    """
    i, arrays = batch.size, batch.arrays
    if (policy := _get(record, "policy")) != metadata.policy:
        raise RecordError(f"policy is {str(policy)[:80]!r}, the metadata names {metadata.policy!r}")
    for name in IDENTITY:
        number = _get(record, name)
        if type(number) is not int or not -_INT64_BOUND <= number < _INT64_BOUND:
            raise RecordError(f"{name} is not a 64-bit integer")
        arrays[name, ""][i] = number
    heads = len(metadata.action_heads)
    read = selection.numbers(metadata)
    for name in MAY_BE_UNRECORDED:
        if name not in read:
            arrays[name, ""][i] = np.nan
        elif name == "log_probability":
            arrays[name, ""][i] = _floats(_get(record, name), heads, name)
        else:
            arrays[name, ""][i] = _floats([_get(record, name)], 1, name)[0]
    action = _integers(_get(record, "action"), heads, "action", np.int64)
    for head, index in zip(metadata.action_heads, action.tolist(), strict=True):
        if not 0 <= index < head.size:
            raise RecordError(f"action {head.name} is {index}, it has {head.size} choices")
    arrays["action", ""][i] = action
    for name in selection.layers:
        is_main = name == metadata.main_layer
        value = _get(record, "activation") if is_main else _get(_get(record, "activations"), name)
        arrays["activations", name][i] = _floats(value, metadata.layers[name], name)
    for name in selection.columns:
        arrays["columns", name][i] = _column(_get(record, name), metadata.columns[name], name)
    _append_observation(batch, _get(record, "observation"), metadata, selection)
    batch.size += 1


def _append_observation(batch: Gathering, observation: Any, metadata: DumpMetadata, selection: Selection) -> None:
    if "tile" not in selection.leave_out:
        tiles = _rows(_get(observation, "Tile"), len(TILE_COLUMNS), "observation Tile")
        if len(tiles) != TILES_IN_VIEW:
            raise RecordError(f"observation Tile has {len(tiles)} rows instead of {TILES_IN_VIEW}")
        batch.arrays["tile", ""][batch.size] = tiles
    for name in ("Entity", "Inventory", *selection.tables):
        width = len(metadata.all_tables[name])
        rows = _rows(_get(observation, name) if name in selection.read_tables else [], width, f"observation {name}")
        batch.pieces.setdefault(name, []).append(RaggedRows(rows, np.array([0, len(rows)])))
    if _get(observation, "CurrentTick") != [batch.arrays["tick", ""][batch.size]]:
        raise RecordError("observation CurrentTick differs from tick")


def _get(mapping: Any, key: str) -> Any:
    if not isinstance(mapping, dict):
        raise RecordError(f"{key} should be inside a JSON object")
    if key not in mapping:
        raise RecordError(f"{key} is missing")
    return mapping[key]


def _check_list(value: Any, length: int, name: str, kinds: set[type], what: str) -> None:
    if type(value) is not list or len(value) != length:
        raise RecordError(f"{name} is not a list of {length} numbers")
    if not set(map(type, value)) <= kinds:
        raise RecordError(f"{name} holds something other than {what}")


def _integers(value: Any, length: int, name: str, dtype: Any) -> np.ndarray:
    _check_list(value, length, name, {int}, "integers")
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise RecordError(f"{name} holds a number beyond {np.dtype(dtype).name}") from None


def _floats(value: Any, length: int, name: str) -> np.ndarray:
    _check_list(value, length, name, {int, float}, "numbers")
    with np.errstate(over="ignore"):
        array = np.array(value, np.float64).astype(np.float32)
    if not np.isfinite(array).all():
        raise RecordError(f"{name} holds a number beyond float32")
    return array


def _column(value: Any, column: Column, name: str) -> Any:
    values, length = ([value], 1) if column.width is None else (value, column.width)
    if column.dtype == "bool":
        _check_list(values, length, name, {bool}, "true and false")
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


_BATCH = 256
_BLOCK_BYTES = 1 << 20
_LINE_BYTES_AT_MOST = 1 << 24
_PROGRESS_EVERY = 1024
_NEVER = 1 << 63
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_LAYOUT_START, _SEPARATOR, _LAYOUT_END = b"[\n", b",\n", b"]\n"
# The writer puts the identity first in a line, so a record can be skipped without parsing its hundreds of numbers.
_LINE_START = re.compile(
    rb'\{"step":(\d{1,18}),"env_id":(\d{1,18}),"agent_id":(\d{1,18}),"episode":(\d{1,18}),"tick":(\d{1,18}),"'
)


def read_json_batches(
    folder: Path, metadata: DumpMetadata, selection: Selection, report: Callable[[float], None]
) -> Iterator[Records]:
    """Yield the selected records of a JSON dump in batches; the file's hash must have been verified.

    Raises:
        UserError: a record is malformed or out of order, or their number differs from the metadata's.
    """
    path = folder / RECORDS_FILE
    lives: dict[Life, tuple[int, int, int]] = {}
    subsample = selection.subsample
    batch, count = Gathering(metadata, selection, _BATCH), 0
    for count, line in enumerate(_record_lines(path), start=1):
        try:
            record, (_, *key, tick) = _identify(line)
            life = (key[0], key[1], key[2])
            if life not in lives:
                first = int(subsample.first_kept(np.array([life]))[0]) if selection.wants(life) else _NEVER
                lives[life] = 0, tick - 1, first
            seen, last_tick, first = lives[life]
            if tick <= last_tick:
                raise RecordError(f"tick {tick} of a life does not come after tick {last_tick}")
            if count > metadata.records:
                raise RecordError("there are more records than the metadata counts")
            lives[life] = seen + 1, tick, first
            if seen >= first and (seen - first) % subsample.every == 0:
                _append(batch, _parse(line) if record is None else record, metadata, selection)
        except RecordError as fault:
            raise UserError(f"{path}, line {count + 1}: {fault}: extract it again") from None
        if batch.size == _BATCH:
            yield batch.finish()
            batch = Gathering(metadata, selection, _BATCH)
        if count % _PROGRESS_EVERY == 0:
            report(min(1.0, count / metadata.records))
    _check_counts(path, metadata, count, len(lives))
    if batch.size:
        yield batch.finish()


def read_json_identity(folder: Path, metadata: DumpMetadata) -> dict[str, np.ndarray]:
    """Return the columns of `IDENTITY` of all records without parsing anything else.

    Raises:
        UserError: as `read_json_batches`.
    """
    path = folder / RECORDS_FILE
    rows = np.empty((metadata.records, len(IDENTITY)), np.int64)
    count = 0
    for count, line in enumerate(_record_lines(path), start=1):
        try:
            if count > metadata.records:
                raise RecordError("there are more records than the metadata counts")
            rows[count - 1] = _identify(line)[1]
        except (RecordError, OverflowError) as fault:
            raise UserError(f"{path}, line {count + 1}: {fault}: extract it again") from None
    identity = dict(zip(IDENTITY, rows[:count].T, strict=True))
    _check_counts(path, metadata, count, len(number_lives(identity)[0]))
    return identity


def _check_counts(path: Path, metadata: DumpMetadata, records: int, lives: int) -> None:
    if (records, lives) != (metadata.records, metadata.lives):
        raise UserError(
            f"{path} holds {records} records of {lives} lives, its metadata counts {metadata.records} of "
            f"{metadata.lives}: extract it again"
        )


def _record_lines(path: Path) -> Iterator[bytes]:
    layout = UserError(f"{path} is not a JSON array with one record per line: extract it again")
    with open_file(path) as raw, io.BufferedReader(raw) as file:
        if file.readline(_LINE_BYTES_AT_MOST) != _LAYOUT_START:
            raise layout
        while (line := file.readline(_LINE_BYTES_AT_MOST)).endswith(_SEPARATOR):
            yield line[: -len(_SEPARATOR)]
        if not line.endswith(b"}\n") or file.read(len(_LAYOUT_END) + 1) != _LAYOUT_END:
            raise layout
        yield line[:-1]


def _identify(line: bytes) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the record's identity, and the parsed record if parsing it was necessary."""
    if match := _LINE_START.match(line):
        return None, [int(group) for group in match.groups()]
    record = _parse(line)
    identity = []
    for name in IDENTITY:
        value = record.get(name)
        if name == "step" and name not in record:
            raise RecordError("step is missing")
        if type(value) is not int or not -_INT64_BOUND <= value < _INT64_BOUND:
            what = "is not a 64-bit integer" if type(value) in (int, float) else "is missing or is not an integer"
            raise RecordError(f"{name} {what}")
        identity.append(value)
    return record, identity


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RecordError(f"it is not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise RecordError("it is not a JSON object")
    return record


def write_lines(file: HashedFile, metadata: DumpMetadata, records: Records) -> None:
    """Append records of one episode as lines, to be joined into one array once all episodes are complete."""
    for line in record_lines(records, metadata):
        file.write(line + _SEPARATOR)


def join_shards(shards: Mapping[Path, DumpFile], path: Path) -> DumpFile:
    """Join the lines of several shards into one JSON array at `path`, in constant memory.

    Raises:
        UserError: a shard has changed since it was written, or the disk is full.
    """
    with atomic_file(path) as raw:
        file = HashedFile(raw)
        file.write(_LAYOUT_START[:-1])
        for i, (shard, proof) in enumerate(shards.items()):
            file.write(_SEPARATOR if i else b"\n")
            left = proof.bytes - len(_SEPARATOR)
            with shard.open("rb") as source:
                while left and (block := source.read(min(left, _BLOCK_BYTES))):
                    file.write(block)
                    left -= len(block)
            if left:
                raise UserError(f"{shard} has been truncated: delete the folder and extract it again")
        file.write(b"\n" + _LAYOUT_END)
    records, lives = (sum(getattr(proof, name) for proof in shards.values()) for name in ("records", "lives"))
    return DumpFile(file.sha256, file.bytes, records, lives)


def record_lines(records: Records, metadata: DumpMetadata) -> Iterator[bytes]:
    """Yield the JSON of each record, without line ends."""
    main = metadata.main_layer
    numbers = np.stack([getattr(records, name) for name in IDENTITY], axis=1).tolist()
    # orjson serialises only C-contiguous arrays; a record's rows are contiguous if the batch is.
    layers = {name: np.ascontiguousarray(records.activations[name], np.float32) for name in metadata.layers}
    floats = {
        name: np.ascontiguousarray(getattr(records, name), np.float32)
        for name in MAY_BE_UNRECORDED
        if name not in metadata.unrecorded
    }
    columns = {
        name: np.ascontiguousarray(records.columns[name], column.dtype) for name, column in metadata.columns.items()
    }
    action = np.ascontiguousarray(records.action, np.int64)
    tile = np.ascontiguousarray(records.tile, np.int16)
    tables = {name: records.all_tables[name] for name in metadata.all_tables}
    rows = {name: np.ascontiguousarray(table.values, np.int16) for name, table in tables.items()}
    offsets = {name: table.offsets.tolist() for name, table in tables.items()}
    for i, identity in enumerate(numbers):
        record: dict[str, Any] = dict(zip(IDENTITY, identity, strict=True))
        record |= {"policy": metadata.policy}
        record |= {name: values[i] for name, values in columns.items()}
        record |= {name: values[i] for name, values in floats.items()}
        record |= {"action": action[i], "activation": layers[main][i]}
        if further := {name: values[i] for name, values in layers.items() if name != main}:
            record["activations"] = further
        used = {name: rows[name][offsets[name][i] : offsets[name][i + 1]] for name in rows}
        record["observation"] = {"Tile": tile[i], **used, "CurrentTick": [identity[-1]]}
        yield orjson.dumps(record, option=_OPTIONS)
