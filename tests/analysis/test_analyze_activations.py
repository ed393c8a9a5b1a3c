"""The whole stage from the command line, on a dump whose clusters are known."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest
from sklearn.metrics import adjusted_rand_score

from activation_store.reader import read_dump
from activation_store.schema import METADATA_FILE, RECORDS_FILE
from tests.planted import FIGHTING, Planted, planted_dump, write_planted

ROOT = Path(__file__).parents[2]
FIGURES = {"umap_scatter.png", "cluster_features.png", "umap_metric_scatter.png"}
SUBSAMPLE = 2


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "analyze_activations.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=12, episodes=2, ticks=60)


@pytest.fixture(scope="module")
def dump(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("activation_data") / "planted", planted)


@pytest.fixture(scope="module")
def results(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("analysis_results")


@pytest.fixture(scope="module")
def run(dump: Path, results: Path) -> Path:
    done = analyze(dump, "--subsample", SUBSAMPLE, "--output-dir", results)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (folder,) = results.iterdir()
    assert str(folder) in done.stdout.replace("\n", "")
    return folder


@pytest.fixture(scope="module")
def summary(run: Path) -> dict:
    return orjson.loads((run / "summary.json").read_bytes())


def test_everything_promised_is_in_the_run_folder(run: Path) -> None:
    assert run.name == f"planted-sub{SUBSAMPLE}-c15"
    arrays = {"embedding.npy", "cluster_labels.npz", "features.npz"}
    words = {"run.json", "summary.json", "summary.txt", "report.html", "DONE.json"}
    assert {path.name for path in run.iterdir()} == FIGURES | arrays | words
    for name in FIGURES:
        assert (run / name).read_bytes().startswith(b"\x89PNG")


def test_labels_name_their_records_and_find_the_planted_behaviours(run: Path, dump: Path, planted: Planted) -> None:
    kept = read_dump(dump, subsample=SUBSAMPLE)
    with np.load(run / "cluster_labels.npz", allow_pickle=False) as labels:
        for name in ("env_id", "agent_id", "episode", "step", "tick"):
            np.testing.assert_array_equal(labels[name], getattr(kept, name))
        found = labels["label"]
    whole = planted.records
    behaviour = {(s, e): b for s, e, b in zip(whole.step, whole.env_id, planted.behaviour, strict=True)}
    truth = [behaviour[s, e] for s, e in zip(kept.step, kept.env_id, strict=True)]
    assert adjusted_rand_score(truth, found) > 0.95
    assert np.load(run / "embedding.npy", allow_pickle=False).shape == (len(kept), 2)


def test_summary_tells_the_planted_story(run: Path, summary: dict, planted: Planted) -> None:
    assert summary["records_in_dump"] == len(planted.records)
    assert summary["noise_share"] < 0.05 and summary["coverage"] == 1 - summary["noise_share"]
    fighters = [
        cluster
        for cluster in summary["clusters"]
        if next(effect for effect in cluster["effects"] if effect["name"] == "is_attacking")["mean"] > 0.9
    ]
    assert len(fighters) == 1
    assert fighters[0]["share"] == pytest.approx(np.mean(planted.behaviour == FIGHTING), abs=0.05)
    assert not any(confound["flagged"] for confound in fighters[0]["confounds"])
    assert "is_attacking more often" in fighters[0]["description"]
    assert len(summary["stability"]["over_seeds"]) == 3 and min(summary["stability"]["over_seeds"]) > 0.8
    text = (run / "summary.txt").read_text()
    assert text.startswith("Verdict") and "Noise:" in text and "is_attacking" in text and "nan" not in text


def test_run_json_tells_how_to_repeat_the_run(run: Path, dump: Path) -> None:
    content = orjson.loads((run / "run.json").read_bytes())
    metadata = orjson.loads((dump / METADATA_FILE).read_bytes())
    assert content["arguments"]["subsample"] == SUBSAMPLE and content["seed"] == 42
    assert content["input"][RECORDS_FILE] == metadata["files"][RECORDS_FILE]["sha256"]
    assert content["versions"]["numpy"] == np.__version__


def test_the_same_seed_gives_the_same_run(run: Path, dump: Path, tmp_path: Path) -> None:
    assert analyze(dump, "--subsample", SUBSAMPLE, "--output-dir", tmp_path).returncode == 0
    for name in ("embedding.npy", "cluster_labels.npz", "summary.json", *FIGURES):
        first, second = (folder / run.name / name for folder in (run.parent, tmp_path))
        if name.endswith(".npz"):
            with np.load(first) as a, np.load(second) as b:
                assert all(np.array_equal(a[key], b[key]) for key in a)
        else:
            assert first.read_bytes() == second.read_bytes(), name


def test_activations_without_structure_still_give_every_figure(tmp_path: Path) -> None:
    dump = write_planted(tmp_path / "noise", planted_dump(agents=4, episodes=1, ticks=40, separation=0.0))
    done = analyze(dump, "--subsample", 1, "--hdbscan-min-cluster", 40, "--hdbscan-min-samples", 30,
                   "--output-dir", tmp_path / "results")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "results").iterdir()
    assert folder.name == "noise-sub1-c40-s30"
    assert {path.name for path in folder.iterdir()} >= FIGURES
    assert orjson.loads((folder / "summary.json").read_bytes())["noise_share"] == 1
    assert "No cluster was found" in (folder / "summary.txt").read_text()


def test_other_features_can_be_asked_for(planted: Planted, tmp_path: Path) -> None:
    dump = write_planted(tmp_path / "small", planted, environment={"map_size": 64})
    done = analyze(
        dump, "--subsample", 4, "--features", "default,food_change, is_idle", "--output-dir", tmp_path,
        "--residualize", "tick,is_idle", "--permutations", 199, "--bootstraps", 99, "--confidence", 0.9,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    folder = tmp_path / "small-sub4-c15-p199-b99-ci0.9-default+food_change+is_idle-without_tick+is_idle"
    summary = orjson.loads((folder / "summary.json").read_bytes())
    names = [feature["name"] for feature in summary["features"]]
    assert len(names) == 16 and names[-2:] == ["food_change", "is_idle"]
    for cluster in summary["clusters"]:
        assert [effect["name"] for effect in cluster["effects"]] == names
    assert "food_change" in (folder / "summary.txt").read_text()
    assert summary["method"] | {"unit": "life"} == summary["method"] and summary["method"]["confidence"] == 0.9
    again = summary["residualized"]
    with np.load(folder / "residualized.npz", allow_pickle=False) as arrays:
        assert len(arrays["label"]) == summary["records"] and arrays["label"].max() + 1 == again["clusters"]
    assert again["variables"] == ["tick", "is_idle"] and 0 < again["variance_removed"] < 1
    done = analyze(dump, "--subsample", 4, "--features", "extended", "--output-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    content = orjson.loads((tmp_path / "small-sub4-c15-extended" / "summary.json").read_bytes())
    assert len(content["features"]) > 100


def refused(*arguments: object) -> str:
    done = analyze(*arguments)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    return done.stderr


def test_a_second_run_into_the_same_folder_is_refused(run: Path, dump: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert "already holds a run" in refused(dump, "--subsample", SUBSAMPLE, "--output-dir", run.parent)
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before


def test_dumps_that_cannot_be_read_are_refused(dump: Path, planted: Planted, tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert "does not exist" in refused(tmp_path / "nowhere", "--output-dir", results)
    truncated = Path(shutil.copytree(dump, tmp_path / "truncated"))
    (truncated / RECORDS_FILE).write_bytes((dump / RECORDS_FILE).read_bytes()[:-500])
    assert "is truncated" in refused(truncated, "--subsample", SUBSAMPLE, "--output-dir", results)
    empty = Planted(planted.records.take(np.arange(0)), planted.metadata, planted.behaviour[:0])
    assert "empty dump" in refused(write_planted(tmp_path / "empty", empty), "--output-dir", results)
    assert not results.exists() or list(results.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--subsample", "0"], "--subsample is 0: allowed is 1 or more"),
        (["--subsample", "1000"], "too few records"),
        (["--hdbscan-min-cluster", "100000"], "too few records"),
        (["--umap-neighbors", "100000"], "too few records"),
        (["--hdbscan-min-cluster", "1"], "--hdbscan-min-cluster is 1"),
        (["--umap-min-dist", "1.5"], "--umap-min-dist is 1.5: allowed is 0 to 1"),
        (["--umap-min-dist", "nan"], "--umap-min-dist is nan"),
        (["--seed", "-1"], "--seed is -1"),
        (["--features", "tick,life_fraction"], "there is no feature 'life_fraction'"),
        (["--features", ","], "no feature is named"),
        (["--permutations", "50"], "--permutations is 50: allowed is 99 to 100000"),
        (["--bootstraps", "-1"], "--bootstraps is -1"),
        (["--confidence", "95"], "--confidence is 95.0: allowed is 0.5 to below 1"),
        (["--residualize", "tick,tok"], "--residualize tok: there is no such variable"),
        (["--layer", "nothing"], "holds no layer 'nothing', only: action_decoder"),
    ],
)
def test_values_that_cannot_work_are_refused(dump: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in refused(dump, "--output-dir", tmp_path / "results", *arguments)
    assert not (tmp_path / "results").exists()


def test_help_shows_every_default() -> None:
    done = analyze("--help")
    assert done.returncode == 0
    for default in ("10", "15", "5", "0.1", "action_decoder", "42", "analysis_results"):
        assert f"(default: {default})" in " ".join(done.stdout.replace("│", " ").split())
