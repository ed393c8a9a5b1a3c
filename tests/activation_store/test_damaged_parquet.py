"""Damaged and forged parquet dumps are refused in one line."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from activation_store.formats.parquet_format import join_planes as join
from activation_store.formats.parquet_format import split_planes as split
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import METADATA_FILE, shard_name
from tests.activation_store.damage import one_line, sign, sign_metadata
from tests.fuzz import flip
from tests.planted import planted_dump, with_optional_parts, write_planted

SHARD = shard_name(0)
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = with_optional_parts(planted_dump(agents=2, episodes=2, ticks=6, layers={"action_decoder": 4}))
    return write_planted(tmp_path_factory.mktemp("dumps") / "whole", planted, format="parquet")


def rewrite(folder: Path, change: Change, **options: Any) -> None:
    """Change the first shard and sign it."""
    table = change(pq.read_table(folder / SHARD))
    pq.write_table(table, folder / SHARD, **options)
    sign(folder, SHARD)


def test_a_missing_shard_a_foreign_one_and_absurd_metadata_are_refused(dump: Path) -> None:
    (dump / SHARD).unlink()
    assert f"lacks {SHARD}" in one_line(dump)
    pq.write_table(pa.table({"a": [1, 2, 3]}), dump / SHARD)
    sign(dump, SHARD)
    assert f"{SHARD} has other columns or types" in one_line(dump)
    with (dump / METADATA_FILE).open("r+b") as file:
        file.truncate(1 << 40)
    assert "files of its kind have at most 67,108,864" in one_line(dump)


def replaced(name: str, kind: pa.DataType, values: Callable[[list[Any]], list[Any]] = lambda old: old) -> Change:
    """Give a column another type."""

    def change(table: pa.Table) -> pa.Table:
        i = table.schema.get_field_index(name)
        column = pa.array(values(table.column(name).to_pylist()), kind)
        return table.set_column(i, pa.field(name, kind, nullable=False), column)

    return change


def put(name: str, place: int, value: Any) -> Change:
    def change(table: pa.Table) -> pa.Table:
        column = table.column(name).to_pylist()
        column[place] = value
        i = table.schema.get_field_index(name)
        return table.set_column(i, table.schema.field(name), pa.array(column, table.schema.field(name).type))

    return change


def put_in_vector(name: str, dtype: Any, place: tuple[int, int], value: float) -> Change:
    """Change one number of a vector in all its planes."""

    def change(table: pa.Table) -> pa.Table:
        names = [f"{name}#{i}" for i in range(np.dtype(dtype).itemsize)]
        planes = [np.array([list(row) for row in table.column(item).to_pylist()], np.uint8) for item in names]
        values = join(planes, np.dtype(dtype))
        values[place] = value
        for item, plane in zip(names, split(values), strict=True):
            table = replaced(item, table.schema.field(item).type, lambda _, plane=plane: [*map(bytes, plane)])(table)
        return table

    return change


def without_a_value(table: pa.Table) -> pa.Table:
    fields = [field.with_nullable(True) for field in table.schema]
    return put("reward", 0, None)(table.cast(pa.schema(fields)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["reward"]), "other columns or types"),
        (lambda table: table.append_column("extra", table.column("tick")), "other columns or types"),
        (replaced("step", pa.int32()), "other columns or types"),
        (
            replaced("activation/action_decoder#3", pa.binary(3), lambda old: [row[:3] for row in old]),
            "other columns or types",
        ),
        (
            replaced(
                "table/Inventory", pa.list_(pa.field("element", pa.binary(30), False)), lambda old: [[]] * len(old)
            ),
            "other columns or types",
        ),
        (lambda table: table.slice(1), "its metadata counts"),
        (lambda table: pa.concat_tables([table, table]), "its metadata counts"),
        (lambda table: table.take(np.arange(len(table))[::-1]), "the ticks of a life do not increase"),
        (put("agent_id", 0, 99), "3 lives, its metadata counts 2"),
        (put("episode", 0, 1), "episodes other than 0"),
        (put("reward", 0, float("nan")), "reward holds NaN or infinity"),
        (put_in_vector("logits", np.float32, (1, 0), np.inf), "logits holds NaN or infinity"),
        (put_in_vector("action", np.int32, (0, 0), 3), "an action lies outside its head"),
        (put_in_vector("action", np.int32, (0, 0), -1), "an action lies outside its head"),
        (put("table/Entity", 0, [bytes(62)] * 40_000), "tables of an absurd size"),
        (without_a_value, "other columns or types"),
        (put("table/Market", 0, [bytes(32)] * 513), "a record has more than 512 rows in Market"),
    ],
)
def test_a_signed_shard_of_the_wrong_content(dump: Path, change: Change, message: str) -> None:
    rewrite(dump, change)
    assert message in one_line(dump)


def bomb(records: int) -> Change:
    """Repeat the records so often that a small file holds a lot."""
    return lambda table: table.take(np.random.default_rng(0).integers(0, len(table), records))


def test_bombs_are_refused_before_they_are_read(dump: Path) -> None:
    rewrite(dump, bomb(100_000), compression="zstd", row_group_size=100_000)
    assert "its metadata counts" in one_line(dump)
    sign(dump, SHARD, records=100_000)
    assert "row groups of an absurd size" in one_line(dump)
    sign(dump, SHARD, records=10**9)
    assert "too small for the 1000000000 records" in one_line(dump)


def test_tables_that_take_far_more_memory_than_their_file_are_refused_before_they_are_read(dump: Path) -> None:
    """Each of their numbers alone is possible."""
    records, rows = 4096, 300

    def enlarge(table: pa.Table) -> pa.Table:
        many = table.take(np.zeros(records, np.int64))
        place = many.schema.get_field_index("table/Entity")
        kind = many.schema.field(place).type
        width = kind.value_type.byte_width
        values = pa.FixedSizeBinaryArray.from_buffers(
            kind.value_type, records * rows, [None, pa.py_buffer(bytes(records * rows * width))]
        )
        offsets = pa.array(np.arange(records + 1, dtype=np.int32) * rows)
        return many.set_column(place, many.schema.field(place), pa.ListArray.from_arrays(offsets, values, type=kind))

    rewrite(dump, enlarge, compression="zstd")
    sign(dump, SHARD, records=records)
    assert (dump / SHARD).stat().st_size < 1 << 18
    assert "bytes of memory for" in one_line(dump)


def test_a_page_that_unpacks_to_more_than_the_footer_says_is_refused(dump: Path) -> None:
    chunk = next(
        chunk
        for chunk in map(pq.ParquetFile(dump / SHARD).metadata.row_group(0).column, range(100))
        if chunk.path_in_schema == "tile/material#0"
    )
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    flip(dump / SHARD, start + 3, bits=2)  # after its kind comes the size of what is packed in it
    sign(dump, SHARD)
    assert "the pages of tile/material#0 hold" in one_line(dump)


def test_too_little_memory_is_not_called_damage(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pa.lib.ArrowMemoryError("malloc of size 1048576 failed")

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", fail)
    message = one_line(dump)
    assert "there is too little memory" in message and "damaged" not in message


@pytest.mark.parametrize("name", ["../episode-000000.parquet", "/etc/passwd", "episode-0.parquet", "activations.json"])
def test_file_names_that_no_writer_gave_are_refused(dump: Path, name: str) -> None:
    content = orjson.loads((dump / METADATA_FILE).read_bytes())
    content["files"][name] = content["files"].pop(SHARD)
    sign_metadata(dump, content)
    assert f"{METADATA_FILE} contradicts itself: it lists" in one_line(dump)


def test_the_folder_may_be_a_link_below_a_name_that_is_no_text_but_its_files_may_not_lead_out_of_it(dump: Path) -> None:
    odd = dump.parent / os.fsdecode(b"caf\xe9")
    odd.symlink_to(dump)
    assert len(read_dump(odd)) == read_metadata(dump).records
    for name in (SHARD, METADATA_FILE):
        (dump / name).rename(dump.parent / "elsewhere")
        (dump / name).symlink_to(dump.parent / "elsewhere")
        assert f"{name} is a link that leads out of the folder" in one_line(dump)
        (dump.parent / "elsewhere").rename(dump / name)
