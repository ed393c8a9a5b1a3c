"""For any damaged dump, the reader reports the fault in one line or returns exactly what was written."""

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from activation_store.reader import read_batches, read_dump, read_episodes, read_metadata
from activation_store.records import Records
from activation_store.schema import IDENTITY, METADATA_FILE, RECORDS_FILE, DumpMetadata
from activation_store.selection import Subsample, select
from common.files import append_bytes, write_json
from common.user_error import UserError
from tests.activation_store.damage import one_line, sign, sign_metadata
from tests.activation_store.test_round_trip import assert_same_records
from tests.command import assert_refuses
from tests.fuzz import flip
from tests.planted import planted_dump, planted_metadata, write_planted

Change = Callable[[dict[str, Any]], None]
Damage = Callable[[Path], object]
KEYS = (*IDENTITY, "policy", "reward", "value", "action", "log_probability", "activation", "activations", "observation")


def rewrite_records(folder: Path, change: Change, which: int = 2) -> None:
    """Change one record of the file and sign it."""
    records = orjson.loads((folder / RECORDS_FILE).read_bytes())
    change(records[which])
    lines = [orjson.dumps(record) for record in records]
    (folder / RECORDS_FILE).write_bytes(b"[\n" + b",\n".join(lines) + b"\n]\n")
    sign(folder, RECORDS_FILE)


def kept(*names: str) -> Damage:
    """All other files go."""
    return lambda dump: [path.unlink() for path in dump.iterdir() if path.name not in names]


def without_metadata_half_written(dump: Path) -> None:
    (dump / METADATA_FILE).unlink()
    (dump / RECORDS_FILE).rename(dump / f".{RECORDS_FILE}.x.partial")


def of_another_policy(dump: Path) -> None:
    write_json(dump / METADATA_FILE, {**orjson.loads((dump / METADATA_FILE).read_bytes()), "policy": "another"})


def nested(dump: Path) -> None:
    metadata = {**orjson.loads((dump / METADATA_FILE).read_bytes()), "episodes": "HERE"}
    (dump / METADATA_FILE).write_bytes(orjson.dumps(metadata).replace(b'"HERE"', b"[" * 900 + b"]" * 900))


def in_another_order(text: bytes) -> bytes:
    lines = text.splitlines()
    lines[1], lines[3] = lines[3], lines[1]
    return b"\n".join(lines) + b"\n"


def signed(change: Callable[[bytes], bytes]) -> Damage:
    def damage(dump: Path) -> None:
        (dump / RECORDS_FILE).write_bytes(change((dump / RECORDS_FILE).read_bytes()))
        sign(dump, RECORDS_FILE)

    return damage


def counting(**counts: Any) -> Damage:
    """The metadata claim these numbers of records, lives or units."""
    return lambda dump: sign(dump, RECORDS_FILE, **counts)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "does not exist"),
        (kept(), "is not an activation dump"),
        (kept(RECORDS_FILE), "interrupted"),
        (without_metadata_half_written, "interrupted"),
        (kept(METADATA_FILE), f"lacks {RECORDS_FILE}"),
        (lambda dump: append_bytes(dump / RECORDS_FILE, b" "), "copy or extract it again"),
        (lambda dump: flip(dump / RECORDS_FILE, 100), "does not match its SHA-256"),
        (of_another_policy, "checksum"),
        (nested, METADATA_FILE),
        (lambda dump: (shutil.rmtree(dump), dump.touch()), "is not a folder"),
        (lambda dump: sign(dump, RECORDS_FILE, schema_version=99), "schema version '99'; this toolkit reads 1 to 3"),
        (counting(records=5), "counts"),
        (counting(lives=1), "counts"),
        (counting(records=10**15), "is too small for the"),  # nothing of that size is allocated
        (counting(records=12, lives=2, layers={"action_decoder": 10**4}), "is too small for the"),
        (counting(records=12, lives=2, layers={"action_decoder": 10**12}), "has 1000000000000 units"),
        (signed(in_another_order), "does not come after"),
        (signed(lambda text: text.replace(b",\n", b", ")), "not valid JSON"),
        (signed(lambda text: text[1:]), "one record per line"),
        (signed(lambda text: text.replace(b"\n]", b",\n]")), "one record per line"),
        (signed(lambda text: text.replace(b",\n{", b",\n{]", 1)), "not valid JSON"),
    ],
)
def test_damage_is_named(dump: Path, damage: Damage, message: str) -> None:
    damage(dump)
    assert message in one_line(dump)


def test_empty_dump(tmp_path: Path) -> None:
    planted = planted_dump(agents=1, ticks=5)
    empty = dataclasses.replace(planted, records=planted.records.take(np.arange(0)))
    assert "empty dump (0 records)" in one_line(write_planted(tmp_path / "dump", empty))


def test_every_truncation_is_found(dump: Path) -> None:
    content = (dump / RECORDS_FILE).read_bytes()
    for size in {*range(0, len(content), 997), len(content) - 1}:
        (dump / RECORDS_FILE).write_bytes(content[:size])
        assert f"is truncated: {size} of {len(content)} bytes" in one_line(dump)


def test_every_flipped_byte_and_truncation_of_the_metadata_is_found_or_harmless(dump: Path, whole: Path) -> None:
    content = (whole / METADATA_FILE).read_bytes()
    truth = read_metadata(whole)
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position % 8)
        for damaged in (flipped, content[:position]):
            (dump / METADATA_FILE).write_bytes(damaged)
            try:
                assert read_metadata(dump) == truth
            except UserError as error:
                assert METADATA_FILE in str(error)


