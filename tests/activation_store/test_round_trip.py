"""What is written is what is read, bit for bit, in any batches, layers and strides."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import LIFE_KEY, METADATA_FILE, RECORDS_FILE, RaggedRows, Records
from tests.planted import planted_dump, write_planted

TWO_LAYERS = {"lstm_hidden": 5, "action_decoder": 7}


def assert_same_records(left: Records, right: Records) -> None:
    for column in dataclasses.fields(Records):
        a, b = getattr(left, column.name), getattr(right, column.name)
        if isinstance(a, RaggedRows):
            np.testing.assert_array_equal(a.offsets, b.offsets)
            a, b = a.values, b.values
        pairs = [(a, b)] if not isinstance(a, dict) else [(a[name], b[name]) for name in a.keys() | b.keys()]
        for x, y in pairs:
            assert x.dtype == y.dtype, column.name
            assert x.shape == y.shape and x.tobytes() == y.tobytes(), column.name


@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_every_column_survives_bit_for_bit(tmp_path: Path, batch: int) -> None:
    planted = planted_dump(layers=TWO_LAYERS, agents=3, ticks=20)
    write_planted(tmp_path / "dump", planted, batch)
    assert_same_records(read_dump(tmp_path / "dump"), planted.records)


def test_floats_of_every_magnitude_survive(tmp_path: Path) -> None:
    planted = planted_dump(agents=3, ticks=20)
    shape = planted.records.activations["action_decoder"].shape
    bits = np.random.default_rng(1).integers(0, 1 << 32, shape, dtype=np.uint32)
    values = bits.view(np.float32)
    values[~np.isfinite(values)] = -0.0
    planted = dataclasses.replace(
        planted, records=dataclasses.replace(planted.records, activations={"action_decoder": values})
    )
    write_planted(tmp_path / "dump", planted)
    assert read_dump(tmp_path / "dump").activations["action_decoder"].tobytes() == values.tobytes()


def test_metadata_counts_and_proves_the_files(tmp_path: Path) -> None:
    planted = planted_dump()
    metadata = read_metadata(write_planted(tmp_path / "dump", planted))
    lives = {tuple(life) for life in np.stack([getattr(planted.records, name) for name in LIFE_KEY], 1).tolist()}
    assert (metadata.records, metadata.lives) == (len(planted.records), len(lives))
    assert metadata.files[RECORDS_FILE].bytes == (tmp_path / "dump" / RECORDS_FILE).stat().st_size
    assert metadata.episodes == [{"episode": 0, "seed": 1, "map": 1}]
    unwritten = dataclasses.replace(metadata, records=0, lives=0, files={}, episodes=[])
    assert unwritten == planted.metadata


def test_file_is_a_json_array_with_one_record_a_line(tmp_path: Path) -> None:
    planted = planted_dump(layers=TWO_LAYERS, agents=2, ticks=10)
    text = (write_planted(tmp_path / "dump", planted) / RECORDS_FILE).read_text()
    records = json.loads(text)
    assert len(records) == len(planted.records)
    assert [json.loads(line.rstrip(",")) for line in text.splitlines()[1:-1]] == records
    first = records[0]
    assert first["policy"] == "planted" and len(first["activation"]) == TWO_LAYERS["action_decoder"]
    assert list(first["activations"]) == ["lstm_hidden"]
    assert len(first["observation"]["Entity"]) == planted.records.entity.counts[0]
    assert all(type(number) is int for row in first["observation"]["Tile"] for number in row)
    assert first["observation"]["CurrentTick"] == [first["tick"]]


def test_only_the_layers_asked_for_are_read(tmp_path: Path) -> None:
    planted = planted_dump(layers=TWO_LAYERS, agents=2, ticks=10)
    records = read_dump(write_planted(tmp_path / "dump", planted), layers=["lstm_hidden"])
    assert list(records.activations) == ["lstm_hidden"]
    np.testing.assert_array_equal(records.activations["lstm_hidden"], planted.records.activations["lstm_hidden"])


@pytest.mark.parametrize("subsample", [2, 7, 1000])
def test_every_nth_record_of_each_life_is_kept(tmp_path: Path, subsample: int) -> None:
    planted = planted_dump(agents=5, ticks=25)
    kept, seen = [], {}
    for i in range(len(planted.records)):
        life = tuple(int(getattr(planted.records, name)[i]) for name in LIFE_KEY)
        seen[life] = seen.get(life, -1) + 1
        if seen[life] % subsample == 0:
            kept.append(i)
    read = read_dump(write_planted(tmp_path / "dump", planted), subsample=subsample)
    assert_same_records(read, planted.records.take(np.array(kept)))


def test_progress_rises_from_nothing_to_all(tmp_path: Path) -> None:
    shares: list[float] = []
    read_dump(write_planted(tmp_path / "dump", planted_dump()), progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0 and shares[0] > 0


def test_nothing_but_the_dump_lies_in_the_folder(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "dump", planted_dump(agents=1, ticks=5))
    assert {path.name for path in folder.iterdir()} == {RECORDS_FILE, METADATA_FILE}
