"""Replays, evaluation results and runs with damage of every kind, signed: what the file tells, or one line."""

import io
import lzma
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.evaluation.held_out_tasks import TASK_NAMES
from analysis.evaluation.missing_tasks import scorable
from analysis.evaluation.protocol import check_comparable
from analysis.evaluation.results import read_results
from analysis.evaluation.scores import gather
from analysis.panel.dynamics import read_dynamics
from analysis.panel.saliency import read_saliency
from analysis.replays.file import read_replay
from analysis.runs.finished_run import read_run
from tests.analysed import Analysed
from tests.analysis.runs.test_arrays import npy
from tests.fuzz import budget, damaged_json, junk, read_or_refuse
from tests.planted_panel import planted_dynamics_run, planted_saliency_run
from tests.planted_results import as_original, play, provenance
from tests.planted_run import rewrite
from tests.recorded import Recording

RESULTS = play({"one": 0.3, "other": 0.6}, 6, 40, np.random.default_rng(0), tasks_in_turn=True)
for policy in RESULTS:
    RESULTS[policy]["provenance"] = provenance("pvp", 1, 6)
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


@pytest.fixture(scope="module")
def replay(recording: Recording) -> dict[str, Any]:
    """The JSON of a replay, three packets of it."""
    whole = orjson.loads(lzma.decompress(recording.replay.read_bytes()))
    return {"map": whole["map"], "packets": whole["packets"][20:23]}


@budget(250)
@given(data=st.data())
def test_replays(replay: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("replay") / "episode.replay.lzma"
    as_bytes = data.draw(st.integers(0, 3), label="bytes") == 0
    text = junk(data, orjson.dumps(replay)) if as_bytes else damaged_json(data, replay)
    packed = data.draw(st.sampled_from(["plain", "packed", "damaged"]), label="form")
    content = text if packed == "plain" else lzma.compress(text, format=lzma.FORMAT_ALONE, preset=0)
    path.write_bytes(junk(data, content) if packed == "damaged" else content)
    found = read_or_refuse(lambda: read_replay(path), path)
    if found is None or packed == "damaged":
        return  # this form of lzma proves nothing: damage may unpack to other values
    told = orjson.loads(text)
    assert found.tiles.tolist() == told["map"] and found.ticks == len(told["packets"])
    for tick, packet in enumerate(told["packets"]):
        for group, entities in (("player", found.players), ("npc", found.npcs)):
            assert sorted(map(int, packet[group])) == sorted(entities.ids[entities.present[tick]].tolist())
            for place in np.flatnonzero(entities.present[tick]).tolist():
                entity = next(each for key, each in packet[group].items() if int(key) == entities.ids[place])
                for name, value in (("row", entity["base"]["r"]), ("damage", entity["history"]["damage"])):
                    assert getattr(entities, name)[tick, place] == value


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: repr(bomb[:30]))
@pytest.mark.slow
def test_bombs_in_replays(tmp_path: Path, bomb: bytes) -> None:
    path = tmp_path / "bomb.replay.lzma"
    path.write_bytes(lzma.compress(bomb, format=lzma.FORMAT_ALONE, preset=1))
    assert path.stat().st_size < 100_000
    assert read_or_refuse(lambda: read_replay(path), path) is None


