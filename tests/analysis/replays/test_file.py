"""What is read from a replay equals the engine, no other file is read, and clusters are at their agents and ticks."""

import json
import lzma
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nmmo.lib.event_code import EventCode

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import METADATA_FILE, RaggedRows, Records
from activation_store.selection import Subsample
from activation_store.writer import DumpWriter
from analysis.labels import NOISE
from analysis.replays import file as replay_file
from analysis.replays import stream as replay_stream
from analysis.replays.clusters import clusters_of
from analysis.replays.file import read_replay
from analysis.replays.replay import CAUSES, DEATH, KILL, LEVEL_UP, UNLABELLED, Events, Replay, events_of, policy_of
from tests.command import assert_refuses
from tests.fuzz import read_or_refuse
from tests.planted_run import labelled_run, rewrite
from tests.recorded import POLICIES, Recording

COLUMNS = ("row", "col", "health", "level")
ANY_FILE = settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@pytest.fixture(scope="module")
def events(replay: Replay) -> Events:
    return events_of(replay)


@pytest.fixture(scope="module")
def content(recording: Recording) -> dict:
    """The replay's JSON, three packets of it."""
    whole = orjson.loads(lzma.decompress(recording.replay.read_bytes()))
    return {"map": whole["map"], "packets": whole["packets"][20:23]}


def test_every_tick_is_there_with_vitals_skills_and_belongings(replay: Replay, recording: Recording) -> None:
    assert replay.ticks == len(recording.truth) > 20
    assert len(replay.players) == 16 and set(replay.players.policies) == set(POLICIES)
    players, worn_ever = replay.players, 0
    for tick, truth in enumerate(recording.truth):
        for column in np.flatnonzero(players.alive[tick]).tolist():
            state = truth.players[int(players.ids[column])]
            for name in ("food", "water", "gold", "kills"):
                assert getattr(players, name)[tick, column] == state[name]
            levels = zip(players.skill_level[tick, column], players.skill_experience[tick, column], strict=True)
            assert dict(zip(replay.skills, levels, strict=True)) == state["skills"]
            items = replay.inventories[players.inventory[tick, column]]
            assert sorted((item.name, item.level, item.quantity) for item in items) == state["inventory"]
            assert sorted(item.name for item in items if item.slot) == state["worn"]
            worn_ever += sum(bool(item.slot) for item in items)
    assert worn_ever > 0, "nobody ever wore anything: equality proves little"


@pytest.mark.parametrize("group", ["players", "npcs"])
def test_the_living_are_where_and_how_the_engine_had_them(replay: Replay, recording: Recording, group: str) -> None:
    entities = getattr(replay, group)
    for tick, truth in enumerate(recording.truth):
        states = getattr(truth, group)
        living = np.flatnonzero(entities.alive[tick])
        # NPCs spawn after the packet of their tick is written, so that they are in the next one first.
        born = {number for number in states if number < 0} - set(entities.ids[entities.present[: tick + 1].any(axis=0)])
        assert set(entities.ids[living].tolist()) == set(states) - born
        for name in COLUMNS:
            expected = [states[number][name] for number in entities.ids[living].tolist()]
            assert getattr(entities, name)[tick, living].tolist() == expected, (tick, name)


def test_tiles_are_what_they_are_at_the_tick(replay: Replay, recording: Recording) -> None:
    """But for those that grew and were harvested again in the next tick, which packets cannot tell; the last too."""
    changed = wrong = 0
    for tick, truth in enumerate(recording.truth[:-1]):
        seen = replay.materials_at(tick)
        changed += int((seen != replay.tiles).sum())
        for row, col in np.argwhere(seen != truth.materials).tolist():
            assert recording.truth[tick + 1].materials[row, col] == seen[row, col] != replay.tiles[row, col]
            wrong += 1
    assert changed > 100 and wrong < changed / 100


