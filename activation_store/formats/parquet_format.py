"""Records as Parquet: one file per episode, columns of fixed types, compressed with zstd.

A single number is a column of its own type. A vector is one column per byte of its numbers, `NAME#0` the least
significant, so that bytes that hardly vary are adjacent and compress well; each record is one fixed-size value, which
Arrow does not split up. A table is a list of rows, each row one fixed-size value with its int16 numbers in order. No
column has missing values. Readers select records from five integer columns, then read the large columns only in row
groups that hold any.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from activation_store.formats.safe_parquet import arrow_faults, check_expansion, check_pages
from activation_store.lives import number_lives, rank_in_life
from activation_store.records import RaggedRows, Records
from activation_store.schema import (
    IDENTITY,
    MAY_BE_UNRECORDED,
    ROWS_AT_MOST,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
)
from activation_store.selection import Gathering, Selection, no_rows, tiles_shape
from common.files import HashedFile, open_file
from common.user_error import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_RECORDS = 4096
_FOOTER_BYTES_AT_MOST = 1 << 24
ACTIVATION, TILE, TABLE = "activation/", "tile/", "table/"
"""Prefixes of the names of layers, of the view's columns and of tables."""

_ROW_NUMBER = np.dtype(np.int16)


Numbers = tuple[np.dtype, int | None]
"""Of a field of every record: the type of its numbers, and how many they are; None for a single number."""


def split_planes(values: np.ndarray) -> list[np.ndarray]:
    """Split vectors into byte planes.

    Args:
        values: (B, width), of any fixed-size type.

    Returns:
        One plane per byte of a number, least significant first, each (B, width) uint8 and contiguous.
    """
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    in_bytes = little.view(np.uint8).reshape(*values.shape, little.itemsize)  # (B, width, bytes)
    return [np.ascontiguousarray(in_bytes[:, :, i]) for i in range(little.itemsize)]


