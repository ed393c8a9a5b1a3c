"""Rewrite dumps: as one ordinary Parquet file for other programs, in the other format, or as a small sample to share.

In the file for other programs, vectors are lists and table rows have named fields. The dump's own Parquet files hold
vectors as planes of bytes (`parquet_format.py`), which reads fast but which no other program understands. An export is
larger and cannot be read back; keep the dump.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson

from activation_store.exchange.original_tools import find_original, import_original
from activation_store.formats.parquet_format import ROW_GROUP_RECORDS, TABLE, TILE, Numbers, numbers_of, values_of
from activation_store.lives import number_lives
from activation_store.reader import read_batches, read_identity, read_metadata
from activation_store.records import Records
from activation_store.schema import DumpMetadata, Format, Precision
from activation_store.selection import ALL_RECORDS, Selection, Subsample, select
from activation_store.writer import DumpWriter
from common.files import atomic_path
from common.user_error import UserError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".parquet"
DUMP_KEY, SELECTION_KEY = b"activation_dump", b"activation_selection"
"""Keys of the schema's metadata: the dump's metadata and the selection made from it, both as JSON."""


def export(
    source: Path,
    path: Path,
    report: Callable[[float], None],
    *,
    layers: Sequence[str] | None = None,
    leave_out: Iterable[str] = (),
    subsample: Subsample = ALL_RECORDS,
) -> int:
    """Write records of a dump to one Parquet file that any program reads, and return how many there are.

    Single numbers keep their type, vectors are lists of fixed length, and a table is a list of rows with
    named int16 columns. Activations are float32 whatever the dump's precision. Memory holds one row group.

    Args:
        path: of the new file; must end in .parquet and not exist yet.
        leave_out: fields not to export: `tile`, `entity`, `inventory`, `tables` (all other tables).
        subsample: which records of each life to keep.

    Raises:
        UserError: the source is not a complete dump, lacks a layer or has no records; or the file already exists, does
            not end in .parquet or cannot be written.
    """
    import pyarrow.parquet as pq

    if path.suffix != SUFFIX:
        raise UserError(f"{path} does not end in {SUFFIX}: an export is one Parquet file")
    if path.exists():
        raise UserError(f"{path} already exists: delete it, or choose another file")
    metadata = read_metadata(source)
    selection = select(source, metadata, layers=layers, leave_out=leave_out, subsample=subsample)
    schema = export_schema(metadata, selection)
    scalars = [field.name for field in schema if field.type.num_fields == 0]
    records = 0
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary, schema, compression="zstd", use_dictionary=scalars, write_statistics=scalars
        ) as writer,
    ):
        for table in _row_groups(read_batches(source, metadata, selection, report), metadata, selection, schema):
            writer.write_table(table, row_group_size=ROW_GROUP_RECORDS)
            records += len(table)
    return records


def export_schema(metadata: DumpMetadata, selection: Selection) -> "pa.Schema":
    """Return the columns of an export, with the dump's metadata and the selection as JSON in the schema's metadata."""
    import pyarrow as pa

    fields = [pa.field("policy", pa.string())]
    for name, (dtype, width) in _numbers_of(metadata, selection).items():
        kind = pa.from_numpy_dtype(dtype)
        fields.append(pa.field(name, kind if width is None else pa.list_(kind, width)))
    for name in selection.read_tables:
        row = pa.struct([pa.field(column, pa.int16()) for column in metadata.all_tables[name]])
        fields.append(pa.field(TABLE + name, pa.list_(row)))
    selected = {
        "layers": selection.layers,
        "leave_out": sorted(selection.leave_out),
        "tables": selection.tables,
        "subsample": asdict(selection.subsample),
    }
    return pa.schema(
        fields, metadata={DUMP_KEY: orjson.dumps(metadata.to_json()), SELECTION_KEY: orjson.dumps(selected)}
    )


def _numbers_of(metadata: DumpMetadata, selection: Selection) -> dict[str, Numbers]:
    layers = {name: metadata.layers[name] for name in selection.layers}
    numeric = numbers_of(replace(metadata, layers=layers, precision="float32"))
    if "tile" in selection.leave_out:
        return {name: numbers for name, numbers in numeric.items() if not name.startswith(TILE)}
    return numeric


def _row_groups(
    batches: Iterator[Records], metadata: DumpMetadata, selection: Selection, schema: "pa.Schema"
) -> "Iterator[pa.Table]":
    """Yield tables of at least one row group each, except the last: a subsample's batches are small."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(_to_table(batch, metadata, selection, schema))
        if sum(map(len, waiting)) >= ROW_GROUP_RECORDS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _to_table(records: Records, metadata: DumpMetadata, selection: Selection, schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa

    values = values_of(records)
    arrays: list[pa.Array] = [pa.repeat(metadata.policy, len(records))]
    for name, (dtype, width) in _numbers_of(metadata, selection).items():
        flat = pa.array(np.ascontiguousarray(values[name], dtype).reshape(-1))
        arrays.append(flat if width is None else pa.FixedSizeListArray.from_arrays(flat, width))
    for name in selection.read_tables:
        rows, kind = records.all_tables[name], schema.field(TABLE + name).type
        columns = [pa.array(np.ascontiguousarray(column)) for column in rows.values.T]
        structs = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        arrays.append(pa.ListArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), structs, type=kind))
    return pa.Table.from_arrays(arrays, schema=schema)