def test_deaths_kills_and_level_ups_are_those_of_the_engines_log(
    replay: Replay, events: Events, recording: Recording
) -> None:
    ids = replay.players.ids

    def logged(code: int) -> list[dict]:
        return [event for event in recording.events if event["event"] == code and event["ent_id"] > 0]

    def found(kind: int, *columns: str) -> list[tuple[int, ...]]:
        chosen = events.kind == kind
        rows = [events.tick[chosen], ids[events.player[chosen]], *(getattr(events, name)[chosen] for name in columns)]
        return sorted(zip(*(row.tolist() for row in rows), strict=True))

    kills = [(e["tick"], e["ent_id"], e["target_ent"]) for e in logged(EventCode.PLAYER_KILL)]
    deaths = [(e["tick"], e["ent_id"]) for e in logged(EventCode.AGENT_CULLED)]
    levels = [(e["tick"], e["ent_id"], e["level"]) for e in logged(EventCode.LEVEL_UP)]
    assert found(KILL, "other") == sorted(kills) and len(kills) > 3
    assert found(DEATH) == sorted(deaths) and len(deaths) > 8
    assert found(LEVEL_UP, "value") == sorted(levels)
    victims = {int(events.other[i]) for i in np.flatnonzero(events.kind == KILL) if events.other[i] > 0}
    dead = events.kind == DEATH
    causes = {CAUSES[cause] for cause in events.detail[dead]}
    killed = {int(replay.players.ids[events.player[i]]) for i in np.flatnonzero(dead & (events.other > 0))}
    assert killed == victims and "of unknown cause" not in causes and len(causes) > 1


def test_policies_are_read_from_names() -> None:
    names = {
        ("start_kit_3M_17", 17): "start_kit_3M", ("200_7", 7): "200", ("Agent17", 17): "Agent", ("Agent5", 17): "Agent",
        ("takeru_3M", 3): "takeru_3M", ("17", 17): "17", ("", 1): "",
    }  # fmt: skip
    assert {name: policy_of(*name) for name in names} == names


def test_other_forms_of_a_replay_read_the_same_and_names_may_hold_anything(
    replay: Replay, recording: Recording, tmp_path: Path, content: dict
) -> None:
    plain = tmp_path / "episode.replay.json"
    plain.write_bytes(lzma.decompress(recording.replay.read_bytes()))
    same = read_replay(plain)
    assert np.array_equal(same.players.row, replay.players.row) and same.inventories == replay.inventories
    copy = Path(shutil.copy(recording.replay, tmp_path))  # without the pickle that the game's helper writes beside it
    assert read_replay(copy).ticks == len(recording.truth)
    packets = json.loads(json.dumps(content["packets"]))
    for packet in packets:
        next(iter(packet["player"].values()))["base"]["name"] = 'é"}]{[\\ </script>_1'
    path = write(tmp_path, {"map": content["map"], "packets": packets})
    assert read_replay(path).players.policies[0] == 'é"}]{[\\ </script>'


def write(folder: Path, content: object) -> Path:
    path = folder / "made.replay.json"
    path.write_bytes(orjson.dumps(content))
    return path


def refused(path: Path, *parts: str) -> None:
    message = assert_refuses([str(path)], read_replay, path)
    assert all(part in message for part in parts), message


def changed(change: Callable[[dict], object]) -> Callable[[dict], dict]:
    def made(content: dict) -> dict:
        copy = json.loads(json.dumps(content))
        change(copy)
        return copy

    return made


def first_player(content: dict) -> dict:
    return next(iter(content["packets"][1]["player"].values()))


