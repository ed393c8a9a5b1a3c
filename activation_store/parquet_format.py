"""Records as Parquet: one file an episode, columns of fixed types, compressed with zstd.

Readers decide from five integer columns which records they keep, then open the large columns of those row groups only.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from activation_store.columns import check_finite
from activation_store.files import HashedFile
from activation_store.gathering import no_rows, tiles_shape
from activation_store.records import RaggedRows, Records
from activation_store.schema import (
    IDENTITY,
    LIFE_KEY,
    MAY_BE_UNRECORDED,
    ROWS_AT_MOST,
    TILE_COLUMNS,
    TILES_IN_VIEW,
    DumpFile,
    DumpMetadata,
)
from activation_store.selection import Selection, rank_in_life
from user_error import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_RECORDS = 4096
_ACTIVATION, _TILE, _TABLE = "activation/", "tile/", "table/"
_FOOTER_BYTES_AT_MOST = 1 << 24
_COMPRESSION_LEVEL = 3


def arrow_schema(metadata: DumpMetadata) -> "pa.Schema":
    """Return the columns of a shard: their names, types and order follow from the metadata alone.

    Layers are `activation/NAME`, the view `tile/row`, `tile/col` and `tile/material`, a table `table/NAME`: the rows of
    each record one after the other. No column has missing values.
    """
    import pyarrow as pa

    heads = len(metadata.action_heads)
    float_of = {"float32": pa.float32(), "float16": pa.float16()}
    types = {name: pa.int64() for name in IDENTITY}
    for name in MAY_BE_UNRECORDED:
        if name not in metadata.unrecorded:
            types[name] = _vector(pa.float32(), heads) if name == "log_probability" else pa.float32()
    types["action"] = _vector(pa.int32(), heads)
    for name, column in metadata.columns.items():
        scalar = pa.bool_() if column.dtype == "bool" else pa.from_numpy_dtype(np.dtype(column.dtype))
        types[name] = scalar if column.width is None else _vector(scalar, column.width)
    for name, units in metadata.layers.items():
        types[_ACTIVATION + name] = _vector(float_of[metadata.precision], units)
    types |= {_TILE + name: _vector(pa.int16(), TILES_IN_VIEW) for name in TILE_COLUMNS}
    for name in metadata.all_tables:
        types[_TABLE + name] = pa.list_(pa.field("element", pa.int16(), nullable=False))
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def _vector(kind: "pa.DataType", width: int) -> "pa.DataType":
    import pyarrow as pa

    return pa.list_(pa.field("element", kind, nullable=False), width)


class ParquetShard:
    """The records of one episode on their way to disk, in row groups of a fixed number of records."""

    def __init__(self, file: HashedFile, metadata: DumpMetadata) -> None:
        import pyarrow.parquet as pq

        self._metadata = metadata
        self._schema = arrow_schema(metadata)
        split, dictionary = _encodings(self._schema)
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=dictionary,
            use_byte_stream_split=split,
            write_statistics=False,
        )
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def write(self, records: Records) -> None:
        """Append records; they reach the disk a row group at a time."""
        import pyarrow as pa

        self._waiting.append(to_table(records, self._metadata, self._schema))
        self._rows += len(records)
        if self._rows >= ROW_GROUP_RECORDS:
            table = pa.concat_tables(self._waiting)
            whole = self._rows - self._rows % ROW_GROUP_RECORDS
            for start in range(0, whole, ROW_GROUP_RECORDS):
                self._write_group(table.slice(start, ROW_GROUP_RECORDS))
            # A slice keeps the whole table alive: copy what is left.
            self._rows -= whole
            self._waiting = [table.slice(whole).take(np.arange(self._rows))]

    def finish(self) -> None:
        """Write what is left, and the footer."""
        import pyarrow as pa

        if self._rows:
            self._write_group(pa.concat_tables(self._waiting))
        self._writer.close()

    def give_up(self) -> None:
        """Let go of the file, which is about to be removed."""
        import pyarrow as pa

        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()

    def _write_group(self, table: "pa.Table") -> None:
        # In one piece: where batches met must leave no trace in the file.
        self._writer.write_table(table.combine_chunks(), row_group_size=ROW_GROUP_RECORDS)


def _encodings(schema: "pa.Schema") -> tuple[list[str], list[str]]:
    """Return the paths of the columns whose bytes are split by significance, and of those that take a dictionary.

    The first suits floats. The second suits the view, whose rows and columns repeat. Both were measured.
    """
    import pyarrow as pa

    split, dictionary = [], []
    for field in schema:
        nested = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
        path = f"{field.name}.list.element" if nested else field.name
        kind = field.type.value_type if nested else field.type
        if pa.types.is_floating(kind):
            split.append(path)
        elif not field.name.startswith(_TABLE) and not pa.types.is_boolean(kind):
            dictionary.append(path)
    return split, dictionary


def to_table(records: Records, metadata: DumpMetadata, schema: "pa.Schema") -> "pa.Table":
    """Return records as an Arrow table; activations are rounded to the metadata's precision."""
    import pyarrow as pa

    arrays: dict[str, np.ndarray | RaggedRows] = {name: getattr(records, name) for name in IDENTITY}
    arrays |= {name: getattr(records, name) for name in MAY_BE_UNRECORDED}
    arrays |= {"action": records.action, **records.columns}
    arrays |= {_ACTIVATION + name: values.astype(metadata.precision) for name, values in records.activations.items()}
    arrays |= {_TILE + name: records.tile[:, :, i] for i, name in enumerate(TILE_COLUMNS)}
    arrays |= {_TABLE + name: rows for name, rows in records.all_tables.items()}
    return pa.Table.from_arrays([_to_arrow(arrays[field.name], field.type) for field in schema], schema=schema)