def join_planes(planes: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Rebuild vectors from their planes: the inverse of `split_planes`.

    Args:
        planes: (B, width) uint8 each, least significant first; one per byte of a number.

    Returns:
        (B, width) of `dtype`.
    """
    if len(planes) == 1:
        return planes[0].astype(bool) if dtype.kind == "b" else planes[0].view(dtype)
    values = np.empty(planes[0].shape, dtype.newbyteorder("<"))
    in_bytes = values.view(np.uint8).reshape(*values.shape, len(planes))  # (B, width, bytes)
    for i, plane in enumerate(planes):
        in_bytes[:, :, i] = plane
    return values.astype(dtype, copy=False)


def columns_of(name: str, numbers: Numbers) -> list[str]:
    """Return the columns that hold the field with this name: one, or those of a vector's planes."""
    dtype, width = numbers
    return [name] if width is None else [f"{name}#{i}" for i in range(dtype.itemsize)]


def numbers_of(metadata: DumpMetadata) -> dict[str, Numbers]:
    """Return every numeric field by its name in the file, in file order."""
    heads = len(metadata.action_heads)
    numbers: dict[str, Numbers] = {name: (np.dtype(np.int64), None) for name in IDENTITY}
    for name in MAY_BE_UNRECORDED:
        if name not in metadata.unrecorded:
            numbers[name] = np.dtype(np.float32), heads if name == "log_probability" else None
    numbers["action"] = np.dtype(np.int32), heads
    numbers |= {name: (np.dtype(column.dtype), column.width) for name, column in metadata.columns.items()}
    precision = np.dtype(metadata.precision)
    numbers |= {ACTIVATION + name: (precision, units) for name, units in metadata.layers.items()}
    return numbers | {TILE + name: (np.dtype(np.int16), TILES_IN_VIEW) for name in TILE_COLUMNS}


def arrow_schema(metadata: DumpMetadata) -> "pa.Schema":
    """Return the columns of a shard; their names, types and order depend only on the metadata."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {}
    for name, (dtype, width) in numbers_of(metadata).items():
        kind = pa.from_numpy_dtype(dtype) if width is None else pa.binary(width)
        types |= dict.fromkeys(columns_of(name, (dtype, width)), kind)
    for name, columns in metadata.all_tables.items():
        row = pa.binary(len(columns) * _ROW_NUMBER.itemsize)
        types[TABLE + name] = pa.list_(pa.field("element", row, nullable=False))
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def encodings(metadata: DumpMetadata) -> dict[str, Any]:
    """Return the column encodings for `pyarrow.parquet.ParquetWriter`, chosen by measurement.

    Single floats use byte-stream split. Single integers, and the rows and columns of the view, which follow from the
    agent's position, use a dictionary. The low bytes of floats are too much like noise for a dictionary to pay off.
    """
    split: list[str] = []
    dictionary: list[str] = []
    level: dict[str, int] = {}
    for name, (dtype, width) in numbers_of(metadata).items():
        columns = columns_of(name, (dtype, width))
        is_float = dtype.kind == "f"
        level |= dict.fromkeys(columns, 1 if is_float else 3)
        if width is None and is_float:
            split.append(name)
        elif name in (TILE + "row", TILE + "col") or (width is None and dtype.kind != "b"):
            dictionary += columns
    level |= {f"{TABLE}{name}.list.element": 3 for name in metadata.all_tables}
    return {"use_byte_stream_split": split, "use_dictionary": dictionary, "compression_level": level}


def to_table(records: Records, metadata: DumpMetadata, schema: "pa.Schema") -> "pa.Table":
    """Return records as an Arrow table; activations are rounded to the metadata's precision."""
    import pyarrow as pa

    values = values_of(records)
    arrays: list[pa.Array] = []
    for name, (dtype, width) in numbers_of(metadata).items():
        if width is None:
            arrays.append(pa.array(np.ascontiguousarray(values[name], dtype)))
        else:
            arrays += map(fixed_size, split_planes(values[name].astype(dtype, copy=False)))
    for name in metadata.all_tables:
        rows = records.all_tables[name]
        offsets = pa.array(rows.offsets.astype(np.int32))
        kind = schema.field(TABLE + name).type
        in_bytes = np.ascontiguousarray(rows.values, _ROW_NUMBER).view(np.uint8)
        arrays.append(pa.ListArray.from_arrays(offsets, fixed_size(in_bytes), type=kind))
    return pa.Table.from_arrays(arrays, schema=schema)


def values_of(records: Records) -> dict[str, np.ndarray]:
    """Return the arrays of all numeric fields by their names in the file."""
    arrays = {name: getattr(records, name) for name in (*IDENTITY, *MAY_BE_UNRECORDED, "action")}
    arrays |= records.columns
    arrays |= {ACTIVATION + name: values for name, values in records.activations.items()}
    return arrays | {TILE + name: records.tile[:, :, i] for i, name in enumerate(TILE_COLUMNS)}


def fixed_size(in_bytes: np.ndarray) -> "pa.Array":
    """Return contiguous bytes, (R, width) uint8, as R fixed-size values."""
    import pyarrow as pa

    count, width = in_bytes.shape
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(in_bytes)])


def read_numbers(table: "pa.Table", name: str, numbers: Numbers, chosen: np.ndarray | slice) -> np.ndarray:
    """Return a field of the chosen records of a table, (B,) or (B, width)."""
    dtype, width = numbers
    if width is None:
        return _whole(table, name).to_numpy(zero_copy_only=False)[chosen]
    return join_planes([plane_bytes(_whole(table, plane))[chosen] for plane in columns_of(name, numbers)], dtype)


def read_rows(table: "pa.Table", name: str) -> RaggedRows:
    """Return a table of the game's observation."""
    column = _whole(table, TABLE + name)
    offsets = column.offsets.to_numpy().astype(np.int64)
    return RaggedRows(plane_bytes(column.flatten()).view(_ROW_NUMBER), offsets - offsets[0])


def _whole(table: "pa.Table", name: str) -> "pa.Array":
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def plane_bytes(array: "pa.Array") -> np.ndarray:
    """Return fixed-size values as (R, width) uint8, without copying them."""
    width = array.type.byte_width
    flat = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return flat.reshape(len(array), width)


