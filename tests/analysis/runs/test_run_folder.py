"""Folders of runs, what memory holds, and rules that carry labels and selections of runs to other records."""

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from activation_store.lives import places_of
from activation_store.schema import IDENTITY, METADATA_FILE, DumpMetadata
from activation_store.selection import Subsample
from analysis.clusters.settings import AnalysisSettings
from analysis.labels import NOISE
from analysis.lives import places_among
from analysis.runs.cluster_run import ClusterRun, read_cluster_run, read_run
from analysis.runs.codebook_rule import LONGEST_NAME, NAMES_FILE, keep_names, read_names
from analysis.runs.finished_files import open_finished
from analysis.runs.propagated_labels import (
    CarryingRule,
    PropagatedLabels,
    fit_rule,
    propagate_labels,
    read_selection,
    rule_from,
    save_propagated,
)
from analysis.runs.record_limit import check_fits, free_memory, limited
from analysis.runs.run_folder import DONE_FILE, RUN_FILE, Parts, RunFolder, processor
from common.files import sha256
from common.user_error import UserError
from tests.analysed import Analysed
from tests.command import assert_refused, assert_refuses, run_here
from tests.fuzz import flip
from tests.planted import Planted, planted_dump, planted_metadata, write_planted
from tests.planted_run import labelled_run, rewrite, saved_selection


