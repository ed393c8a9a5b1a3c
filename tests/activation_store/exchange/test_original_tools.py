"""Dumps of the original tools are imported completely: their layouts, padding and dead agents."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from activation_store.exchange.export import convert
from activation_store.reader import read_dump, read_metadata
from activation_store.records import RaggedRows, Records
from tests.activation_store.exchange.conftest import silent
from tests.command import assert_refuses
from tests.planted import planted_dump, write_planted

KEYS = ("step", "env_id", "agent_id", "activation", "observation", "action")


def truth(agents: int = 3, episodes: int = 2, ticks: int = 8) -> Records:
    """Living agents whose used rows have non-zero ids."""
    records = planted_dump(agents=agents, episodes=episodes, ticks=ticks, layers={"action_decoder": 6}).records
    health = 12
    records.entity.values[:, health] = np.maximum(records.entity.values[:, health], 1)
    records.inventory.values[:, 0] = np.maximum(records.inventory.values[:, 0], 1)
    return records


def padded(rows: RaggedRows, i: int, full: int) -> list[list[float]]:
    used = rows.values[rows.offsets[i] : rows.offsets[i + 1]].astype(float).tolist()
    return used + [[0.0] * rows.values.shape[1]] * (full - len(used))


def as_original(records: Records, i: int) -> dict[str, Any]:
    observation = {
        "Tile": records.tile[i].astype(float).tolist(),
        "Entity": padded(records.entity, i, 100),
        "Inventory": padded(records.inventory, i, 12),
        "Market": [[0.0] * 16] * 384,
        "CurrentTick": [float(records.tick[i])],
    }
    return {
        **{name: int(getattr(records, name)[i]) for name in ("step", "env_id", "agent_id")},
        "activation": records.activations["action_decoder"][i].astype(float).tolist(),
        "observation": observation,
        "action": records.action[i].tolist(),
    }


def dead(record: dict[str, Any], kind: int) -> dict[str, Any]:
    """Return a record without a living agent: an empty slot, an agent that cannot see itself, or one without health."""
    gone = json.loads(json.dumps(record))
    if kind == 0:
        gone["agent_id"] = 0
    if kind in (0, 1):
        gone["observation"]["Entity"] = [[0.0] * 31] * 100
        gone["observation"]["CurrentTick"] = [0.0]
    for row in gone["observation"]["Entity"]:
        if kind == 2 and row[0] == gone["agent_id"]:
            row[12] = 0.0
    return gone


def original_records(records: Records) -> list[dict[str, Any]]:
    """Every record, and one of a dead agent before each third."""
    written = []
    for i in range(len(records)):
        record = as_original(records, i)
        if i % 3 == 0:
            written.append(dead(record, i // 3 % 3))
        written.append(record)
    return written


def as_text(written: list[dict[str, Any]], layout: str) -> str:
    if layout == "lines":
        return "".join(json.dumps(record) + "\n" for record in written)
    return json.dumps(written, indent=1 if layout == "indented" else None)


@pytest.mark.parametrize("layout", ["array", "indented", "lines"])
def test_every_living_agents_record_comes_in(tmp_path: Path, layout: str) -> None:
    records = truth()
    source = tmp_path / "some_policy" / ("activations.jsonl" if layout == "lines" else "activations.json")
    source.parent.mkdir()
    source.write_text(as_text(original_records(records), layout))
    convert(source.parent, tmp_path / "out", "parquet", None, silent)
    read, metadata = read_dump(tmp_path / "out"), read_metadata(tmp_path / "out")
    assert metadata.policy == "some_policy" and metadata.seed is None and len(metadata.episodes) == 2
    for name in ("step", "env_id", "agent_id", "episode", "tick", "action", "tile"):
        np.testing.assert_array_equal(getattr(read, name), getattr(records, name), err_msg=name)
    for name in ("entity", "inventory"):
        np.testing.assert_array_equal(getattr(read, name).values, getattr(records, name).values)
        np.testing.assert_array_equal(getattr(read, name).offsets, getattr(records, name).offsets)
    np.testing.assert_array_equal(read.activations["action_decoder"], records.activations["action_decoder"])
    assert np.isnan(read.reward).all() and np.isnan(read.value).all() and np.isnan(read.log_probability).all()


def test_several_layers_and_processes(tmp_path: Path) -> None:
    """Newer dumps hold a dictionary of layers; the slots of a second process begin at ten million."""
    records = truth(episodes=1)
    written = [as_original(records, i) for i in range(len(records))]
    for record in written:
        record["activations"] = {"lstm_cell": [1.5, 2.5], "action_decoder": record["activation"]}
    second = [{**record, "env_id": record["env_id"] + 10_000_000} for record in written]
    (tmp_path / "both.jsonl").write_text(as_text(written + second, "lines"))
    convert(tmp_path / "both.jsonl", tmp_path / "out", "json", None, silent)
    read, metadata = read_dump(tmp_path / "out"), read_metadata(tmp_path / "out")
    assert metadata.layers == {"lstm_cell": 2, "action_decoder": 6}
    assert metadata.lives == 6 and len(read) == 2 * len(records)
    assert read.episode.tolist() == [0] * len(records) + [1] * len(records)


def test_a_folder_without_metadata_says_how_to_import_it(tmp_path: Path) -> None:
    (tmp_path / "activations.json").write_text("[]")
    assert_refuses("python -m activation_store convert", read_metadata, tmp_path)
    (tmp_path / "activations.jsonl").write_text("")
    assert_refuses("several files of records", convert, tmp_path, tmp_path / "out", "parquet", None, silent)


def refusal(source: Path) -> str:
    message = assert_refuses((), convert, source, source.parent / "out", "parquet", None, silent)
    assert not list((source.parent / "out").glob("*")), "something was left behind"
    return message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": [1.0]}, "expected numbers of shape (6,)"),
        ({"activation": ["1"] * 6}, "expected numbers of shape (6,)"),
        ({"activation": [1e300] * 6}, "does not fit float32"),
        ({"action": [0] * 11}, "expected numbers of shape (12,)"),
        ({"action": [3] + [0] * 11}, "outside its head"),
        ({"step": 1.5}, "does not fit int64"),
        ({"env_id": None}, "expected numbers"),
        ({"observation": []}, "indices must be"),
        ({"activations": [1]}, "indices must be"),
        ({"observation": {"Entity": [[]]}}, "index out of range"),
        *((key, f"'{key}' is missing") for key in KEYS),
    ],
)
def test_malformed_records_are_refused(tmp_path: Path, change: dict[str, Any] | str, message: str) -> None:
    """A change is of some keys' values, or the name of a key that goes."""
    written = original_records(truth(episodes=1))
    if isinstance(change, str):
        del written[5][change]
    else:
        written[5] |= change
    (tmp_path / "activations.json").write_text(as_text(written, "array"))
    assert message in refusal(tmp_path / "activations.json")


