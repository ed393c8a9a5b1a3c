"""Whatever a parquet dump has suffered, and whatever was made to look like one, is refused in one line."""

import dataclasses
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activation_store.files import write_json
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import METADATA_FILE, DumpFile, DumpMetadata, shard_name
from tests.planted import planted_dump, with_optional_parts, write_planted
from user_error import UserError

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHARD = shard_name(0)
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = with_optional_parts(planted_dump(agents=2, episodes=2, ticks=6, layers={"action_decoder": 4}))
    return write_planted(tmp_path_factory.mktemp("dumps") / "whole", planted, format="parquet")


@pytest.fixture
def dump(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "dump"))


def one_line(folder: Path, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        read_dump(folder, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 700
    return message


def sign(folder: Path, **changes: Any) -> None:
    """Make the metadata vouch for whatever the first shard holds now; `changes` are made to its proof."""
    metadata = DumpMetadata.from_json(orjson.loads((folder / METADATA_FILE).read_bytes()), "metadata")
    content = (folder / SHARD).read_bytes()
    proof = DumpFile(hashlib.sha256(content).hexdigest(), len(content), *dataclasses.astuple(metadata.files[SHARD])[2:])
    files = {**metadata.files, SHARD: dataclasses.replace(proof, **changes)}
    counts = {name: sum(getattr(file, name) for file in files.values()) for name in ("records", "lives")}
    write_json(folder / METADATA_FILE, dataclasses.replace(metadata, files=files, **counts).to_json())


def rewrite(folder: Path, change: Change, **options: Any) -> None:
    """Change the first shard and sign it."""
    table = change(pq.read_table(folder / SHARD))
    pq.write_table(table, folder / SHARD, **options)
    sign(folder)


def test_every_truncation_is_found(dump: Path) -> None:
    content = (dump / SHARD).read_bytes()
    for size in {*range(0, len(content), 499), len(content) - 1}:
        (dump / SHARD).write_bytes(content[:size])
        assert f"{SHARD} is truncated: {size} of {len(content)} bytes" in one_line(dump)


@FUZZ
@given(data=st.data())
def test_every_flipped_byte_is_found(dump: Path, whole: Path, data: st.DataObject) -> None:
    content = bytearray((whole / SHARD).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (dump / SHARD).write_bytes(content)
    assert f"{SHARD} does not match its SHA-256" in one_line(dump)


@FUZZ
@given(data=st.data())
def test_a_signed_truncation_or_junk_is_refused(dump: Path, whole: Path, data: st.DataObject) -> None:
    """Nobody but an attacker signs damage; even then there is a message and no traceback."""
    content = (whole / SHARD).read_bytes()
    shutil.copytree(whole, dump, dirs_exist_ok=True)
    junk = data.draw(st.binary(max_size=60))
    cut = data.draw(st.integers(0, len(content) - 1))
    (dump / SHARD).write_bytes(data.draw(st.sampled_from([content[:cut] + junk, b"PAR1" + junk + b"PAR1", junk])))
    sign(dump)
    assert SHARD in one_line(dump)


def test_a_missing_shard_and_a_foreign_one(dump: Path) -> None:
    (dump / SHARD).unlink()
    assert f"lacks {SHARD}" in one_line(dump)
    pq.write_table(pa.table({"a": [1, 2, 3]}), dump / SHARD)
    sign(dump)
    assert f"{SHARD} has other columns or types" in one_line(dump)


def replaced(name: str, values: pa.Array, kind: pa.DataType | None = None) -> Change:
    def change(table: pa.Table) -> pa.Table:
        i = table.schema.get_field_index(name)
        field = table.schema.field(name) if kind is None else pa.field(name, kind, nullable=False)
        return table.set_column(i, field, values if not callable(values) else values(table))

    return change


def put(name: str, place: int, value: Any) -> Change:
    def change(table: pa.Table) -> pa.Table:
        column = table.column(name).to_pylist()
        column[place] = value(column[place]) if callable(value) else value
        i = table.schema.get_field_index(name)
        return table.set_column(i, table.schema.field(name), pa.array(column, table.schema.field(name).type))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["reward"]), "other columns or types"),
        (lambda table: table.append_column("extra", table.column("tick")), "other columns or types"),
        (replaced("reward", lambda t: t.column("reward").cast(pa.float64()), pa.float64()), "other columns or types"),
        (replaced("step", lambda t: t.column("step").cast(pa.int32()), pa.int32()), "other columns or types"),
        (lambda table: table.slice(1), "its metadata counts"),
        (lambda table: pa.concat_tables([table, table]), "its metadata counts"),
        (lambda table: table.take(np.arange(len(table))[::-1]), "the ticks of a life do not rise"),
        (put("agent_id", 0, 99), "3 lives, its metadata counts 2"),
        (put("episode", 0, 1), "other episodes than 0"),
        (put("reward", 0, float("nan")), "reward holds NaN or infinity"),
        (put("logits", 1, lambda row: [float("inf"), *row[1:]]), "logits holds NaN or infinity"),
        (put("activation/action_decoder", 1, [1.0, 2.0, float("nan"), 3.0]), "action_decoder holds NaN or infinity"),
        (put("action", 0, lambda row: [3, *row[1:]]), "an action lies outside its head"),
        (put("action", 0, lambda row: [-1, *row[1:]]), "an action lies outside its head"),
        (put("table/Entity", 0, [1, 2, 3]), "the rows of Entity do not have 31 columns"),
        (put("table/Market", 0, [0] * (16 * 513)), "the rows of Market do not have 16 columns"),
    ],
)
def test_a_signed_shard_of_the_wrong_content(dump: Path, change: Change, message: str) -> None:
    rewrite(dump, change)
    assert message in one_line(dump)


