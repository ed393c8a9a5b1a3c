"""Dumps and directions with damage of every kind, signed: the content that the file tells, or one line."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activation_store.directions import Direction, Source, read_directions, write_directions
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from activation_store.schema import IDENTITY, METADATA_FILE, RECORDS_FILE, SCHEMA_VERSION, shard_name
from tests.activation_store.damage import sign
from tests.fuzz import budget, damaged_json, damaged_tensors, junk, read_or_refuse, resigned
from tests.planted import planted_dump, with_optional_parts, write_planted

SHARD = shard_name(0)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    planted = with_optional_parts(planted_dump(agents=2, episodes=2, ticks=6, layers={"action_decoder": 4}))
    folder = tmp_path_factory.mktemp("dumps")
    return {name: write_planted(folder / name, planted, format=name) for name in ("json", "parquet")}


@pytest.fixture
def copies(wholes: dict[str, Path], tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Fresh copies of both dumps, one after the other."""
    return (
        {name: Path(shutil.copytree(whole, tmp_path / str(number) / name)) for name, whole in wholes.items()}
        for number in itertools.count()
    )


@budget(120)
@given(data=st.data())
def test_metadata(copies: Iterator[dict[str, Path]], data: st.DataObject) -> None:
    folder = next(copies)[data.draw(st.sampled_from(["json", "parquet"]))]
    path = folder / METADATA_FILE
    if data.draw(st.integers(0, 4), label="bytes") == 0:
        path.write_bytes(junk(data, path.read_bytes()))
    else:
        path.write_bytes(resigned(damaged_json(data, orjson.loads(path.read_bytes()))))
    metadata = read_or_refuse(lambda: read_metadata(folder), folder)
    if metadata is not None:
        told = orjson.loads(path.read_bytes())
        same = {"checksum", "schema_version", *({"files"} if told["schema_version"] < SCHEMA_VERSION else ())}
        expected = {key: value for key, value in told.items() if key not in same}
        found = orjson.loads(orjson.dumps(metadata.to_json()))
        assert {key: found[key] for key in expected} == expected
        read_or_refuse(lambda: read_dump(folder), folder)


def check_told(records: Records, told: list[dict[str, Any]]) -> None:
    """The records are those of a JSON array."""
    assert len(records) == len(told)
    for name in (*IDENTITY, "action"):
        assert getattr(records, name).tolist() == [record[name] for record in told]
    for name in ("reward", "value"):
        assert getattr(records, name).tolist() == np.float32([record[name] for record in told]).tolist()
    activations = records.activations["action_decoder"]
    assert activations.tolist() == np.float32([record["activation"] for record in told]).tolist()


@budget(200)
@given(data=st.data())
def test_json_dumps(copies: Iterator[dict[str, Path]], data: st.DataObject) -> None:
    folder = next(copies)["json"]
    path = folder / RECORDS_FILE
    content = path.read_bytes()
    if data.draw(st.integers(0, 3), label="bytes") == 0:
        path.write_bytes(junk(data, content))
    else:
        lines = content.split(b"\n")
        place = data.draw(st.integers(1, len(lines) - 3), label="line")
        lines[place] = damaged_json(data, orjson.loads(lines[place].rstrip(b","))) + b"," * lines[place].endswith(b",")
        path.write_bytes(b"\n".join(lines))
    sign(folder, RECORDS_FILE)
    records = read_or_refuse(lambda: read_dump(folder), folder)
    if records is not None:
        check_told(records, orjson.loads(path.read_bytes()))


@budget(250)
@given(data=st.data())
def test_parquet_dumps(copies: Iterator[dict[str, Path]], data: st.DataObject) -> None:
    folder = next(copies)["parquet"]
    path, before = folder / SHARD, read_metadata(folder)
    kind = data.draw(st.sampled_from(["bytes", "bytes", "bytes", "column"]), label="what")
    if kind == "bytes":
        for _ in range(data.draw(st.integers(1, 3), label="times")):
            path.write_bytes(junk(data, path.read_bytes()))
    else:
        table = pq.read_table(path)
        names = data.draw(st.permutations(table.schema.names), label="order")
        rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=len(table)), label="rows")
        pq.write_table(
            table.select(names[: data.draw(st.integers(1, len(names)))]).take(pa.array(rows, pa.int64())), path
        )
    sign(folder, SHARD)
    records = read_or_refuse(lambda: read_dump(folder), path if kind == "bytes" else folder)
    if records is not None:
        first = records.episode == 0
        assert len(records) == before.records and first.sum() == before.files[SHARD].records
        told = pq.read_table(path, columns=[*IDENTITY, "reward"])
        for name in told.column_names:
            assert getattr(records, name)[first].tolist() == told.column(name).to_pylist()


@budget(150)
@given(data=st.data())
def test_directions(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("directions") / "directions.safetensors"
    source = Source("probe", "run", "dump", "policy", "ab" * 32)
    weights = np.linspace(-1, 1, 14, dtype=np.float32).reshape(2, 7)
    write_directions(path, [
        Direction(f"probe/{i}", "lstm_hidden", weight, 0.5, "tick", 3.0, 2.0, 50, 10, 2, source)
        for i, weight in enumerate(weights)
    ])  # fmt: skip
    truth = damaged_tensors(data, path, "directions")
    found = read_or_refuse(lambda: read_directions(path), path)
    if found is not None:
        assert truth is not None, "a file whose hash does not fit was read"
        arrays, text = truth
        told = orjson.loads(text)["directions"]
        assert [(each.name, each.layer, each.records) for each in found] == [
            (each["name"], each["layer"], each["records"]) for each in told
        ]
        for each in found:
            assert (
                np.array_equal(each.weight, arrays[f"{each.name}/weight"]) and each.bias == arrays[f"{each.name}/bias"]
            )