@contextlib.contextmanager
def parquet_shard(file: HashedFile, metadata: DumpMetadata) -> Iterator[Callable[[Records], None]]:
    """Yield a function that appends records of one episode, in row groups of a fixed number of records.

    Leaving the block writes the remaining records and the footer.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(metadata)
    writer = pq.ParquetWriter(file, schema, compression="zstd", write_statistics=False, **encodings(metadata))
    everything = Selection(tuple(metadata.layers), tuple(metadata.columns), tuple(metadata.tables))
    waiting = Gathering(metadata, everything, ROW_GROUP_RECORDS)

    def write_group() -> None:
        # As one table: the file must not depend on batch boundaries, and creating many small tables is slow.
        nonlocal waiting
        writer.write_table(to_table(waiting.finish(), metadata, schema), row_group_size=ROW_GROUP_RECORDS)
        waiting = Gathering(metadata, everything, ROW_GROUP_RECORDS)

    def append(records: Records) -> None:
        start = 0
        while start < len(records):
            end = start + ROW_GROUP_RECORDS - waiting.size
            fits = start == 0 and len(records) <= end
            part = records if fits else records.take(np.arange(start, min(end, len(records))))
            waiting.add(part)
            start += len(part)
            if waiting.size == ROW_GROUP_RECORDS:
                write_group()

    try:
        yield append
        if waiting.size:
            write_group()
        writer.close()
    finally:
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):  # after a failure, which is reported
            writer.close()


def read_shard_batches(
    path: Path, metadata: DumpMetadata, proof: DumpFile, selection: Selection
) -> Iterator[tuple[Records, int]]:
    """Yield the selected records of one shard by row group; its hash must have been verified.

    Each comes with the number of the shard's records read or skipped so far.

    Raises:
        UserError: the shard contradicts its metadata.
    """
    with arrow_faults(path), open_file(path) as raw:
        file = _open(path, raw, metadata, proof)
        identity, lives, life = _identity(path, raw, file, proof)
        try:
            rank = rank_in_life(life, identity["tick"])
        except ValueError as error:
            raise UserError(f"{path}: {error}: extract it again") from None
        keep = selection.keep(lives, life, rank)
        wanted = _wanted_columns(metadata, selection)
        start = 0
        for group in range(file.num_row_groups):
            rows = slice(start, start + file.metadata.row_group(group).num_rows)
            start = rows.stop
            kept = keep[rows]
            if kept.any():
                check_pages(raw, file.metadata.row_group(group), wanted)
                table = file.read_row_group(group, columns=wanted, use_threads=False)
                _check_lengths(table, len(kept))
                chosen = slice(None) if kept.all() else np.flatnonzero(kept)
                chosen_rows = {name: values[rows][chosen] for name, values in identity.items()}
                yield _from_table(table, chosen_rows, chosen, metadata, selection, path), start


def read_shard_identity(path: Path, metadata: DumpMetadata, proof: DumpFile) -> dict[str, np.ndarray]:
    """Return the columns of `IDENTITY` of a shard's records; its hash must have been verified.

    Raises:
        UserError: the shard contradicts its metadata.
    """
    with arrow_faults(path), open_file(path) as raw:
        return _identity(path, raw, _open(path, raw, metadata, proof), proof)[0]


def _open(path: Path, raw: io.FileIO, metadata: DumpMetadata, proof: DumpFile) -> "pq.ParquetFile":
    """Read the footer of an open file, whose path Arrow need not be able to spell."""
    import pyarrow.parquet as pq

    raw.seek(-8, 2)
    if int.from_bytes(raw.read(4), "little") > _FOOTER_BYTES_AT_MOST:
        raise UserError(f"{path} has an implausibly large footer: copy or extract it again")
    file = pq.ParquetFile(
        raw, thrift_string_size_limit=_FOOTER_BYTES_AT_MOST, thrift_container_size_limit=_FOOTER_BYTES_AT_MOST // 8
    )
    if not file.schema_arrow.equals(arrow_schema(metadata)):
        raise UserError(f"{path} has other columns or types than {metadata.policy!r} should: copy or extract it again")
    _check_sizes(path, file, proof)
    return file


def _check_sizes(path: Path, file: "pq.ParquetFile", proof: DumpFile) -> None:
    """Refuse a file that claims more than its metadata: these numbers decide how much memory reading takes."""
    footer = file.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    counts = [group.num_rows for group in groups]
    if footer.num_rows != proof.records or sum(counts) != proof.records:
        raise UserError(
            f"{path} holds {footer.num_rows} records, its metadata counts {proof.records}: extract it again"
        )
    if any(not 0 < count <= ROW_GROUP_RECORDS for count in counts):
        raise UserError(f"{path} has row groups of an absurd size: copy or extract it again")
    for group in groups:
        for i in range(group.num_columns):
            chunk = group.column(i)
            is_table = chunk.path_in_schema.startswith(TABLE)
            if is_table and chunk.num_values > group.num_rows * ROWS_AT_MOST:
                raise UserError(f"{path} has tables of an absurd size: copy or extract it again")
    check_expansion(file, proof.bytes)


def _identity(
    path: Path, raw: io.FileIO, file: "pq.ParquetFile", proof: DumpFile
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the columns of `IDENTITY`, the lives, and each record's life."""
    for group in range(file.num_row_groups):
        check_pages(raw, file.metadata.row_group(group), IDENTITY)
    table = file.read(columns=list(IDENTITY), use_threads=False)
    _check_lengths(table, proof.records)
    identity = {name: table.column(name).to_numpy() for name in IDENTITY}
    if (identity["episode"] != proof.episode).any():
        raise UserError(f"{path} holds episodes other than {proof.episode}: extract it again")
    lives, life = number_lives(identity)
    if len(lives) != proof.lives:
        raise UserError(f"{path} holds {len(lives)} lives, its metadata counts {proof.lives}: extract it again")
    return identity, lives, life