def test_missing_values_are_refused(dump: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        fields = [field.with_nullable(True) for field in table.schema]
        return put("reward", 0, None)(table.cast(pa.schema(fields)))

    rewrite(dump, change)
    assert "other columns or types" in one_line(dump)


def bomb(records: int, row_group: int) -> Change:
    """Repeat one record so often that a small file holds gigabytes."""
    return lambda table: table.take(np.zeros(records, np.int64))


def test_bombs_are_refused_before_they_are_read(dump: Path) -> None:
    rewrite(dump, bomb(100_000, 100_000), compression="zstd", row_group_size=100_000)
    assert "its metadata counts" in one_line(dump)
    sign(dump, records=100_000)
    assert "row groups of an absurd size" in one_line(dump)
    sign(dump, records=10**9)
    assert "too small for the 1000000000 records" in one_line(dump)


def test_a_bomb_in_a_table_is_refused(dump: Path) -> None:
    rewrite(dump, put("table/Entity", 0, [0] * (31 * 40_000)))
    message = one_line(dump)
    assert "tables of an absurd size" in message or "do not have 31 columns" in message


@pytest.mark.parametrize("name", [SHARD, METADATA_FILE])
def test_links_out_of_the_folder_are_refused(dump: Path, tmp_path: Path, name: str) -> None:
    (dump / name).rename(tmp_path / "elsewhere")
    (dump / name).symlink_to(tmp_path / "elsewhere")
    assert f"{name} is a link that leads out of the folder" in one_line(dump)


def test_the_folder_itself_may_be_a_link(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(dump)
    assert len(read_dump(tmp_path / "link")) == read_metadata(dump).records


@pytest.mark.parametrize("name", ["../episode-000000.parquet", "/etc/passwd", "episode-0.parquet", "activations.json"])
def test_file_names_that_no_writer_gave_are_refused(dump: Path, name: str) -> None:
    content = orjson.loads((dump / METADATA_FILE).read_bytes())
    content["files"][name] = content["files"].pop(SHARD)
    del content["checksum"]
    checksum = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
    write_json(dump / METADATA_FILE, {**content, "checksum": checksum})
    assert f"{METADATA_FILE} contradicts itself: it lists" in one_line(dump)


def test_absurd_metadata_takes_no_time(dump: Path) -> None:
    with (dump / METADATA_FILE).open("r+b") as file:
        file.truncate(1 << 40)
    assert "is larger than 64 MiB" in one_line(dump)
