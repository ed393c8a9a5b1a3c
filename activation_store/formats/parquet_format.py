"""Records as Parquet: one file per episode, columns of fixed types, compressed with zstd.

Readers select records from five integer columns, then read the large columns only in row groups that hold any.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from activation_store.columns import check_finite
from activation_store.formats.parquet_layout import (
    ACTIVATION,
    TABLE,
    TILE,
    arrow_schema,
    columns_for,
    encodings,
    numbers_of,
    read_numbers,
    read_rows,
    to_table,
)
from activation_store.formats.safe_parquet import arrow_faults, check_expansion, check_pages
from activation_store.lives import number_lives, rank_in_life
from activation_store.records import RaggedRows, Records
from activation_store.schema import IDENTITY, ROWS_AT_MOST, TILE_COLUMNS, DumpFile, DumpMetadata
from activation_store.selection import Gathering, Selection, no_rows, tiles_shape
from common.files import HashedFile, open_file
from common.user_error import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_RECORDS = 4096
_FOOTER_BYTES_AT_MOST = 1 << 24


class ParquetShard:
    """Writes the records of one episode in row groups of a fixed number of records."""

    def __init__(self, file: HashedFile, metadata: DumpMetadata) -> None:
        import pyarrow.parquet as pq

        self._metadata = metadata
        self._schema = arrow_schema(metadata)
        self._writer = pq.ParquetWriter(
            file, self._schema, compression="zstd", write_statistics=False, **encodings(metadata)
        )
        self._waiting = self._room()

    def write(self, records: Records) -> None:
        """Append records; they are written one row group at a time."""
        start = 0
        while start < len(records):
            end = start + ROW_GROUP_RECORDS - self._waiting.size
            fits = start == 0 and len(records) <= end
            part = records if fits else records.take(np.arange(start, min(end, len(records))))
            self._waiting.add(part)
            start += len(part)
            if self._waiting.size == ROW_GROUP_RECORDS:
                self._write_group()

    def finish(self) -> None:
        """Write the remaining records and the footer."""
        if self._waiting.size:
            self._write_group()
        self._writer.close()

    def give_up(self) -> None:
        """Close the file, which is about to be removed."""
        import pyarrow as pa

        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()

    def _room(self) -> Gathering:
        everything = Selection(
            tuple(self._metadata.layers), tuple(self._metadata.columns), tuple(self._metadata.tables)
        )
        return Gathering(self._metadata, everything, ROW_GROUP_RECORDS)

    def _write_group(self) -> None:
        # As one table: the file must not depend on batch boundaries, and creating many small tables is slow.
        table = to_table(self._waiting.finish(), self._metadata, self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP_RECORDS)
        self._waiting = self._room()


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
        keep = _kept(path, identity, lives, life, selection)
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


def _kept(
    path: Path, identity: dict[str, np.ndarray], lives: np.ndarray, life: np.ndarray, selection: Selection
) -> np.ndarray:
    try:
        rank = rank_in_life(life, identity["tick"])
    except ValueError as error:
        raise UserError(f"{path}: {error}: extract it again") from None
    return selection.keep(lives, life, rank)


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
    return columns_for([*names, *(TABLE + name for name in selection.read_tables)], metadata)


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
        check_finite(name.removeprefix(ACTIVATION), values, str(path))
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