def convert(
    source: Path, folder: Path, form: Format, precision: Precision | None, report: Callable[[float], None]
) -> None:
    """Write a dump of this toolkit or of the original tools as a dump of the given format.

    Args:
        source: folder of a dump; or a file of the original tools, or its folder.
        folder: of the new dump; must not hold one yet.
        precision: of its activations; None keeps the source's, if the format supports it.
        report: called with the share of the work done, from 0 to 1.

    Raises:
        UserError: the source is not a complete dump, or the folder already holds one.
    """
    if original := find_original(source):
        import_original(original, folder, form, precision or "float32", report)
        return
    metadata = read_metadata(source)
    kept = metadata.precision if form == "parquet" else "float32"
    target = replace(metadata, format=form, precision=precision or kept)
    _copy(source, metadata, select(source, metadata), folder, target, report)


def sample(
    source: Path, folder: Path, *, lives: int | None, episodes: int | None, seed: int, report: Callable[[float], None]
) -> None:
    """Write a random sample of whole lives, or of whole episodes, as a dump of the same format.

    Raises:
        UserError: the source is not a complete dump or holds fewer, or the folder already holds a dump.
    """
    metadata = read_metadata(source)
    identity = read_identity(source)
    all_lives, _ = number_lives(identity)
    there, count = (all_lives, lives) if lives is not None else (np.unique(identity["episode"])[:, None], episodes)
    if count is None or not 1 <= count <= len(there):
        raise UserError(f"{source} holds {len(there)} {'lives' if lives is not None else 'episodes'}, not {count}")
    chosen = there[np.sort(np.random.default_rng(seed).choice(len(there), count, replace=False))].tolist()
    selection = select(
        source, metadata, lives=chosen if lives is not None else None, episodes={life[-1] for life in chosen}
    )
    _copy(source, metadata, selection, folder, metadata, report)


def _copy(
    source: Path,
    metadata: DumpMetadata,
    selection: Selection,
    folder: Path,
    target: DumpMetadata,
    report: Callable[[float], None],
) -> None:
    if folder.resolve() == source.resolve():
        raise UserError(f"{folder} is the dump itself: choose another folder")
    blank = replace(target, records=0, lives=0, files={}, episodes=[])
    numbered = {described.get("episode"): described for described in metadata.episodes}
    described = {
        number: numbered[number] for number in numbered if type(number) is int and selection.wants_episode(number)
    }
    unfinished: set[int] = set()
    with DumpWriter(folder, blank) as writer:
        for batch in read_batches(source, metadata, selection, report):
            here = set(batch.episode.tolist())
            for episode in sorted(unfinished - here):
                writer.finish_episode(episode, described.pop(episode, None))
            if here & writer.stored.keys():
                raise UserError(f"{source} mixes the records of its episodes: extract it again")
            unfinished = here
            writer.write(batch)
        writer.close(list(described.values()))
