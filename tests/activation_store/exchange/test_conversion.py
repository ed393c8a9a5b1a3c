"""Converting a dump to the other format and back changes nothing, and neither does it change the analysis."""

import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest
from rich.console import Console

from activation_store.exchange.export import convert, sample
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import LIFE_KEY, METADATA_FILE, RECORDS_FILE, Format
from analysis.clusters.dataset import read_dataset
from analysis.clusters.settings import AnalysisSettings
from analysis.features import features_named
from common.progress_view import step as progress_step
from tests.activation_store.exchange.conftest import silent
from tests.activation_store.test_round_trip import assert_same_records
from tests.command import assert_refused, assert_refuses, python, run_here

GOLDEN = Path(__file__).parents[1] / "golden"


def test_there_and_back_changes_no_byte_and_float16_remembers_what_it_cost(
    dumps: dict[str, Path], tmp_path: Path
) -> None:
    assert_same_records(read_dump(dumps["json"]), read_dump(dumps["parquet"]))
    convert(dumps["parquet"], tmp_path / "back", "json", None, silent)
    for name in (RECORDS_FILE, METADATA_FILE):
        assert (tmp_path / "back" / name).read_bytes() == (dumps["json"] / name).read_bytes()
    convert(tmp_path / "back", tmp_path / "again", "parquet", None, silent)
    for path in dumps["parquet"].iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    convert(dumps["json"], tmp_path / "half", "parquet", "float16", silent)
    convert(tmp_path / "half", tmp_path / "full", "json", None, silent)
    half, back = (read_metadata(tmp_path / name) for name in ("half", "full"))
    assert half.precision_error == back.precision_error and set(half.precision_error) == set(half.layers)
    assert back.precision == "float32"
    assert_same_records(read_dump(tmp_path / "half"), read_dump(tmp_path / "full"))


def test_an_analysis_reads_the_same_from_either_format(dumps: dict[str, Path]) -> None:
    features, step = features_named(["default", "moved"]), partial(progress_step, Console())
    one, other = (
        read_dataset(AnalysisSettings(dump, subsample=2), read_metadata(dump), features, step)
        for dump in dumps.values()
    )
    assert any(feature.over_time for feature in features)  # for which the formats are read in different ways
    assert_same_records(one.records, other.records)
    np.testing.assert_array_equal(one.values, other.values)


def test_a_dump_of_schema_version_1_is_read_and_converted(tmp_path: Path) -> None:
    old = GOLDEN / "version_1"
    lines = [orjson.loads(line.rstrip(b",")) for line in (old / RECORDS_FILE).read_bytes().splitlines()[1:-1]]
    records = read_dump(old)
    assert records.activations["action_decoder"].tolist() == [
        np.array(line["activation"], np.float32).tolist() for line in lines
    ]
    assert not records.columns
    convert(old, tmp_path / "new", "parquet", None, silent)
    new = read_dump(tmp_path / "new")
    assert set(new.columns) == {"row", "col", "life"}
    assert_same_records(read_dump(tmp_path / "new", columns=[]), records)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_sample_holds_whole_lives(dumps: dict[str, Path], tmp_path: Path, form: Format) -> None:
    sample(dumps[form], tmp_path / "sample", lives=4, episodes=None, seed=3, report=silent)
    records, whole = read_dump(tmp_path / "sample"), read_dump(dumps[form])
    metadata = read_metadata(tmp_path / "sample")
    assert metadata.lives == 4 and metadata.format == form
    chosen = set(zip(*(getattr(records, name).tolist() for name in LIFE_KEY), strict=True))
    wanted = np.array([life in chosen for life in zip(*(getattr(whole, name) for name in LIFE_KEY), strict=True)])
    assert_same_records(records, whole.take(wanted))


def test_a_sample_of_episodes(dumps: dict[str, Path], tmp_path: Path) -> None:
    how = {"lives": None, "seed": 0, "report": silent}
    sample(dumps["parquet"], tmp_path / "sample", episodes=2, **how)
    assert len(read_metadata(tmp_path / "sample").files) == 2
    assert_refuses("holds 3 episodes, not 4", sample, dumps["parquet"], tmp_path / "other", episodes=4, **how)


def store(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_here("activation_store/__main__.py", *arguments)


def test_command_line(dumps: dict[str, Path], tmp_path: Path) -> None:
    output = python("-m", "activation_store", "info", dumps["parquet"])
    shown = ("policy\tplanted", "records\t", "action_decoder (16)", "legal\tuint8 x", "truth/distance\tfloat32\ttiles")
    assert all(part in output.stdout for part in shown)
    assert "is whole" in store("validate", dumps["parquet"]).stdout
    converted = store("convert", dumps["parquet"], tmp_path / "out", "--format", "json")
    assert converted.returncode == 0 and "bytes a record" in converted.stdout
    assert (tmp_path / "out" / RECORDS_FILE).read_bytes() == (dumps["json"] / RECORDS_FILE).read_bytes()
    assert store("sample", tmp_path / "out", tmp_path / "some", "--lives", 2).returncode == 0


def test_bad_input_is_one_line(dumps: dict[str, Path], tmp_path: Path) -> None:
    assert_refused(store("info", tmp_path / "nowhere"), "does not exist")
    assert_refused(store("convert", dumps["json"], dumps["parquet"]), "already holds a dump")
    assert_refused(
        store("convert", dumps["json"], tmp_path / "x", "--format", "json", "--precision", "float16"), "JSON"
    )
    assert_refused(store("sample", dumps["json"], tmp_path / "x"), "--lives N or --episodes N")
    damaged = Path(shutil.copytree(dumps["parquet"], tmp_path / "damaged"))
    (damaged / "episode-000001.parquet").write_bytes(b"")
    assert_refused(store("validate", damaged), "episode-000001.parquet is truncated")