def test_a_run_is_proved_by_what_is_written_last(tmp_path: Path) -> None:
    path = tmp_path / "results" / "run"
    with RunFolder(path, {"seed": 3}) as folder:
        folder.save_array("a.npy", np.arange(3))
        folder.save_arrays("b.npz", x=np.arange(4), y=np.ones(2))
        folder.save_text("c.txt", "words")
        assert not (path / DONE_FILE).exists()
    proofs = orjson.loads((path / DONE_FILE).read_bytes())["files"]
    hashes = {name: sha256(path / name) for name in ("a.npy", "b.npz", "c.txt", RUN_FILE)}
    assert {name: proof["sha256"] for name, proof in proofs.items()} == hashes
    run = orjson.loads((path / RUN_FILE).read_bytes())
    assert run["seed"] == 3 and run["versions"]["umap-learn"] and run["processor"] == processor()
    assert np.load(path / "a.npy", allow_pickle=False).tolist() == [0, 1, 2]
    with np.load(path / "b.npz", allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [0, 1, 2, 3]


def test_a_failed_run_leaves_no_folder_and_objects_are_never_pickled(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "run", {}) as folder:
        folder.save_text("a.txt", "words")
        raise KeyboardInterrupt
    assert not (tmp_path / "run").exists()
    with RunFolder(tmp_path, {}):  # an empty folder is taken
        pass
    assert (tmp_path / DONE_FILE).exists()
    with pytest.raises(ValueError), RunFolder(tmp_path / "run", {}) as folder:
        folder.save_array("a.npy", np.array([object()]))
    with pytest.raises(ValueError), RunFolder(tmp_path / "run", {}) as folder:
        folder.save_arrays("a.npz", a=np.array([object()]))


def test_a_folder_in_use_is_refused_and_kept_and_a_file_is_refused(tmp_path: Path) -> None:
    for name, message in (
        (DONE_FILE, "already holds a run"),
        (RUN_FILE, "unfinished run"),
        ("x", "not an empty folder"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("kept")
        with pytest.raises(UserError, match=message), RunFolder(tmp_path / name, {}):
            pytest.fail("the block must not run")
        assert (tmp_path / name / name).read_text() == "kept"
    for path in (tmp_path / "x" / "x", tmp_path / "x" / "x" / "run"):
        with pytest.raises(UserError), RunFolder(path, {}):
            pytest.fail("the block must not run")


def test_what_a_killed_run_left_is_removed_by_the_same_run_only(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {"seed": 3}).__enter__()
    folder.save_text("a.txt", "words")
    (tmp_path / "run" / "frames").mkdir()
    with pytest.raises(UserError, match="another process is writing"), RunFolder(tmp_path / "run", {"seed": 3}):
        pytest.fail("it is being written to")
    folder._held.close()  # as if the process was killed: its lock is gone, and nothing else
    with pytest.raises(UserError, match="unfinished run"), RunFolder(tmp_path / "run", {"seed": 4}):
        pytest.fail("another run left it")
    assert (tmp_path / "run" / "a.txt").exists()
    with RunFolder(tmp_path / "run", {"seed": 3}) as again:
        again.save_text("b.txt", "words")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {RUN_FILE, "b.txt", DONE_FILE}
    with pytest.raises(UserError, match="already holds"), RunFolder(tmp_path / "run", {"seed": 3}):
        pytest.fail("it is finished")


def test_folders_of_no_run_and_of_one_that_did_not_end_are_refused(tmp_path: Path) -> None:
    assert_refuses("is not a finished run: give a folder that analyze_activations.py wrote", open_finished, tmp_path)
    (tmp_path / RUN_FILE).write_text("{}")
    assert_refuses("is not a finished run: let the script that began it end", open_finished, tmp_path)
    assert_refuses("is not a finished run: let saliency.py end", open_finished, tmp_path, "saliency.py")


def test_an_interrupt_of_the_cleaning_leaves_what_the_same_run_can_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C twice: the second one comes while the results of an interrupted run are removed."""
    path, removed = tmp_path / "run", []

    def unlink_once(self: Path, missing_ok: bool = False) -> None:
        if removed:
            raise KeyboardInterrupt
        removed.append(self)
        self.rename(tmp_path / "gone")

    with pytest.raises(KeyboardInterrupt), RunFolder(path, {}) as folder:
        for name in "zyxab":
            (path / name).write_text("")
        monkeypatch.setattr(Path, "unlink", unlink_once)
        raise KeyboardInterrupt
    monkeypatch.undo()
    assert removed and sorted(item.name for item in path.iterdir()) != ["run.json"]
    with RunFolder(path, {}) as folder:
        folder.save_text("c.txt", "words")
    assert sorted(item.name for item in path.iterdir()) == [DONE_FILE, "c.txt", RUN_FILE]


def test_it_names_the_machine_and_the_code_that_runs_on_it() -> None:
    result = processor()
    assert set(result) == {"name", "architecture", "instructions", "numba target", "BLAS kernels"}
    assert platform.machine() in result["architecture"] and all(result.values())
    assert result["BLAS kernels"] != "unknown"  # numpy has loaded one


@pytest.mark.parametrize("target", ["generic", "znver3"])
def test_the_numba_target_is_the_one_that_numba_compiles_for(target: str) -> None:
    """A user who sets it changes the clusters of the same dump, so the run must say it."""
    ours = "from analysis.runs.run_folder import processor; print(processor()['numba target'], end=' ')"
    code = f"{ours}; import numba; print(numba.config.CPU_NAME)"
    environment = {**os.environ, "NUMBA_CPU_NAME": target}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [target, target]


def test_parts_of_other_arguments_are_removed_and_other_folders_are_not(tmp_path: Path) -> None:
    mine = tmp_path / ".run.parts" / "mine.txt"
    mine.parent.mkdir()
    mine.touch()
    assert_refuses("holds other files, and would be removed", Parts, tmp_path / "run", {"seed": 1})
    assert mine.exists()
    mine.unlink()  # parts without a key are removed, too, where a killed run left nothing but unfinished files
    Parts(tmp_path / "run", {"seed": 1}).arrays("a", lambda: {"x": np.zeros(1)})
    assert Parts(tmp_path / "run", {"seed": 1}).there == ["a"]
    folder = Parts(tmp_path / "run", {"seed": 2}).folder
    assert [path.name for path in folder.iterdir()] == ["key.json"]
    (folder / "key.json").rename(folder / ".key.json.x.partial")
    assert Parts(tmp_path / "run", {"seed": 1}).there == []


AGAIN = "analyse the dump again"


def refusal(run: Path, name: str, dump: Path) -> str:
    return assert_refuses([str(run / name)], read_run, run, dump)


def test_every_file_of_the_run_is_proved_by_its_hash(analysed: Analysed, tmp_path: Path) -> None:
    for name in ("run.json", "summary.json", "embedding.npy", "cluster_labels.npz"):
        damaged = Path(shutil.copytree(analysed.run, tmp_path / name))
        flip(damaged / name, (damaged / name).stat().st_size // 2)
        assert "does not match its SHA-256" in refusal(damaged, name, analysed.dump)
        (damaged / name).unlink()
        refusal(damaged, name, analysed.dump)
    edited = Path(shutil.copytree(analysed.run, tmp_path / "edited"))
    (edited / "summary.json").write_text((edited / "summary.json").read_text().replace('"noise_records"', '"noise"'))
    assert_refused(run_here("explore.py", edited), str(edited / "summary.json"), "SHA-256")
    damaged = Path(shutil.copytree(analysed.run, tmp_path / "damaged"))
    for content in ("{}", "[]", "nothing", '{"files": {"embedding.npy": 3}}'):
        (damaged / "DONE.json").write_text(content)
        refusal(damaged, "DONE.json", analysed.dump)


MALFORMED: tuple[tuple[str, dict[str, object] | bytes, str], ...] = (
    ("summary.json", {"clusters": None}, "'clusters'"), ("summary.json", {"clusters": [3]}, "'clusters.0'"),
    ("summary.json", {"clusters": []}, "do not match"), ("summary.json", {"features": None}, "'features'"),
    ("summary.json", {"method": {"permutations": 0}}, "'method.permutations'"),
    ("summary.json", {"noise_records": "many"}, "'noise_records'"), ("run.json", {"seed": -1}, "'seed'"),
    ("run.json", {"input": {}}, "does not name the run's dump"), ("run.json", {"arguments": []}, "'arguments'"),
    *((name, b"nothing", AGAIN) for name in ("embedding.npy", "cluster_labels.npz")),
    *(("summary.json", content, AGAIN) for content in (b"[]", b"\xff{", b"[" * 100_000)), ("run.json", b"3", AGAIN),
)  # fmt: skip


@pytest.mark.parametrize(("name", "change", "part"), MALFORMED)
def test_malformed_content_with_a_hash_that_fits_is_refused(
    analysed: Analysed, tmp_path: Path, name: str, change: dict[str, object] | bytes, part: str
) -> None:
    damaged = Path(shutil.copytree(analysed.run, tmp_path / "damaged"))
    content = change if isinstance(change, bytes) else json.dumps(json.loads((damaged / name).read_text()) | change)
    rewrite(damaged, name, content if isinstance(content, bytes) else content.encode())
    assert part in refusal(damaged, name, analysed.dump)


def test_names_are_kept_and_what_is_none_is_refused(tmp_path: Path) -> None:
    """More of what is no YAML is in tests/common/test_yaml_file.py."""
    (tmp_path / NAMES_FILE).write_text("0: eats\n2: 'isst <<'\n")
    keep_names(tmp_path, [0, 1, 2])
    assert read_names(tmp_path) == {0: "eats", 2: "isst <<"}
    long = "goes to the water that it saw last, drinks, and comes back to where it was before"
    (tmp_path / NAMES_FILE).write_text(f"1: {long!r}\n")
    keep_names(tmp_path, [0, 1, 2])  # what somebody wrote stays whole, though no more of it is shown
    assert read_names(tmp_path) == {1: long[:LONGEST_NAME]} and long in (tmp_path / NAMES_FILE).read_text()
    for text, part in (
        ("0: {<<: {a: b}}", "nothing is merged"), ("2001-01-01: a", "neither text nor a number"),
        ("0: 2001-01-01", "NUMBER: name"), ("[" * 2000, "nested deeper"),
    ):  # fmt: skip
        (tmp_path / NAMES_FILE).write_text(text)
        assert_refuses([NAMES_FILE, part, "NUMBER: name"], read_names, tmp_path)


MEMINFO = "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n"


def test_the_least_of_machine_and_container_is_free(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    (tmp_path / "memory.stat").write_text("anon 9\nactive_file 100\ninactive_file 200\nslab_reclaimable 300\n")
    for limit, used, free in (
        ("max", "1000", 8_000_000 * 1024), ("5000", "2600", 3000), ("5000", "6000", 0),
        ("99000000000000", "0", 8_000_000 * 1024),
    ):  # fmt: skip
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{used}\n")
        assert free_memory(meminfo, tmp_path) == free
    assert free_memory(meminfo, tmp_path / "none") == 8_000_000 * 1024
    none = tmp_path / "none"
    none.mkdir()
    assert free_memory(none / "none", none) is None
    meminfo.write_text("MemTotal: 16000000 kB\n")
    assert free_memory(meminfo, none) is None


DUMP = Path("data/NAME")
SETTINGS = AnalysisSettings(DUMP, subsample=10, max_records=1000, skip_first=2)
LIVES = 50


def dump_of(records: int) -> DumpMetadata:
    return replace(planted_metadata(), records=records, lives=LIVES)


@pytest.mark.parametrize(("records", "every"), [(1, 10), (10_100, 10), (10_101, 11), (20_100, 20), (1_000_100, 1000)])
def test_fewer_records_of_a_large_dump_are_kept(records: int, every: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert limited(SETTINGS, DUMP, dump_of(records), 0) == replace(SETTINGS, subsample=every)
    note = capsys.readouterr().err
    assert ("note: " in note) == (every > 10)
    if note:
        assert f"holds {records:,} records: one record in {every} of each life is kept instead of one in 10" in note


def test_what_would_not_fit_is_refused_with_what_it_needs() -> None:
    check_fits(DUMP, 1000, 1)
    if free_memory() is not None:
        refusal = "an analysis of 1,000 records of data/NAME needs about 1000.0 GB of memory, .*lower --max-records"
        assert_refuses(refusal, limited, SETTINGS, DUMP, dump_of(20_100), 1e9)


STRIDE, SKIP_FIRST, SEED = 5, 2, 7


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=8, episodes=2, ticks=60)


@pytest.fixture(scope="module")
def dump(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("dumps") / "planted", planted)


def truth_at(planted: Planted, places: dict[str, np.ndarray]) -> np.ndarray:
    """The planted behaviours, the last one labelled as noise."""
    behaviour = planted.behaviour[places_among(places, vars(planted.records))]
    return np.where(behaviour == 2, NOISE, behaviour)


@pytest.fixture(scope="module")
def run(dump: Path, planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> ClusterRun:
    path, kept = tmp_path_factory.mktemp("results") / "run", Subsample(STRIDE, SKIP_FIRST, SEED)
    return read_cluster_run(labelled_run(path, dump, lambda some: truth_at(planted, places_of(some)), kept), dump)


@pytest.fixture(scope="module")
def propagated(run: ClusterRun, dump: Path) -> PropagatedLabels:
    return propagate_labels(run, dump, fit_rule(run, dump))


def test_every_record_gets_the_behaviour_that_was_planted_and_the_runs_own_labels_are_marked(
    propagated: PropagatedLabels, planted: Planted, run: ClusterRun
) -> None:
    assert len(propagated.label) == len(planted.records)
    np.testing.assert_array_equal(propagated.label, truth_at(planted, propagated.places))
    assert NOISE in propagated.label
    place = places_among(run.places, propagated.places)
    assert propagated.exact[place].all() and propagated.exact.sum() == len(run.label)
    np.testing.assert_array_equal(propagated.label[place], run.label)


def test_an_own_label_stays_even_where_all_neighbours_disagree(run: ClusterRun, dump: Path) -> None:
    odd = run.label.copy()
    odd[0] = 7
    propagated = propagate_labels(replace(run, label=odd), dump, fit_rule(replace(run, label=odd), dump))
    first = places_among({name: column[:1] for name, column in run.places.items()}, propagated.places)
    assert propagated.label[first] == 7 and propagated.exact[first]


def test_some_lives_alone_get_the_labels_that_they_get_among_all(
    propagated: PropagatedLabels, run: ClusterRun, dump: Path
) -> None:
    some = propagate_labels(run, dump, propagated.rule, lives=[(2, 3, 1)])
    assert set(zip(some.places["agent_id"].tolist(), some.places["episode"].tolist(), strict=True)) == {(3, 1)}
    np.testing.assert_array_equal(some.label, propagated.label[places_among(some.places, propagated.places)])
    assert_refuses("no record of the requested lives", propagate_labels, run, dump, propagated.rule, lives=[(99, 1, 1)])


def test_agreement_on_held_out_lives_is_what_it_is_on_new_ones() -> None:
    """For labels that activations predict only in part, the reported accuracy holds on unseen lives."""
    rng = np.random.default_rng(0)
    life = np.repeat(np.arange(80), 50)
    label = rng.integers(0, 2, len(life))
    activations = rng.normal(size=(len(life), 3)).astype(np.float32)
    activations[:, 0] += 2 * label
    seen = life < 40
    rule = rule_from(activations[seen], label[seen], life[seen])
    assert rule.held_out is not None
    agreement = float((rule.labels_of(activations[~seen]) == label[~seen]).mean())
    assert rule.held_out.agreement == pytest.approx(agreement, abs=0.04) and 0.6 < agreement < 0.9
    rng = np.random.default_rng(1)
    # Labels specific to each life: without its own votes a life's label is a guess.
    life = np.repeat(np.arange(60), 20)
    activations = (3 * rng.normal(size=(60, 8))[life] + 0.1 * rng.normal(size=(len(life), 8))).astype(np.float32)
    rule = rule_from(activations, rng.integers(0, 2, 60)[life], life)
    assert rule.held_out is not None and rule.held_out.agreement < 0.7
    rng = np.random.default_rng(2)
    rule = rule_from(rng.normal(size=(9, 4)).astype(np.float32), np.arange(9) % 2, np.zeros(9, np.int64))
    assert rule.held_out is None and "accuracy of this rule is unknown" in rule.in_words()
    rng = np.random.default_rng(3)
    activations = rng.normal(size=(40, 4)).astype(np.float32)
    rule = rule_from(activations, np.full(40, NOISE), np.arange(40) // 10)
    assert (rule.labels_of(activations) == NOISE).all()
    assert rule.held_out is not None and rule.held_out.agreement == 1
    activations = np.array([[0.0], [1.0], [10.0], [11.0]], np.float32)
    mean, components = np.zeros(1, np.float32), np.ones((1, 1), np.float32)
    rule = CarryingRule(mean, components, activations, np.array([3, 0, 0, 3]), 2, None)
    assert rule.labels_of(np.array([[0.2], [0.8], [10.9]], np.float32)).tolist() == [3, 0, 3]


def test_rule_and_labels_are_saved_so_that_they_can_be_repeated(
    propagated: PropagatedLabels, run: ClusterRun, planted: Planted, tmp_path: Path
) -> None:
    with RunFolder(tmp_path / "out", {}) as folder:
        save_propagated(folder, propagated, run)
    output = orjson.loads((tmp_path / "out" / "propagation_rule.json").read_bytes())
    assert output["cluster_labels_sha256"] == sha256(run.path / "cluster_labels.npz")
    assert output["dump_metadata_sha256"] == run.dump_sha256
    assert output["labelled_by_the_run"] == len(run.label) and output["records"] == len(planted.records)
    with np.load(tmp_path / "out" / "propagation_rule.npz", allow_pickle=False) as arrays:
        rule = CarryingRule(**arrays, voters=output["voters"], held_out=None)
    with np.load(tmp_path / "out" / "propagated_labels.npz", allow_pickle=False) as labels:
        again = rule.labels_of(planted.records.activations["action_decoder"])
        np.testing.assert_array_equal(again[~labels["exact"]], labels["label"][~labels["exact"]])


def test_runs_of_other_dumps_or_without_a_layer_are_refused(
    run: ClusterRun, planted: Planted, dump: Path, tmp_path: Path
) -> None:
    """A converted one is another, too."""
    other = write_planted(tmp_path / "other", planted_dump(seed=1))
    assert_refuses(["another dump", str(dump), str(other)], read_cluster_run, run.path, other)
    converted = write_planted(tmp_path / "converted", planted, format="parquet")
    assert_refuses("before it was converted", read_cluster_run, run.path, converted)
    places = {**run.places, "tick": run.places["tick"] + 1000}
    assert_refuses("does not hold", fit_rule, replace(run, places=places), dump)
    with RunFolder(tmp_path / "run", {"input": {METADATA_FILE: sha256(dump / METADATA_FILE)}}) as folder:
        empty = np.empty(0, np.int64)
        folder.save_arrays("cluster_labels.npz", **dict.fromkeys(IDENTITY, empty), label=empty)
    assert_refuses("does not name the run's", fit_rule, read_cluster_run(tmp_path / "run", dump), dump)


def test_what_was_selected_is_read_back_and_recognised(
    planted: Planted, dump: Path, run: ClusterRun, tmp_path: Path
) -> None:
    row = {key: i for i, key in enumerate(zip(*(vars(planted.records)[name] for name in IDENTITY), strict=True))}
    of_run = np.array([row[key] for key in zip(*run.places.values(), strict=True)])
    chosen = np.flatnonzero(planted.behaviour[of_run] == 1)
    twice = [*chosen.tolist(), int(chosen[0])]
    selection = read_selection(saved_selection(tmp_path / "one.json", run.path, records=twice))
    assert selection.records.tolist() == chosen.tolist() and selection.dump == dump
    assert all((column == run.places[name][chosen]).all() for name, column in selection.places.items())
    like = selection.rule().labels_of(planted.records.activations["action_decoder"]) == 1
    others = np.setdiff1d(np.arange(len(like)), of_run)
    assert (like == (planted.behaviour == 1))[others].mean() > 0.9


def test_what_is_no_selection_of_this_run_is_refused(run: ClusterRun, tmp_path: Path) -> None:
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"kind": "labels of clusters"}, "holds 'labels of clusters', no selection"),
        ({"records": []}, "must name records of .*, from 0 to "), ({"records": [-1]}, "must name records"),
        ({"records": [10**6]}, "must name records"), ({"records": "all"}, "holds no selection: 'records'"),
        ({"folder": "analysis_results/gone"}, "in the run analysis_results/gone, which is not there"),
        ({"runKey": "0" * 64}, "selected in another run than"),
    )  # fmt: skip
    for changed, message in changes:
        assert_refuses(message, read_selection, saved_selection(tmp_path / "one.json", run.path, **changed))
