"""Replays, evaluation results and runs with damage of every kind, signed: what the file tells, or one line."""

import functools
import io
import lzma
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import strategies as st

from activation_store.__main__ import rows
from activation_store.selection import Subsample
from analysis.evaluation.held_out_tasks import TASK_NAMES
from analysis.evaluation.results import check_comparable, read_results
from analysis.evaluation.scores import gather, scorable
from analysis.explorer.tracks import read_circuit
from analysis.replays.file import read_replay
from analysis.runs.cluster_run import read_run
from analysis.runs.dynamics_run import read_dynamics
from analysis.runs.finished_files import open_finished
from analysis.runs.propagated_labels import read_selection
from analysis.runs.saliency_maps import read_saliency
from compare_runs import other_runs
from tests.common.test_array_files import npy
from tests.fuzz import Bench, damaged_json, junk, junk_or_json, read_or_refuse, reader
from tests.planted_dynamics import planted_circuit, planted_dynamics_run, planted_saliency_run
from tests.planted_results import as_original, play, provenance
from tests.planted_run import labelled_run, rewrite, saved_selection
from tests.readers.dumps import wholes

RESULTS = play({"one": 0.3, "other": 0.6}, 6, 40, np.random.default_rng(0), tasks_in_turn=True)
for policy in RESULTS:
    RESULTS[policy]["provenance"] = provenance("pvp", 1, 6)


@functools.cache
def replay(bench: Bench) -> dict[str, Any]:
    """The JSON of a replay, three packets of it."""
    whole = orjson.loads(lzma.decompress(bench["recording"].replay.read_bytes()))
    return {"map": whole["map"], "packets": whole["packets"][20:23]}


