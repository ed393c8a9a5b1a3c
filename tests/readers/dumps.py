"""Dumps and directions with damage of every kind, signed: the content that the file tells, or one line."""

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from activation_store.directions import Direction, Source, read_directions, write_directions
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from activation_store.schema import IDENTITY, METADATA_FILE, RECORDS_FILE, SCHEMA_VERSION, shard_name
from tests.activation_store.damage import sign
from tests.fuzz import Bench, damaged_json, damaged_tensors, junk, read_or_refuse, reader, resigned
from tests.planted import planted_dump, with_optional_parts, write_planted

SHARD = shard_name(0)


@functools.cache
def wholes(bench: Bench) -> dict[str, Path]:
    planted = with_optional_parts(planted_dump(agents=2, episodes=2, ticks=6, layers={"action_decoder": 4}))
    folder = bench.folder()
    return {name: write_planted(folder / name, planted, format=name) for name in ("json", "parquet")}


def copy(bench: Bench, folder: Path, name: str) -> Path:
    return Path(shutil.copytree(wholes(bench)[name], folder / name))


@reader("activation_store.reader:read_metadata", cases=120)
def metadata(bench: Bench, folder: Path, data: st.DataObject) -> None:
    folder = copy(bench, folder, data.draw(st.sampled_from(["json", "parquet"])))
    path = folder / METADATA_FILE
    if data.draw(st.integers(0, 4), label="bytes") == 0:
        path.write_bytes(junk(data, path.read_bytes()))
    else:
        path.write_bytes(resigned(damaged_json(data, orjson.loads(path.read_bytes()))))
    metadata = read_or_refuse(lambda: read_metadata(folder), folder)
    if metadata is not None:
        output = orjson.loads(path.read_bytes())
        same = {"checksum", "schema_version", *({"files"} if output["schema_version"] < SCHEMA_VERSION else ())}
        expected = {key: value for key, value in output.items() if key not in same}
        result = orjson.loads(orjson.dumps(metadata.to_json()))
        assert {key: result[key] for key in expected} == expected
        read_or_refuse(lambda: read_dump(folder), folder)


def check_told(records: Records, shown: list[dict[str, Any]]) -> None:
    """The records are those of a JSON array."""
    assert len(records) == len(shown)
    for name in (*IDENTITY, "action"):
        assert getattr(records, name).tolist() == [record[name] for record in shown]
    for name in ("reward", "value"):
        assert getattr(records, name).tolist() == np.float32([record[name] for record in shown]).tolist()
    activations = records.activations["action_decoder"]
    assert activations.tolist() == np.float32([record["activation"] for record in shown]).tolist()


@reader("activation_store.formats.json_format:_record_lines", cases=200)
def json_dumps(bench: Bench, folder: Path, data: st.DataObject) -> None:
    folder = copy(bench, folder, "json")
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


@reader(
    "activation_store.formats.parquet_format:_open",
    "activation_store.formats.parquet_format:read_shard_batches",
    "activation_store.formats.parquet_format:read_shard_identity",
    cases=250,
)
def parquet_dumps(bench: Bench, folder: Path, data: st.DataObject) -> None:
    folder = copy(bench, folder, "parquet")
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
        output = pq.read_table(path, columns=[*IDENTITY, "reward"])
        for name in output.column_names:
            assert getattr(records, name)[first].tolist() == output.column(name).to_pylist()


@reader("activation_store.directions:read_directions", cases=150)
def directions(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "directions.safetensors"
    source = Source("probe", "run", "dump", "policy", "ab" * 32)
    weights = np.linspace(-1, 1, 14, dtype=np.float32).reshape(2, 7)
    write_directions(path, [
        Direction(f"probe/{i}", "lstm_hidden", weight, 0.5, "tick", 3.0, 2.0, 50, 10, 2, source)
        for i, weight in enumerate(weights)
    ])  # fmt: skip
    truth = damaged_tensors(data, path, "directions")
    result = read_or_refuse(lambda: read_directions(path), path)
    if result is not None:
        assert truth is not None, "a file whose hash does not fit was read"
        arrays, text = truth
        output = orjson.loads(text)["directions"]
        assert [(item.name, item.layer, item.records) for item in result] == [
            (item["name"], item["layer"], item["records"]) for item in output
        ]
        for item in result:
            assert (
                np.array_equal(item.weight, arrays[f"{item.name}/weight"]) and item.bias == arrays[f"{item.name}/bias"]
            )