@budget(400)
@given(data=st.data())
def test_evaluation_results(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("results") / "eval_pvp_1.json"
    content: Any = data.draw(st.sampled_from([RESULTS, as_original(RESULTS)]), label="kind")
    if data.draw(st.integers(0, 3), label="bytes") == 0:
        path.write_bytes(junk(data, orjson.dumps(content)))
    else:
        path.write_bytes(damaged_json(data, content))
    runs = read_or_refuse(lambda: read_results(path), path)
    if runs is None:
        return
    told = {name: each for name, each in orjson.loads(path.read_bytes()).items() if each}
    assert [run.policy for run in runs] == list(told)
    for run in runs:
        lists = told[run.policy]
        assert run.ticks.tolist() == lists["length"]
        for place, name in enumerate(TASK_NAMES):
            if name in lists:
                assert run.progress_sum[:, place].sum() == pytest.approx(sum(lists[name]))
                assert run.progress_lives[:, place].sum() == len(lists[name])
    read_or_refuse(lambda: (check_comparable(runs), scorable(gather(runs))), path)


SQUARE = np.zeros((3, 2), np.float32)
EMBEDDINGS = st.sampled_from([
    npy(SQUARE), npy(SQUARE, shape=(10**12, 2)), npy(SQUARE, shape=(-1, 2)), npy(SQUARE, shape=(2, 3)),
    npy(SQUARE, fortran_order=True), npy(SQUARE, descr="|O"), npy(SQUARE, descr="<U1"), npy(SQUARE, descr="<c8"),
    npy(SQUARE, descr="<V4"), npy(np.full((3, 2), np.nan)), npy(np.zeros((0, 2), np.float32)),
    npy(SQUARE).replace(b"NUMPY\x01", b"NUMPY\x09"), npy(SQUARE).replace(b"'shape': (3, 2)", b"'shape': ((((((((("),
    b"\x93NUMPY", b"", b"PK\x03\x04",
])  # fmt: skip


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def damaged_file(data: st.DataObject, name: str, content: bytes) -> bytes:
    if name.endswith(".json") and data.draw(st.integers(0, 4), label="bytes"):
        return damaged_json(data, orjson.loads(content))
    if name.endswith(".npy") and data.draw(st.booleans(), label="array"):
        return data.draw(st.one_of(EMBEDDINGS, EMBEDDINGS.map(lambda array: archive(embedding=array))))
    if name.endswith(".npz") and data.draw(st.booleans(), label="array"):
        with np.load(io.BytesIO(content)) as arrays:
            members = {key: npy(arrays[key]) for key in arrays.files}
        members[data.draw(st.sampled_from(sorted(members)), label="member")] = data.draw(EMBEDDINGS)
        return archive(**members)
    return junk(data, content)


@budget(150)
@given(data=st.data())
def test_runs(analysed: Analysed, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Damage to a file that DONE.json then vouches for, or to DONE.json itself."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(analysed.run, folder, ignore=shutil.ignore_patterns("*.png", "*.html"))
    names = ["summary.json", "summary.json", "run.json", "embedding.npy", "cluster_labels.npz", "DONE.json"]
    name = data.draw(st.sampled_from(names), label="file")
    content = damaged_file(data, name, (folder / name).read_bytes())
    if name == "DONE.json":
        (folder / name).write_bytes(content)
    else:
        rewrite(folder, name, content)
    dump = data.draw(st.sampled_from([None, analysed.dump]), label="dump")
    found = read_or_refuse(lambda: read_run(folder, dump), folder)
    if found is None:
        return
    read_or_refuse(lambda: (found.permutations, found.clusters.layer, found.clusters.subsample), folder)
    assert found.summary == orjson.loads((folder / "summary.json").read_bytes())
    assert found.embedding.shape == (len(found.clusters.label), 2) and np.isfinite(found.embedding).all()
    if name == "run.json":
        assert found.seed == orjson.loads(content).get("seed", 0)
    if name == "embedding.npy":
        assert np.array_equal(found.embedding, np.load(folder / name))


@pytest.fixture(scope="module")
def of_panel(analysed: Analysed, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of analyze_dynamics.py and one of saliency.py."""
    folder = tmp_path_factory.mktemp("panel")
    return planted_dynamics_run(folder / "moves", analysed.dump), planted_saliency_run(folder / "maps", analysed.dump)


@budget(150)
@given(data=st.data())
def test_runs_of_the_panel(
    of_panel: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Damage that DONE.json vouches for, to what the panel reads."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    of_dynamics = data.draw(st.booleans(), label="dynamics")
    shutil.copytree(of_panel[0] if of_dynamics else of_panel[1], folder)
    names = ["motion.npz", "states.npz", "summary.json", "directions.safetensors", "behaviour_labels.npz", "run.json"]
    name = data.draw(st.sampled_from(names if of_dynamics else ["maps.npz", "sanity.json", "run.json"]), label="file")
    content = damaged_file(data, name, (folder / name).read_bytes())
    rewrite(folder, name, content)
    if not of_dynamics:
        maps = read_or_refuse(lambda: read_saliency(folder), folder)
        assert maps is None or maps.tiles.shape[1:] == (maps.parts.shape[1], 225)
        return
    found = read_or_refuse(lambda: read_dynamics(folder, None), folder)
    if found is not None:
        assert found.r.shape == found.jacobian.shape == found.significant.shape
        assert len(found.differences) == len(found.shares) == len(found.r)