@reader("analysis.replays.stream:_content", "analysis.replays.stream:_decompressed", cases=250)
def replays(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "episode.replay.lzma"
    text = junk_or_json(data, replay(bench))
    packed = data.draw(st.sampled_from(["plain", "packed", "damaged"]), label="form")
    content = text if packed == "plain" else lzma.compress(text, format=lzma.FORMAT_ALONE, preset=0)
    path.write_bytes(junk(data, content) if packed == "damaged" else content)
    result = read_or_refuse(lambda: read_replay(path), path)
    if result is None or packed == "damaged":
        return  # this form of lzma proves nothing: damage may unpack to other values
    output = orjson.loads(text)
    assert result.tiles.tolist() == output["map"] and result.ticks == len(output["packets"])
    for tick, packet in enumerate(output["packets"]):
        for group, entities in (("player", result.players), ("npc", result.npcs)):
            assert sorted(map(int, packet[group])) == sorted(entities.ids[entities.present[tick]].tolist())
            for place in np.flatnonzero(entities.present[tick]).tolist():
                entity = next(item for key, item in packet[group].items() if int(key) == entities.ids[place])
                for name, value in (("row", entity["base"]["r"]), ("damage", entity["history"]["damage"])):
                    assert getattr(entities, name)[tick, place] == value


@reader("analysis.evaluation.results:read_results", cases=400)
def evaluation_results(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "eval_pvp_1.json"
    content: Any = data.draw(st.sampled_from([RESULTS, as_original(RESULTS)]), label="kind")
    path.write_bytes(junk_or_json(data, content))
    runs = read_or_refuse(lambda: read_results(path), path)
    if runs is None:
        return
    output = {name: item for name, item in orjson.loads(path.read_bytes()).items() if item}
    assert [run.policy for run in runs] == list(output)
    for run in runs:
        lists = output[run.policy]
        assert run.ticks.tolist() == lists["length"]
        for place, name in enumerate(TASK_NAMES):
            if name in lists:
                assert run.progress_sum[:, place].sum() == pytest.approx(sum(lists[name]))
                assert run.progress_lives[:, place].sum() == len(lists[name])
    read_or_refuse(lambda: (check_comparable(runs), scorable(gather(runs))), path)


@functools.cache
def selected(bench: Bench) -> tuple[Path, dict[str, Any]]:
    """A small dump, and a selection in a run of it."""
    dump = wholes(bench)["parquet"]
    run = labelled_run(bench.folder() / "run", dump, lambda records: records.tick % 2, Subsample())
    return dump, orjson.loads(saved_selection(run.with_name("selection.json"), run).read_bytes())


@reader("analysis.runs.propagated_labels:read_selection", cases=150)
def selections(bench: Bench, folder: Path, data: st.DataObject) -> None:
    (dump, content), path = selected(bench), folder / "selection.json"
    path.write_bytes(junk_or_json(data, content))
    selection = read_or_refuse(lambda: read_selection(path, dump), path)
    if selection is not None:
        assert selection.records.tolist() == sorted(set(orjson.loads(path.read_bytes())["records"]))


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


def damaged_part(data: st.DataObject, name: str, content: bytes) -> bytes:
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


@reader(
    "analysis.runs.finished_files:read",
    "analysis.runs.finished_files:description",
    "analysis.runs.finished_files:open_finished",
    "analysis.runs.cluster_run:read_run",
    cases=150,
)
def runs(bench: Bench, folder: Path, data: st.DataObject) -> None:
    """Damage to a file that DONE.json then vouches for, or to DONE.json itself."""
    folder = folder / "run"
    shutil.copytree(bench["analysed"].run, folder, ignore=shutil.ignore_patterns("*.png", "*.html"))
    names = ["summary.json", "summary.json", "run.json", "embedding.npy", "cluster_labels.npz", "DONE.json"]
    name = data.draw(st.sampled_from(names), label="file")
    content = damaged_part(data, name, (folder / name).read_bytes())
    if name == "DONE.json":
        (folder / name).write_bytes(content)
    else:
        rewrite(folder, name, content)
    dump = data.draw(st.sampled_from([None, bench["analysed"].dump]), label="dump")
    result = read_or_refuse(lambda: read_run(folder, dump), folder)
    if result is None:
        return
    read_or_refuse(lambda: (result.permutations, result.clusters.layer, result.clusters.subsample), folder)
    assert result.summary == orjson.loads((folder / "summary.json").read_bytes())
    assert result.embedding.shape == (len(result.clusters.label), 2) and np.isfinite(result.embedding).all()
    if name == "run.json":
        assert result.seed == orjson.loads(content).get("seed", 0)
    if name == "embedding.npy":
        assert np.array_equal(result.embedding, np.load(folder / name))


@functools.cache
def of_panel(bench: Bench) -> dict[str, Path]:
    """A run of analyze_dynamics.py, one of saliency.py, and a circuit."""
    folder, dump = bench.folder(), bench["analysed"].dump
    return {
        "dynamics": planted_dynamics_run(folder / "moves", dump),
        "saliency": planted_saliency_run(folder / "maps", dump),
        "circuit": planted_circuit(folder / "circuit", dump),
    }


OF_PANEL = {
    "dynamics": [
        "motion.npz", "states.npz", "summary.json", "directions.safetensors", "behaviour_labels.npz", "run.json",
    ],
    "saliency": ["maps.npz", "sanity.json", "run.json"],
    "circuit": ["graph.json", "run.json"],
}  # fmt: skip


@reader(
    "analysis.runs.dynamics_run:read_dynamics", "analysis.runs.saliency_maps:read_saliency",
    "analysis.explorer.tracks:read_circuit", cases=180,
)  # fmt: skip
def runs_of_the_panel(bench: Bench, folder: Path, data: st.DataObject) -> None:
    """Damage that DONE.json vouches for, to what the panel reads."""
    folder = folder / "run"
    kind = data.draw(st.sampled_from(sorted(OF_PANEL)), label="kind")
    shutil.copytree(of_panel(bench)[kind], folder)
    name = data.draw(st.sampled_from(OF_PANEL[kind]), label="file")
    content = damaged_part(data, name, (folder / name).read_bytes())
    rewrite(folder, name, content)
    if kind == "circuit":
        circuit = read_or_refuse(lambda: read_circuit(folder), folder)
        assert circuit is None or [len(column) > 0 for column in circuit.boxes] == [True] * 5
        return
    if kind == "saliency":
        maps = read_or_refuse(lambda: read_saliency(folder), folder)
        assert maps is None or maps.tiles.shape == (len(maps.parts), 225)
        return
    result = read_or_refuse(lambda: read_dynamics(folder, None), folder)
    if result is not None:
        assert result.r.shape == result.jacobian.shape == result.significant.shape
        assert len(result.differences) == len(result.r)


DESCRIBED = {
    "run.json": {"script": "compare_runs.py", "arguments": {"runs": ["one", "two"]}, "versions": {"numpy": "2.3"}},
    "DONE.json": {"command": "python compare_runs.py one two", "files": {}},
    "settings.json": {"agent": "takeru", "settings": {}},
}


@reader("activation_store.__main__:_json", "compare_runs:other_runs", cases=150)
def descriptions(bench: Bench, folder: Path, data: st.DataObject) -> None:
    """Files by which folders of results say what they hold: a list of them never fails, and names what is damaged."""
    name = data.draw(st.sampled_from(sorted(DESCRIBED)))
    path = folder / name
    path.write_bytes(junk_or_json(data, DESCRIBED[name]))
    ((_, kind, *_, fault),) = rows([folder])
    assert kind in {"run", "training", "world model", "damaged"} and (kind != "damaged" or str(path) in fault)
    if name == "run.json":
        read_or_refuse(lambda: other_runs(folder, (Path("one"), Path("two"))), folder)
        read_or_refuse(lambda: open_finished(folder), folder)