def test_a_dump_of_this_toolkit_without_its_metadata_is_refused(tmp_path: Path) -> None:
    """Its records call their first layer `activation`, whatever it is, and hold what an import would drop."""
    planted = planted_dump(ticks=3)
    cells = replace(planted.records, activations={"lstm_cell": planted.records.activations["action_decoder"]})
    own = replace(planted, records=cells, metadata=replace(planted.metadata, layers={"lstm_cell": 16}))
    (write_planted(tmp_path / "own", own) / "metadata.json").unlink()
    assert "lacks its metadata.json: copy that too" in refusal(tmp_path / "own")


@pytest.mark.parametrize(("layout", "says"), [("array", "truncated"), ("lines", "cut off")])
def test_truncations_are_refused(tmp_path: Path, layout: str, says: str) -> None:
    text = as_text(original_records(truth(episodes=1))[:4], layout).rstrip()
    for size in (*range(len(text) // 9, len(text), len(text) // 9), len(text) - 1):  # at last within or after a record
        (tmp_path / "dump.json").write_text(text[:size])
        assert says in refusal(tmp_path / "dump.json")


def test_memory_does_not_follow_the_size_of_the_file(tmp_path: Path) -> None:
    records = truth(agents=2, episodes=1, ticks=4)
    written = [as_original(records, i) for i in range(len(records))]

    def peak(repeats: int) -> int:
        source = tmp_path / f"{repeats}.json"
        with source.open("w") as file:
            for repeat in range(repeats):
                for record in written:
                    tick = record["observation"]["CurrentTick"][0] + 10.0 * repeat
                    observation = {**record["observation"], "CurrentTick": [tick]}
                    file.write(("[" if file.tell() == 0 else ", ") + json.dumps({**record, "observation": observation}))
            file.write("]")
        tracemalloc.start()
        convert(source, tmp_path / str(repeats), "json", None, silent)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(1)  # imports
    assert peak(60) < 1.5 * peak(15)