BROKEN = {
    "no map": changed(lambda c: c.pop("map")),
    "no packets": changed(lambda c: c.update(packets=[])),
    "ragged map": changed(lambda c: c["map"][3].pop()),
    "unknown material": changed(lambda c: c["map"][3].__setitem__(0, 16)),
    "no position": changed(lambda c: first_player(c)["base"].pop("r")),
    "no npcs": changed(lambda c: c["packets"][2].pop("npc")),
    "text for a number": changed(lambda c: first_player(c)["base"].update(c="7")),
    "half a point": changed(lambda c: first_player(c)["resource"]["food"].update(val=3.5)),
    "huge number": changed(lambda c: first_player(c)["metrics"].update(Gold=1e30)),
    "off the map": changed(lambda c: first_player(c)["base"].update(r=4000)),
    "npc among players": changed(lambda c: c["packets"][0]["player"].update({"-5": first_player(c)})),
    "harvested grass": changed(lambda c: c["packets"][0]["resource"].append([0, 0])),
    "list for an object": changed(lambda c: c["packets"].__setitem__(1, [])),
    "unknown style": changed(lambda c: first_player(c)["history"].update(attack={"target": 1, "style": "Bite"})),
    "twice": changed(lambda c: c["packets"][1]["player"].update({"+1": first_player(c), "1": first_player(c)})),
    "other keys": changed(lambda c: c.update(more=1)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_replay_that_is_none_is_refused(content: dict, tmp_path: Path, case: str) -> None:
    read_replay(write(tmp_path, content))
    refused(write(tmp_path, BROKEN[case](content)))


def test_other_files_and_what_is_not_there_or_goes_on_after_its_end_are_refused(
    recording: Recording, tmp_path: Path
) -> None:
    texts = (b"", b"{}", b"[]", b"{", b'{"map"', b"[" * 100_000, b'{"map": NaN}', b"\xff\xfe", b"1")
    for content in (*texts, *(lzma.compress(text, format=lzma.FORMAT_ALONE) for text in texts)):
        path = tmp_path / "made.replay.lzma"
        path.write_bytes(content)
        refused(path)
    refused(tmp_path / "nothing.replay.lzma", "does not exist")
    refused(tmp_path)
    longer = tmp_path / "longer.replay.lzma"
    longer.write_bytes(recording.replay.read_bytes() + b"more")
    refused(longer)


def test_a_bomb_is_refused_before_it_goes_off_and_so_are_too_many_entities(
    content: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.replay.lzma"
    path.write_bytes(lzma.compress(b'{"map":' + b" " * (1 << 26), format=lzma.FORMAT_ALONE))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(replay_file, "MOST_CELLS", 20)
    refused(write(tmp_path, content), "too many")
    monkeypatch.setattr(replay_stream, "LARGEST_CONTENT_BYTES", 1 << 22)
    refused(path, "bytes of content")


@ANY_FILE
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(recording: Recording, tmp_path: Path, share: float) -> None:
    whole = recording.replay.read_bytes()
    path = tmp_path / "short.replay.lzma"
    path.write_bytes(whole[: int(share * len(whole))])
    refused(path)


BOMBS = (
    b" " * (1 << 25),
    b'{"map":' + b" " * (1 << 25),
    b'{"map":[' + b"[0,0]," * (1 << 22),
    b'{"map":[["' + b"a" * 100_000 + b'"' + b",1" * 100_000 + b"]],",
    b'{"packets":[' + b"{}," * (1 << 22),
    b'{"packets":[{"resource":[' + b"[0,0]," * (1 << 22),
    b'{"packets":[' + b'{"resource":[],"player":{},"npc":{}},' * (1 << 20),
    b'{"' + b"a" * (1 << 25),
    b"[" * (1 << 25),
    b"{\"a\":" * (1 << 22),
    b'{"map":' + b"1" * (1 << 25),
)  # fmt: skip
"""A few kilobytes that unpack to 10 million bytes and more."""


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: repr(bomb[:30]))
@pytest.mark.slow
def test_bombs_in_replays(tmp_path: Path, bomb: bytes) -> None:
    path = tmp_path / "bomb.replay.lzma"
    path.write_bytes(lzma.compress(bomb, format=lzma.FORMAT_ALONE, preset=1))
    assert path.stat().st_size < 100_000
    assert read_or_refuse(lambda: read_replay(path), path) is None


STRIDE = 3


@pytest.fixture(scope="module")
def records(recording: Recording) -> Records:
    return read_dump(recording.dump, layers=[], subsample=Subsample(STRIDE))


def label_of(records: Records) -> np.ndarray:
    """Labels that encode agent and tick, some of them noise."""
    return (records.agent_id * 1000 + records.tick) * (records.tick % 4 > 0) - (records.tick % 4 == 0)


@pytest.fixture(scope="module")
def run_of_recording(recording: Recording, records: Records, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled_run(tmp_path_factory.mktemp("results") / "run", recording.dump, label_of, Subsample(STRIDE))


def test_labels_are_at_their_agent_and_tick_and_hold_until_the_next(
    replay: Replay, records: Records, recording: Recording, run_of_recording: Path
) -> None:
    clusters = clusters_of(replay, recording.replay, recording.dump, run_of_recording)
    assert clusters.episode == recording.episode == 1, "found by what it holds"
    own = records.take(records.episode == recording.episode)
    expected = dict(zip(zip(own.tick, own.agent_id, strict=True), label_of(own), strict=True))
    ticks, columns = np.nonzero(clusters.exact)
    places = zip(ticks, replay.players.ids[columns], strict=True)
    result = dict(zip(places, clusters.label[ticks, columns], strict=True))
    assert result == expected and len(result) > 100 and NOISE in result.values()
    propagated = 0
    for column in range(len(replay.players)):
        last = UNLABELLED
        for tick in range(replay.ticks):
            if clusters.exact[tick, column]:
                last = int(clusters.label[tick, column])
            alive = replay.players.alive[tick, column]
            assert clusters.label[tick, column] == (last if alive else UNLABELLED)
            propagated += bool(alive and not clusters.exact[tick, column])
    assert propagated > 100


def test_the_episode_is_found_where_the_policy_saw_positions_relative_to_its_agent(
    replay: Replay, recording: Recording, tmp_path: Path
) -> None:
    records, metadata = read_dump(recording.dump), read_metadata(recording.dump)
    seen, own = records.entity.values.copy(), np.stack([records.column(name) for name in ("row", "col")], axis=1)
    seen[:, [metadata.entity_columns.index(name) for name in ("row", "col")]] -= own[records.entity.owner]
    with DumpWriter(tmp_path / "dump", replace(metadata, records=0, lives=0, files={}, episodes=[])) as writer:
        writer.write(replace(records, entity=RaggedRows(seen, records.entity.offsets)))
    run = labelled_run(tmp_path / "run", tmp_path / "dump", label_of, Subsample(STRIDE))
    assert clusters_of(replay, recording.replay, tmp_path / "dump", run).episode == recording.episode


def test_another_episode_is_refused_naming_where_it_differs_first(
    replay: Replay, recording: Recording, run_of_recording: Path
) -> None:
    """So is one that is shifted by a tick."""
    players = replay.players
    row = players.row.copy()
    agent = int(np.flatnonzero(players.alive[7])[3])
    row[7, agent] += 1
    late = {name: np.roll(getattr(players, name), 1, axis=0) for name in ("row", "col")}
    where = (recording.replay, recording.dump, run_of_recording)
    parts = (str(recording.replay), str(recording.dump), f"agent {players.ids[agent]}, tick 7")
    assert_refuses(parts, clusters_of, replace(replay, players=replace(players, row=row)), *where)
    assert_refuses("no episode", clusters_of, replace(replay, players=replace(players, **late)), *where)


def test_an_unfinished_or_damaged_run_and_one_of_another_dump_are_refused(
    replay: Replay, recording: Recording, tmp_path: Path
) -> None:
    for name in ("DONE.json", "run.json", "cluster_labels.npz"):
        run = labelled_run(tmp_path / name / "run", recording.dump, label_of, Subsample(STRIDE))
        where = (replay, recording.replay, recording.dump, run)
        content = orjson.loads((run / "run.json").read_bytes())
        content["input"][METADATA_FILE] = "0" * 64
        rewrite(run, "run.json", orjson.dumps(content))
        assert_refuses("another dump", clusters_of, *where)
        (run / name).unlink()
        assert_refuses("run", clusters_of, *where)
        (run / name).write_bytes(b"{}")
        assert_refuses("run", clusters_of, *where)
