"""The writer refuses records that would make an invalid dump, and leaves nothing half-written behind."""

import dataclasses
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from activation_store.columns import COLUMNS
from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE, RECORDS_FILE, Records, shard_name
from activation_store.writer import DumpWriter, state_of
from common.user_error import UserError
from tests.planted import Planted, planted_dump, planted_metadata, write_planted


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=2, episodes=1, ticks=12)


def spoil(records: Records, name: str, value: float) -> Records:
    spoiled = np.array(getattr(records, name))
    spoiled[..., -1] = value
    return dataclasses.replace(records, **{name: spoiled})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["reward", "value", "log_probability", "activations"])
def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path, planted: Planted, name: str, value: float) -> None:
    if name == "activations":
        layer = planted.records.activations["action_decoder"].copy()
        layer[3, 2] = value
        records = dataclasses.replace(planted.records, activations={"action_decoder": layer})
    else:
        records = spoil(planted.records, name, value)
    with pytest.raises(UserError, match="NaN or infinite"), DumpWriter(tmp_path, planted.metadata) as writer:
        writer.write(records)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", [RECORDS_FILE, METADATA_FILE, shard_name(0)])
def test_a_folder_that_holds_a_dump_is_refused(tmp_path: Path, planted: Planted, name: str, resume: bool) -> None:
    (tmp_path / name).write_text("kept")
    writer = DumpWriter(tmp_path, planted.metadata, resume=resume)
    with pytest.raises(UserError, match="already holds a dump"), writer:
        pytest.fail("the block must not run")
    assert (tmp_path / name).read_text() == "kept"


def test_a_dump_that_appears_meanwhile_is_not_overwritten(tmp_path: Path, planted: Planted) -> None:
    with pytest.raises(UserError, match="already holds a dump"), DumpWriter(tmp_path, planted.metadata) as writer:
        writer.write(planted.records)
        (tmp_path / RECORDS_FILE).write_text("another extraction's")
    assert (tmp_path / RECORDS_FILE).read_text() == "another extraction's"
    assert state_of(tmp_path) == "unfinished"


def test_leaving_the_block_finishes_the_dump_and_nothing_is_written_after_the_end(
    tmp_path: Path, planted: Planted
) -> None:
    with DumpWriter(tmp_path, planted.metadata) as writer:
        writer.write(planted.records)
    assert read_metadata(tmp_path).episodes == []
    with DumpWriter(tmp_path / "other", planted.metadata) as writer:
        writer.close([])
        with pytest.raises(ValueError, match="not open"):
            writer.write(planted.records)
        with pytest.raises(ValueError, match="not open"):
            writer.close([])


@pytest.mark.parametrize(
    ("changes", "action", "message"),
    [
        ({"layers": {"action_decoder": 15}}, 0, "the metadata declares"),
        ({"layers": {"action_decoder": 16, "lstm_cell": 4}}, 0, "the metadata declares"),
        ({"entity_columns": ("id", "npc_type")}, 0, "the metadata declares"),
        ({"action_heads": planted_metadata().action_heads[:3]}, 0, "the metadata declares"),
        ({"layers": {}}, 0, "names no layer"),
        ({}, 13, "outside its head"),
        ({}, 0, "does not come after"),  # ticks of a life must rise
    ],
)
def test_records_must_be_as_declared(
    tmp_path: Path, planted: Planted, changes: dict[str, object], action: int, message: str
) -> None:
    metadata = dataclasses.replace(planted.metadata, **changes)
    with pytest.raises(ValueError, match=message), DumpWriter(tmp_path, metadata) as writer:
        for _ in range(2):
            writer.write(spoil(planted.records, "action", action))


@pytest.mark.parametrize(("form", "few"), [("json", 50), ("parquet", 300)])
def test_memory_does_not_follow_the_number_of_records(tmp_path: Path, planted: Planted, form: str, few: int) -> None:
    metadata = dataclasses.replace(planted.metadata, format=form)

    def peak(batches: int) -> int:
        tracemalloc.start()
        with DumpWriter(tmp_path / str(batches), metadata) as writer:
            for i in range(batches):
                writer.write(dataclasses.replace(planted.records, tick=planted.records.tick + 100 * i))
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(1)  # imports
    assert peak(5 * few) < 2 * peak(few)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, planted: Planted, form: str) -> None:
    """A limit on file size acts like a disk that fills up in the middle of a file."""
    metadata = dataclasses.replace(planted.metadata, format=form)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, hard))
    try:
        with pytest.raises(UserError, match="cannot be written"), DumpWriter(tmp_path / "dump", metadata) as writer:
            writer.write(planted.records)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "dump").iterdir()) == []


@pytest.mark.parametrize("name", ["tick", "activation/action_decoder", "table/Entity", "tile/row"])
def test_a_column_does_not_bear_the_name_of_another_field(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="has the name of another field"):
        write_planted(tmp_path / "dump", planted_dump(agents=1, ticks=5), columns={name: COLUMNS["row"]})
    assert not (tmp_path / "dump").exists()