def _to_arrow(values: np.ndarray | RaggedRows, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    if isinstance(values, RaggedRows):
        flat = pa.array(np.ascontiguousarray(values.values, np.int16).reshape(-1))
        offsets = pa.array((values.offsets * values.values.shape[1]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, flat, type=kind)
    if pa.types.is_fixed_size_list(kind):
        flat = pa.array(np.ascontiguousarray(values).reshape(-1), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    return pa.array(np.ascontiguousarray(values), kind)


def read_shard_batches(
    path: Path, metadata: DumpMetadata, proof: DumpFile, selection: Selection
) -> Iterator[tuple[Records, int]]:
    """Yield the selected records of one shard, a row group at a time; its bytes are proved already.

    With each come how many of the shard's records have been passed so far.

    Raises:
        UserError: the shard is not what its metadata promises.
    """
    with _arrow_faults(path):
        file = _open(path, metadata, proof)
        _, identity, keep = _decide(path, file, proof, selection)
        wanted = _wanted_columns(metadata, selection)
        start = 0
        for group in range(file.num_row_groups):
            rows = np.arange(start, start + file.metadata.row_group(group).num_rows)
            start += len(rows)
            chosen = np.flatnonzero(keep[rows])
            if len(chosen):
                table = file.read_row_group(group, columns=wanted)
                _check_lengths(table, len(rows))
                found = {name: values[rows] for name, values in identity.items()}
                yield _from_table(table, found, metadata, selection, path).take(chosen), start


def read_shard_identity(path: Path, metadata: DumpMetadata, proof: DumpFile) -> dict[str, np.ndarray]:
    """Return the columns of `IDENTITY` of a shard's records; its bytes are proved already.

    Raises:
        UserError: the shard is not what its metadata promises.
    """
    with _arrow_faults(path):
        return _identity(path, _open(path, metadata, proof), proof)


def _open(path: Path, metadata: DumpMetadata, proof: DumpFile) -> "pq.ParquetFile":
    import pyarrow.parquet as pq

    with path.open("rb") as raw:
        raw.seek(-8, 2)
        if int.from_bytes(raw.read(4), "little") > _FOOTER_BYTES_AT_MOST:
            raise UserError(f"{path} has a footer of an absurd size: copy or extract it again")
    file = pq.ParquetFile(
        path,
        memory_map=False,
        thrift_string_size_limit=_FOOTER_BYTES_AT_MOST,
        thrift_container_size_limit=_FOOTER_BYTES_AT_MOST // 8,
    )
    if not file.schema_arrow.equals(arrow_schema(metadata)):
        raise UserError(f"{path} has other columns or types than {metadata.policy!r} should: copy or extract it again")
    _check_sizes(path, file, metadata, proof)
    return file


def _check_sizes(path: Path, file: "pq.ParquetFile", metadata: DumpMetadata, proof: DumpFile) -> None:
    """Refuse a file that claims more than its metadata: what it says decides how much memory reading it takes."""
    footer = file.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    counts = [group.num_rows for group in groups]
    if footer.num_rows != proof.records or sum(counts) != proof.records:
        raise UserError(
            f"{path} holds {footer.num_rows} records, its metadata counts {proof.records}: extract it again"
        )
    if any(not 0 < count <= ROW_GROUP_RECORDS for count in counts):
        raise UserError(f"{path} has row groups of an absurd size: copy or extract it again")
    widest = max(len(columns) for columns in metadata.all_tables.values())
    for group in groups:
        for i in range(group.num_columns):
            chunk = group.column(i)
            is_table = chunk.path_in_schema.startswith(_TABLE)
            if is_table and chunk.num_values > group.num_rows * ROWS_AT_MOST * widest:
                raise UserError(f"{path} has tables of an absurd size: copy or extract it again")


def _decide(
    path: Path, file: "pq.ParquetFile", proof: DumpFile, selection: Selection
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Read who and when the records are, and return the lives, those columns, and which records are kept."""
    identity = _identity(path, file, proof)
    try:
        lives, inverse, rank = rank_in_life(identity)
    except ValueError as error:
        raise UserError(f"{path}: {error}: extract it again") from None
    return lives, identity, selection.keep(lives, inverse, rank)


def _identity(path: Path, file: "pq.ParquetFile", proof: DumpFile) -> dict[str, np.ndarray]:
    table = file.read(columns=list(IDENTITY))
    _check_lengths(table, proof.records)
    identity = {name: table.column(name).to_numpy() for name in IDENTITY}
    if (identity["episode"] != proof.episode).any():
        raise UserError(f"{path} holds other episodes than {proof.episode}: extract it again")
    lives = len(np.unique(np.stack([identity[name] for name in LIFE_KEY], axis=1), axis=0))
    if lives != proof.lives:
        raise UserError(f"{path} holds {lives} lives, its metadata counts {proof.lives}: extract it again")
    return identity


def _check_lengths(table: "pa.Table", records: int) -> None:
    """Raise ValueError where a column is not valid inside, misses values or is shorter than it says."""
    table.validate(full=True)
    if len(table) != records or any(column.null_count for column in table.columns):
        raise ValueError("a column lacks values")


def _wanted_columns(metadata: DumpMetadata, selection: Selection) -> list[str]:
    names = [name for name in MAY_BE_UNRECORDED if name not in metadata.unrecorded]
    names += ["action", *selection.columns, *(_ACTIVATION + name for name in selection.layers)]
    if "tile" not in selection.leave_out:
        names += [_TILE + name for name in TILE_COLUMNS]
    left_out = {name.capitalize() for name in selection.leave_out}
    return names + [_TABLE + name for name in ("Entity", "Inventory", *selection.tables) if name not in left_out]


def _from_table(
    table: "pa.Table", identity: dict[str, np.ndarray], metadata: DumpMetadata, selection: Selection, path: Path
) -> Records:
    """Return a row group as records; floats are finite, actions lie in their heads."""
    count = len(table)
    unrecorded = {"reward": (count,), "value": (count,), "log_probability": (count, len(metadata.action_heads))}
    found: dict[str, Any] = {name: np.full(unrecorded[name], np.nan, np.float32) for name in metadata.unrecorded}
    found |= {name: _to_numpy(table, name) for name in MAY_BE_UNRECORDED if name not in metadata.unrecorded}
    activations = {name: _to_numpy(table, _ACTIVATION + name) for name in selection.layers}
    columns = {name: _to_numpy(table, name) for name in selection.columns}
    recorded = {name: values for name, values in found.items() if name not in metadata.unrecorded}
    for name, values in {**recorded, **activations, **columns}.items():
        check_finite(name, values, str(path))
    action = _to_numpy(table, "action").astype(np.int64)
    if ((action < 0) | (action >= np.array([head.size for head in metadata.action_heads]))).any():
        raise UserError(f"{path}: an action lies outside its head: extract it again")
    tables = {
        name: _to_rows(table, name, len(metadata.all_tables[name]), path)
        for name in ("Entity", "Inventory", *selection.tables)
    }
    tile = np.empty(tiles_shape(selection, count), np.int16)
    if "tile" not in selection.leave_out:
        for i, name in enumerate(TILE_COLUMNS):
            tile[:, :, i] = _to_numpy(table, _TILE + name)
    return Records(
        **identity,
        **found,
        action=action,
        activations={name: values.astype(np.float32, copy=False) for name, values in activations.items()},
        tile=tile,
        entity=tables.pop("Entity"),
        inventory=tables.pop("Inventory"),
        columns=columns,
        tables=tables,
    )


def _to_numpy(table: "pa.Table", name: str) -> np.ndarray:
    """Return a column as (B,) or (B, width)."""
    import pyarrow as pa

    column = table.column(name).combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def _to_rows(table: "pa.Table", name: str, width: int, path: Path) -> RaggedRows:
    if _TABLE + name not in table.column_names:
        return no_rows(len(table), width)
    column = table.column(_TABLE + name).combine_chunks()
    offsets = column.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    if (offsets % width).any() or (np.diff(offsets) > ROWS_AT_MOST * width).any():
        raise UserError(f"{path}: the rows of {name} do not have {width} columns: extract it again")
    return RaggedRows(column.flatten().to_numpy().reshape(-1, width), offsets // width)


@contextlib.contextmanager
def _arrow_faults(path: Path) -> Iterator[None]:
    """Turn what Arrow says of a damaged file into one line that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, NotImplementedError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{path} is damaged ({reason}): copy or extract it again") from None
