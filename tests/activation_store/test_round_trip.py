"""Dumps are read back bit for bit, with any batches, layers and strides."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from activation_store.formats.parquet_format import ROW_GROUP_RECORDS
from activation_store.formats.parquet_format import join_planes as join
from activation_store.formats.parquet_format import split_planes as split
from activation_store.reader import read_dump, read_identity, read_metadata
from activation_store.schema import IDENTITY, LIFE_KEY, METADATA_FILE, RECORDS_FILE, RaggedRows, Records
from activation_store.selection import Subsample
from tests.command import assert_refuses
from tests.planted import planted_dump, with_optional_parts, write_planted

TWO_LAYERS = {"lstm_hidden": 5, "action_decoder": 7}
FORMATS = ("json", "parquet")
both_formats = pytest.mark.parametrize("form", FORMATS)


def assert_same_records(left: Records, right: Records) -> None:
    for column in dataclasses.fields(Records):
        a, b = getattr(left, column.name), getattr(right, column.name)
        pairs = [(a, b)] if not isinstance(a, dict) else [(a[name], b[name]) for name in a.keys() | b.keys()]
        for x, y in pairs:
            if isinstance(x, RaggedRows):
                np.testing.assert_array_equal(x.offsets, y.offsets)
                x, y = x.values, y.values
            assert x.dtype == y.dtype, column.name
            assert x.shape == y.shape and x.tobytes() == y.tobytes(), column.name


def completed(records: Records) -> Records:
    """Add the columns that the writer computes: position, and number of the life in its episode."""
    seen: dict[int, dict[int, int]] = {}
    lives = [
        seen.setdefault(episode, {}).setdefault(agent, len(seen[episode]))
        for episode, agent in zip(records.episode.tolist(), records.agent_id.tolist(), strict=True)
    ]
    derived = {"row": records.tile[:, 112, 0], "col": records.tile[:, 112, 1], "life": np.array(lives, np.int32)}
    return dataclasses.replace(records, columns={**records.columns, **derived})


@both_formats
@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_every_column_survives_bit_for_bit(tmp_path: Path, batch: int, form: str) -> None:
    planted = with_optional_parts(planted_dump(layers=TWO_LAYERS, agents=3, ticks=20))
    write_planted(tmp_path / "dump", planted, batch, format=form)
    assert_same_records(read_dump(tmp_path / "dump"), completed(planted.records))


@both_formats
def test_floats_of_every_magnitude_survive(tmp_path: Path, form: str) -> None:
    planted = planted_dump(agents=3, ticks=20)
    shape = planted.records.activations["action_decoder"].shape
    bits = np.random.default_rng(1).integers(0, 1 << 32, shape, dtype=np.uint32)
    values = bits.view(np.float32)
    values[~np.isfinite(values)] = -0.0
    planted = dataclasses.replace(
        planted, records=dataclasses.replace(planted.records, activations={"action_decoder": values})
    )
    write_planted(tmp_path / "dump", planted, format=form)
    assert read_dump(tmp_path / "dump").activations["action_decoder"].tobytes() == values.tobytes()


def test_metadata_counts_and_proves_the_files(tmp_path: Path) -> None:
    planted = planted_dump()
    metadata = read_metadata(write_planted(tmp_path / "dump", planted))
    lives = {tuple(life) for life in np.stack([getattr(planted.records, name) for name in LIFE_KEY], 1).tolist()}
    assert (metadata.records, metadata.lives) == (len(planted.records), len(lives))
    assert metadata.files[RECORDS_FILE].bytes == (tmp_path / "dump" / RECORDS_FILE).stat().st_size
    assert metadata.episodes == [{"episode": 0, "seed": 1, "map": 1}]
    unwritten = dataclasses.replace(metadata, records=0, lives=0, files={}, episodes=[], columns={})
    assert unwritten == planted.metadata


def test_file_is_a_json_array_with_one_record_a_line(tmp_path: Path) -> None:
    planted = planted_dump(layers=TWO_LAYERS, agents=2, ticks=10)
    folder = write_planted(tmp_path / "dump", planted)
    assert {path.name for path in folder.iterdir()} == {RECORDS_FILE, METADATA_FILE}
    text = (folder / RECORDS_FILE).read_text()
    records = json.loads(text)
    assert len(records) == len(planted.records)
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[1:-1]] == records
    first = records[0]
    assert first["policy"] == "planted" and len(first["activation"]) == TWO_LAYERS["action_decoder"]
    assert list(first["activations"]) == ["lstm_hidden"]
    assert len(first["observation"]["Entity"]) == planted.records.entity.counts[0]
    assert all(type(number) is int for row in first["observation"]["Tile"] for number in row)
    assert first["observation"]["CurrentTick"] == [first["tick"]]


@both_formats
def test_only_what_is_asked_for_is_read(tmp_path: Path, form: str) -> None:
    planted = with_optional_parts(planted_dump(layers=TWO_LAYERS, agents=2, ticks=10))
    folder = write_planted(tmp_path / "dump", planted, format=form)
    records = read_dump(folder, layers=["lstm_hidden"], columns=["done"], leave_out=["tile", "inventory", "tables"])
    assert list(records.activations) == ["lstm_hidden"]
    assert list(records.columns) == ["done"] and not records.tables
    assert records.tile.shape == (len(records), 0, 3) and records.inventory.counts.sum() == 0
    np.testing.assert_array_equal(records.entity.values, planted.records.entity.values)
    assert_refuses("no column 'row'", records.column, "row")
    without = read_dump(folder, leave_out=["value", "log_probability"])
    assert np.isnan(without.value).all() and np.isnan(without.log_probability).all()
    np.testing.assert_array_equal(without.reward, planted.records.reward)
    np.testing.assert_array_equal(records.activations["lstm_hidden"], planted.records.activations["lstm_hidden"])


@both_formats
@pytest.mark.parametrize("subsample", [Subsample(2), Subsample(7, 3, seed=5), Subsample(1, 4), Subsample(20, seed=1)])
def test_every_nth_record_of_each_life_is_kept(tmp_path: Path, subsample: Subsample, form: str) -> None:
    planted = planted_dump(agents=5, ticks=25)
    kept, seen = [], {}
    for i in range(len(planted.records)):
        life = tuple(int(getattr(planted.records, name)[i]) for name in LIFE_KEY)
        seen[life] = seen.get(life, -1) + 1
        first = int(subsample.first_kept(np.array([life]))[0])
        if seen[life] in range(first, 1000, subsample.every):
            kept.append(i)
    folder = write_planted(tmp_path / "dump", planted, format=form)
    assert_same_records(read_dump(folder, subsample=subsample), completed(planted.records).take(np.array(kept)))
    some = read_dump(folder, subsample=subsample, episodes=[1])
    assert_same_records(
        some, completed(planted.records).take(np.array([i for i in kept if planted.records.episode[i] == 1]))
    )


@both_formats
def test_only_the_lives_and_episodes_asked_for_are_kept(tmp_path: Path, form: str) -> None:
    planted = planted_dump(agents=5, episodes=3, ticks=25)
    folder = write_planted(tmp_path / "dump", planted, format=form)
    truth = completed(planted.records)
    assert_same_records(read_dump(folder, episodes=[2, 0]), truth.take(truth.episode != 1))
    lives = [(1, 2, 0), (4, 5, 2), (7, 7, 7)]
    wanted = [life in lives for life in zip(truth.env_id, truth.agent_id, truth.episode, strict=True)]
    assert_same_records(read_dump(folder, lives=lives), truth.take(np.array(wanted)))
    identity = read_identity(folder)
    for name in IDENTITY:
        np.testing.assert_array_equal(identity[name], getattr(truth, name))
    assert_refuses("none of the requested records", read_dump, folder, lives=[(7, 7, 7)])


def test_a_shard_that_is_not_asked_for_is_not_opened(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "dump", planted_dump(agents=2, episodes=3, ticks=10), format="parquet")
    shards = {f"episode-00000{number}.parquet" for number in range(3)}
    assert {path.name for path in folder.iterdir()} == {*shards, METADATA_FILE}
    damaged = folder / "episode-000001.parquet"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert set(read_dump(folder, episodes=[0, 2]).episode.tolist()) == {0, 2}
    assert_refuses(r"episode-000001\.parquet does not match its SHA-256", read_dump, folder)


def test_several_row_groups_are_read_as_one(tmp_path: Path) -> None:
    planted = with_optional_parts(planted_dump(agents=40, episodes=1, ticks=260, layers={"action_decoder": 3}))
    assert len(planted.records) > ROW_GROUP_RECORDS
    folder = write_planted(tmp_path / "dump", planted, batch=300, format="parquet")
    truth = completed(planted.records)
    assert_same_records(read_dump(folder), truth)
    other = write_planted(tmp_path / "other", planted, batch=999, format="parquet")
    assert (folder / METADATA_FILE).read_bytes() == (other / METADATA_FILE).read_bytes()


@pytest.mark.parametrize("batch", [13, 10_000])
def test_float16_says_what_it_costs(tmp_path: Path, batch: int) -> None:
    planted = planted_dump(agents=3, ticks=20)
    folder = write_planted(tmp_path / "dump", planted, batch, format="parquet", precision="float16")
    exact = planted.records.activations["action_decoder"]
    read = read_dump(folder).activations["action_decoder"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, exact.astype(np.float16).astype(np.float32))
    absolute = np.abs(read.astype(float) - exact.astype(float))
    stated = read_metadata(folder).precision_error["action_decoder"]
    assert stated.absolute == absolute.max() > 0
    assert stated.relative == (absolute / np.abs(exact.astype(float))).max() > 0
    assert read_dump(folder).value.tobytes() == planted.records.value.tobytes()


def test_float16_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    planted = planted_dump(agents=1, ticks=5)
    planted.records.activations["action_decoder"][2, 3] = 70_000
    message, how = "float16 cannot; use float32", {"format": "parquet", "precision": "float16"}
    assert_refuses(message, write_planted, tmp_path / "dump", planted, **how)
    assert list((tmp_path / "dump").iterdir()) == []


@both_formats
def test_what_is_unrecorded_reads_as_nan(tmp_path: Path, form: str) -> None:
    planted = planted_dump(agents=2, ticks=10)
    unrecorded = ("reward", "value", "log_probability")
    records = read_dump(write_planted(tmp_path / "dump", planted, format=form, unrecorded=unrecorded))
    for name in unrecorded:
        assert np.isnan(getattr(records, name)).all() and getattr(records, name).dtype == np.float32
    np.testing.assert_array_equal(records.action, planted.records.action)


@both_formats
def test_progress_rises_from_nothing_to_all(tmp_path: Path, form: str) -> None:
    shares: list[float] = []
    read_dump(write_planted(tmp_path / "dump", planted_dump(), format=form), progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0 and shares[0] > 0


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"])
def test_every_number_survives(dtype: str) -> None:
    kind = np.dtype(dtype)
    bits = np.random.default_rng(0).integers(0, 256, (7, 5 * kind.itemsize), dtype=np.uint8)
    values = bits % 2 == 0 if dtype == "bool" else bits.view(kind)
    planes = split(values)
    assert [plane.shape for plane in planes] == [(7, 5)] * kind.itemsize
    joined = join(planes, kind)
    assert joined.dtype == kind and joined.tobytes() == values.tobytes()


def test_planes_are_of_bytes_the_least_significant_first_however_values_lie() -> None:
    low, high = split(np.array([[0x1234, -1]], np.int16))
    assert low.tolist() == [[0x34, 0xFF]] and high.tolist() == [[0x12, 0xFF]]
    values = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    np.testing.assert_array_equal(join(split(values[:, :, 1]), np.dtype(np.int16)), values[:, :, 1])
    assert join(split(np.empty((0, 4), np.float32)), np.dtype(np.float32)).shape == (0, 4)