def test_earlier_schema_versions_are_read_as_json_and_refused_as_parquet(dump: Path, whole: Path) -> None:
    metadata = orjson.loads((whole / METADATA_FILE).read_bytes())
    sign_metadata(dump, {**metadata, "schema_version": 2})
    assert read_metadata(dump) == read_metadata(whole)
    assert_same_records(read_dump(dump), read_dump(whole))
    sign_metadata(dump, {**metadata, "schema_version": 2, "format": "parquet"})
    assert "has schema version 2, whose parquet files this toolkit cannot read: extract it again" in one_line(dump)


def without(key: str, *inside: str) -> Change:
    return lambda record: functools.reduce(dict.__getitem__, inside, record).pop(key)


def put(key: str, value: Any) -> Change:
    return lambda record: record.update({key: value})


def put_observation(key: str, value: Any) -> Change:
    return lambda record: record["observation"].update({key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *((without(key), f"line 4: {key} is missing") for key in KEYS),
        *((without(key, "observation"), f"{key} is missing") for key in ("Tile", "Entity", "Inventory", "CurrentTick")),
        (put("activation", [1.0, 2.0]), "action_decoder is not a list of 4 numbers"),
        (put("activation", [1.0, 2.0, "3", 4.0]), "something other than numbers"),
        (put("activation", [1.0, 2.0, 1e300, 4.0]), "beyond float32"),
        (put("activations", [1, 2]), "should be inside a JSON object"),
        (put("reward", None), "something other than numbers"),
        (put("step", 1.5), "step is not a 64-bit integer"),
        (put("env_id", "0"), "env_id is missing or is not an integer"),
        (put("tick", 0), "does not come after"),
        (put("policy", "another"), "the metadata names 'planted'"),
        (put("action", [0] * 11), "action is not a list of 12 numbers"),
        (put("action", [3] + [0] * 11), "Attack.Style is 3, it has 3 choices"),
        (put("action", [-1] + [0] * 11), "Attack.Style is -1, it has 3 choices"),
        (put_observation("Tile", [[1, 2, 3]]), "Tile has 1 rows instead of 225"),
        (put_observation("Tile", [[1, 2, 40_000]] * 225), "beyond int16"),
        (put_observation("Entity", [[0.5] * 31]), "something other than integers"),
        (put_observation("Entity", ["x" * 31]), "a row of observation Entity is not a list"),
        (put_observation("CurrentTick", [77]), "CurrentTick differs from tick"),
    ],
)
def test_a_record_of_the_wrong_shape(dump: Path, change: Change, message: str) -> None:
    rewrite_records(dump, change)
    assert message in one_line(dump)


def test_a_record_that_was_not_written_by_the_writer_is_read_all_the_same(dump: Path, whole: Path) -> None:
    def reorder(record: dict[str, Any]) -> None:
        record["step"] = record.pop("step")

    rewrite_records(dump, reorder, which=0)
    np.testing.assert_array_equal(
        read_dump(dump, subsample=Subsample(2)).tick, read_dump(whole, subsample=Subsample(2)).tick
    )
    for change in (put("tick", -3), put_observation("CurrentTick", [-3])):
        rewrite_records(dump, change, which=0)
    assert read_dump(dump).tick.tolist() == [-3, *read_dump(whole).tick.tolist()[1:]]


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("every", [1, 7, 1000])
def test_episodes_come_whole_and_in_a_parquet_dump_one_after_the_other(tmp_path: Path, form: Any, every: int) -> None:
    dump = write_planted(tmp_path / "dump", planted_dump(episodes=3, ticks=30), format=form)
    metadata = read_metadata(dump)
    wanted = select(dump, metadata, subsample=Subsample(every))
    episodes = list(read_episodes(dump, metadata, wanted))
    of_each = [np.unique(records.episode).tolist() for records in episodes]
    assert [episode for one in of_each for episode in one] == [0, 1, 2][: 3 * (every < 1000)]
    assert form == "json" or all(len(one) == 1 for one in of_each)
    if episodes:
        assert_same_records(Records.concatenate(episodes), read_dump(dump, subsample=Subsample(every)))


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, form: Any) -> None:
    dump = write_planted(tmp_path / "dump", planted_dump(agents=2, episodes=2, ticks=6), format=form)
    metadata = read_metadata(dump)
    batches = read_batches(dump, metadata, select(dump, metadata))
    next(batches)
    first = dump / sorted(metadata.files)[0]
    first.write_bytes(first.read_bytes())  # as a copy does that was not finished
    os.utime(first, ns=(0, 0))
    assert_refuses("changed while it was read", list, batches)


def test_only_simulated_lives_name_their_world_model() -> None:
    content = planted_metadata().to_json()
    assert not {"origin", "world_model_sha256"} & content.keys()
    assert DumpMetadata.from_json(content, "here").origin == "game"
    simulated = dataclasses.replace(planted_metadata(), origin="simulated", world_model_sha256="a" * 64)
    assert DumpMetadata.from_json(simulated.to_json(), "here") == DumpMetadata.from_json(simulated.to_json(), "there")
    assert DumpMetadata.from_json(simulated.to_json(), "here").world_model_sha256 == "a" * 64
    nameless = dataclasses.replace(simulated, world_model_sha256=None)
    assert_refuses("its origin is simulated", DumpMetadata.from_json, nameless.to_json(), "here")