def _check_lengths(table: "pa.Table", records: int) -> None:
    """Raise ValueError if a column is invalid, has missing values or is shorter than declared."""
    table.validate(full=True)
    if len(table) != records or any(column.null_count for column in table.columns):
        raise ValueError("a column lacks values")


def _wanted_columns(metadata: DumpMetadata, selection: Selection) -> list[str]:
    layers = (ACTIVATION + name for name in selection.layers)
    names = [*selection.numbers(metadata), "action", *selection.columns, *layers]
    if "tile" not in selection.leave_out:
        names += [TILE + name for name in TILE_COLUMNS]
    numbers = numbers_of(metadata)
    columns = [column for name in names for column in columns_of(name, numbers[name])]
    return [*columns, *(TABLE + name for name in selection.read_tables)]


def _from_table(
    table: "pa.Table",
    identity: dict[str, np.ndarray],
    chosen: np.ndarray | slice,
    metadata: DumpMetadata,
    selection: Selection,
    path: Path,
) -> Records:
    """Return the chosen records of a row group, after checking that floats are finite and actions in range."""
    numbers, count = numbers_of(metadata), len(identity["step"])

    def read(name: str) -> np.ndarray:
        values = read_numbers(table, name, numbers[name], chosen)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            what = name.removeprefix(ACTIVATION)
            raise UserError(f"{path}: {what} holds NaN or infinity, so it is damaged or the policy diverged")
        return values

    shapes = {"reward": (count,), "value": (count,), "log_probability": (count, len(metadata.action_heads))}
    arrays: dict[str, Any] = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
    arrays |= {name: read(name) for name in selection.numbers(metadata)}
    action = read("action").astype(np.int64)
    if ((action < 0) | (action >= np.array([head.size for head in metadata.action_heads]))).any():
        raise UserError(f"{path}: an action lies outside its head: extract it again")
    tile = np.empty(tiles_shape(selection, count), np.int16)
    if "tile" not in selection.leave_out:
        for i, name in enumerate(TILE_COLUMNS):
            tile[:, :, i] = read(TILE + name)
    tables = _tables(table, chosen, count, metadata, selection, path)
    return Records(
        **identity,
        **arrays,
        action=action,
        activations={name: read(ACTIVATION + name).astype(np.float32, copy=False) for name in selection.layers},
        tile=tile,
        entity=tables.pop("Entity"),
        inventory=tables.pop("Inventory"),
        columns={name: read(name) for name in selection.columns},
        tables=tables,
    )


def _tables(
    table: "pa.Table", chosen: np.ndarray | slice, count: int, metadata: DumpMetadata, selection: Selection, path: Path
) -> dict[str, RaggedRows]:
    widths = {name: len(metadata.all_tables[name]) for name in ("Entity", "Inventory", *selection.tables)}
    tables = {name: no_rows(count, width) for name, width in widths.items()}
    for name in selection.read_tables:
        rows = read_rows(table, name)
        if rows.counts.max(initial=0) > ROWS_AT_MOST:
            raise UserError(f"{path}: a record has more than {ROWS_AT_MOST} rows in {name}: extract it again")
        tables[name] = rows if isinstance(chosen, slice) else rows.take(chosen)
    return tables
