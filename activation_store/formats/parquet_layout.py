"""How records are laid out in the columns of a Parquet file.

A single number is a column of its own type. A vector is one column per byte of its numbers, `NAME#0` the least
significant, so that bytes that hardly vary are adjacent and compress well; each record is one fixed-size value, which
Arrow does not split up. A table is a list of rows, each row
one fixed-size value with its int16 numbers in order. No column has missing values.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, MAY_BE_UNRECORDED, TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata

if TYPE_CHECKING:
    import pyarrow as pa


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


ACTIVATION, TILE, TABLE = "activation/", "tile/", "table/"
"""Prefixes of the names of layers, of the view's columns and of tables."""

_PLANE = "#"
_ROW_NUMBER = np.dtype(np.int16)


Numbers = tuple[np.dtype, int | None]
"""Of a field of every record: the type of its numbers, and how many they are; None for a single number."""


def plane_columns(name: str, dtype: np.dtype) -> list[str]:
    """Return the columns that hold the vector with this name."""
    return [f"{name}{_PLANE}{i}" for i in range(dtype.itemsize)]


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
        if width is None:
            types[name] = pa.from_numpy_dtype(dtype)
        else:
            types |= {plane: pa.binary(width) for plane in plane_columns(name, dtype)}
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
        columns = [name] if width is None else plane_columns(name, dtype)
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


def columns_for(names: Iterable[str], metadata: DumpMetadata) -> list[str]:
    """Return the columns of a file that hold the fields and tables with these names."""
    vectors = {name: dtype for name, (dtype, width) in numbers_of(metadata).items() if width is not None}
    return [column for name in names for column in (plane_columns(name, vectors[name]) if name in vectors else [name])]


def read_numbers(table: "pa.Table", name: str, numbers: Numbers, chosen: np.ndarray | slice) -> np.ndarray:
    """Return a field of the chosen records of a table, (B,) or (B, width)."""
    dtype, width = numbers
    if width is None:
        return _whole(table, name).to_numpy(zero_copy_only=False)[chosen]
    return join_planes([plane_bytes(_whole(table, plane))[chosen] for plane in plane_columns(name, dtype)], dtype)


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
