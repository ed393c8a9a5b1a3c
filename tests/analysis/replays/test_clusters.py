"""Clusters are assigned to exactly the agents and ticks that the dump recorded."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from activation_store.reader import read_dump
from activation_store.schema import METADATA_FILE, Records
from activation_store.subsample import Subsample
from analysis.labels import NOISE
from analysis.replays.clusters import UNLABELLED, ReplayClusters, clusters_of
from analysis.replays.replay import Replay
from tests.command import assert_refuses
from tests.planted_run import labelled_run, rewrite
from tests.recorded import Recording

STRIDE = 3


@pytest.fixture(scope="module")
def records(recording: Recording) -> Records:
    return read_dump(recording.dump, layers=[], subsample=Subsample(STRIDE))


def label_of(records: Records) -> np.ndarray:
    """Labels that encode agent and tick, some of them noise."""
    return (records.agent_id * 1000 + records.tick) * (records.tick % 4 > 0) - (records.tick % 4 == 0)


@pytest.fixture(scope="module")
def clusters(replay: Replay, recording: Recording, run_of_recording: Path) -> ReplayClusters:
    return clusters_of(replay, recording.replay, recording.dump, run_of_recording)


@pytest.fixture(scope="module")
def run_of_recording(recording: Recording, records: Records, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled_run(tmp_path_factory.mktemp("results") / "run", recording.dump, label_of, Subsample(STRIDE))


def test_every_label_is_at_its_agent_and_tick(
    clusters: ReplayClusters, replay: Replay, records: Records, recording: Recording
) -> None:
    assert clusters.episode == recording.episode == 1, "found by what it holds"
    own = records.take(records.episode == recording.episode)
    expected = dict(zip(zip(own.tick, own.agent_id, strict=True), label_of(own), strict=True))
    ticks, columns = np.nonzero(clusters.exact)
    places = zip(ticks, replay.players.ids[columns], strict=True)
    result = dict(zip(places, clusters.label[ticks, columns], strict=True))
    assert result == expected and len(result) > 100 and NOISE in result.values()


def test_between_labels_the_earlier_holds_while_the_agent_lives(clusters: ReplayClusters, replay: Replay) -> None:
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


@pytest.mark.parametrize("name", ["DONE.json", "run.json", "cluster_labels.npz"])
def test_an_unfinished_or_damaged_run_and_one_of_another_dump_are_refused(
    replay: Replay, recording: Recording, tmp_path: Path, name: str
) -> None:
    run = labelled_run(tmp_path / "run", recording.dump, label_of, Subsample(STRIDE))
    content = orjson.loads((run / "run.json").read_bytes())
    content["input"][METADATA_FILE] = "0" * 64
    rewrite(run, "run.json", orjson.dumps(content))
    assert_refuses("another dump", clusters_of, replay, recording.replay, recording.dump, run)
    (run / name).unlink()
    assert_refuses("run", clusters_of, replay, recording.replay, recording.dump, run)
    (run / name).write_bytes(b"{}")
    assert_refuses("run", clusters_of, replay, recording.replay, recording.dump, run)
