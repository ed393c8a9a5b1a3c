"""An export holds the content of the dump in a form that other programs can read."""

import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from activation_store.exchange.export import DUMP_KEY, SELECTION_KEY, convert, export
from activation_store.formats.parquet_format import ROW_GROUP_RECORDS
from activation_store.reader import read_dump, read_metadata
from activation_store.records import RaggedRows
from activation_store.schema import IDENTITY, MAY_BE_UNRECORDED, TILE_COLUMNS, Format
from activation_store.selection import Subsample
from tests.activation_store.exchange.conftest import LAYERS, silent
from tests.command import assert_refused, assert_refuses, run
from tests.fuzz import flip
from tests.planted import planted_dump, write_planted


@pytest.fixture(scope="module")
def exported(dumps: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exports") / "whole.parquet"
    export(dumps["parquet"], path, silent)
    return path


def rows_of(table: RaggedRows, columns: tuple[str, ...]) -> list[list[dict[str, int]]]:
    """Each record's rows as dictionaries."""
    rows = [dict(zip(columns, row, strict=True)) for row in table.values.tolist()]
    return [rows[a:b] for a, b in zip(table.offsets[:-1], table.offsets[1:], strict=True)]


def test_every_number_of_the_dump_is_there(dumps: dict[str, Path], exported: Path) -> None:
    table, records, metadata = pq.read_table(exported), read_dump(dumps["parquet"]), read_metadata(dumps["parquet"])
    expected = {name: getattr(records, name) for name in (*IDENTITY, *MAY_BE_UNRECORDED, "action")} | records.columns
    expected |= {f"activation/{name}": values for name, values in records.activations.items()}
    expected |= {f"tile/{name}": records.tile[:, :, i] for i, name in enumerate(TILE_COLUMNS)}
    for name, values in expected.items():
        assert table[name].to_pylist() == values.tolist(), name
    assert set(metadata.tables), "the dump should have a further table"
    for name, columns in metadata.all_tables.items():
        assert table[f"table/{name}"].to_pylist() == rows_of(records.all_tables[name], columns), name
    assert set(table["policy"].to_pylist()) == {"planted"}
    named = {*expected, *(f"table/{name}" for name in metadata.all_tables), "policy"}
    assert set(table.column_names) == named


def test_the_metadata_goes_along_and_vectors_are_lists_of_a_fixed_size(dumps: dict[str, Path], exported: Path) -> None:
    schema = pq.read_schema(exported)
    metadata = schema.metadata
    assert orjson.loads(metadata[DUMP_KEY]) == orjson.loads((dumps["parquet"] / "metadata.json").read_bytes())
    selected = orjson.loads(metadata[SELECTION_KEY])
    assert selected == {"layers": list(LAYERS), "leave_out": [], "tables": ["Market"], "subsample": asdict(Subsample())}
    for name, units in LAYERS.items():
        assert schema.field(f"activation/{name}").type == pa.list_(pa.float32(), units)
    assert schema.field("done").type == pa.bool_() and schema.field("row").type == pa.int16()


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_selection(dumps: dict[str, Path], tmp_path: Path, form: Format) -> None:
    path = tmp_path / "some.parquet"
    left_out = ["tile", "entity", "tables"]
    count = export(dumps[form], path, silent, layers=["lstm_cell"], leave_out=left_out, subsample=Subsample(7))
    table, records = pq.read_table(path), read_dump(dumps[form], subsample=Subsample(7))
    assert count == len(table) == len(records)
    for name in IDENTITY:
        assert table[name].to_pylist() == getattr(records, name).tolist()
    assert table["activation/lstm_cell"].to_pylist() == records.activations["lstm_cell"].tolist()
    prefixes = ("activation/", "tile/", "table/")
    shown = [name for name in table.column_names if name.startswith(prefixes)]
    assert shown == ["activation/lstm_cell", "table/Inventory"]


def test_half_precision_is_exported_as_single(dumps: dict[str, Path], tmp_path: Path) -> None:
    convert(dumps["json"], tmp_path / "half", "parquet", "float16", silent)
    export(tmp_path / "half", tmp_path / "half.parquet", silent)
    values = pq.read_table(tmp_path / "half.parquet")["activation/lstm_cell"]
    assert values.type.value_type == pa.float32()
    assert values.to_pylist() == read_dump(tmp_path / "half").activations["lstm_cell"].tolist()


def test_small_batches_make_full_row_groups(tmp_path: Path) -> None:
    dump = write_planted(tmp_path / "dump", planted_dump(agents=40, episodes=3, ticks=120), format="parquet")
    export(dump, tmp_path / "out.parquet", silent, leave_out=["tile", "entity", "inventory"])
    footer = pq.read_metadata(tmp_path / "out.parquet")
    sizes = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert len(read_metadata(dump).files) == 3 and sum(sizes) == read_metadata(dump).records
    assert max(sizes) == ROW_GROUP_RECORDS and min(sizes) < ROW_GROUP_RECORDS


def test_command_line(dumps: dict[str, Path], tmp_path: Path) -> None:
    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run("-m", "activation_store", "export", *arguments)

    out = tmp_path / "out.parquet"
    done = call(dumps["parquet"], out, "--layers", "lstm_cell", "--leave-out", "tile,tables", "--subsample", 5)
    assert done.returncode == 0, done.stderr
    assert f"{pq.read_metadata(out).num_rows} records" in done.stdout
    before = out.read_bytes()
    for arguments, printed in (
        ((dumps["parquet"], out), "already exists"),
        ((dumps["parquet"], tmp_path / "out.csv"), "does not end in .parquet"),
        ((dumps["parquet"], tmp_path / "x.parquet", "--layers", "nonsense"), "no layer 'nonsense'"),
        ((dumps["parquet"], tmp_path / "x.parquet", "--leave-out", "action"), "tile, entity, inventory, tables"),
        ((dumps["parquet"], tmp_path / "x.parquet", "--subsample", 0), "subsample is 0"),
        ((tmp_path / "nowhere", tmp_path / "x.parquet"), "does not exist"),
    ):
        assert_refused(call(*arguments), printed)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"] and out.read_bytes() == before


def test_a_damaged_dump_leaves_no_export(dumps: dict[str, Path], tmp_path: Path) -> None:
    convert(dumps["json"], tmp_path / "dump", "parquet", None, silent)
    last = tmp_path / "dump" / "episode-000002.parquet"
    flip(last, last.stat().st_size // 2, 255)
    message = "episode-000002.parquet does not match its SHA-256"
    assert_refuses(message, export, tmp_path / "dump", tmp_path / "out.parquet", silent)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


OTHERS: dict[str, Callable[[Any, Path], Any]] = {
    "pandas": lambda pandas, path: pandas.read_parquet(path),
    "polars": lambda polars, path: polars.read_parquet(path),
    "duckdb": lambda duckdb, path: duckdb.read_parquet(str(path)).to_arrow_table().to_pydict(),
    "datasets": lambda datasets, path: datasets.Dataset.from_parquet(str(path), cache_dir=str(path.parent / "cache")),
}


@pytest.mark.parametrize("program", OTHERS)
def test_other_programs_read_it(dumps: dict[str, Path], exported: Path, program: str) -> None:
    columns, records = OTHERS[program](pytest.importorskip(program), exported), read_dump(dumps["parquet"])
    assert np.array_equal(columns["agent_id"], records.agent_id)
    cells = np.array([list(cell) for cell in columns["activation/lstm_cell"]], np.float32)
    assert np.array_equal(cells, records.activations["lstm_cell"])
