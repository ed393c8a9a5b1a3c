"""The whole stage from the command line, on a dump with known clusters."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from sklearn.metrics import adjusted_rand_score

from activation_store.reader import read_dump
from activation_store.schema import METADATA_FILE, RECORDS_FILE
from activation_store.selection import Subsample
from analysis.features import features_named
from tests.command import assert_refused, run_here, run_well
from tests.command import run as run_script
from tests.planted import FIGHTING, Planted, planted_dump, write_planted
from tests.shared import shared_folder

FIGURES = {"umap_scatter.png", "cluster_features.png", "umap_metric_scatter.png"}
ALWAYS = {
    "run.json", "summary.json", "summary.txt", "report.html", "features.npz", "directions.safetensors", "DONE.json",
}  # fmt: skip
OF_CLUSTERS = {"embedding.npy", "cluster_labels.npz", "cluster_features.png"}
OF_COMPONENTS = {"pca.npz", "pca_pairs.png", "pca_feature_correlations.png", "pca_feature_profiles.png"}
SUBSAMPLE = 2
OF_CHOICES = {"cluster_choices.png"}
FEW_FEATURES = "is_moving,is_attacking,self_gold,tick"
"""In place of the default ones, of which the scatter plots of all pairs take longest to draw."""


def analyse(dump: Path, results: Path, *options: object) -> Path:
    """Run the stage, show what it printed, and return the new run's folder."""
    before = set(results.iterdir()) if results.exists() else set()
    print(run_well("analyze_activations.py", dump, *options, "--output-dir", results).stdout)
    (folder,) = set(results.iterdir()) - before
    assert (folder / "DONE.json").exists()
    for figure in folder.glob("*.png"):
        assert figure.read_bytes().startswith(b"\x89PNG")
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def summary_of(folder: Path) -> dict:
    return orjson.loads((folder / "summary.json").read_bytes())


@pytest.fixture(scope="module")
def planted() -> Planted:
    return planted_dump(agents=12, episodes=2, ticks=60)


@pytest.fixture(scope="module")
def dump(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = shared_folder(tmp_path_factory, "activation_data", lambda path: write_planted(path / "planted", planted))
    return data / "planted"


@pytest.fixture(scope="module")
def run(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def analyse_dump(results: Path) -> None:
        done = run_here("analyze_activations.py", dump, "--subsample", SUBSAMPLE, "--output-dir", results)
        assert (done.returncode, done.stderr) == (0, "")
        (folder,) = results.iterdir()
        assert str(folder) in done.stdout.replace("\n", "")

    (folder,) = shared_folder(tmp_path_factory, "analysis_results", analyse_dump).iterdir()
    return folder


def test_everything_promised_is_in_the_run_folder_and_run_json_tells_how_to_repeat_it(run: Path, dump: Path) -> None:
    assert run.name == f"planted-sub{SUBSAMPLE}-c15"
    assert names(run) == ALWAYS | OF_CLUSTERS | OF_CHOICES | FIGURES
    content = orjson.loads((run / "run.json").read_bytes())
    metadata = orjson.loads((dump / METADATA_FILE).read_bytes())
    assert content["arguments"]["subsample"] == SUBSAMPLE and content["seed"] == 42
    assert content["input"][RECORDS_FILE] == metadata["files"][RECORDS_FILE]["sha256"]
    assert content["versions"]["numpy"] == np.__version__


def test_labels_name_their_records_and_find_the_planted_behaviours(run: Path, dump: Path, planted: Planted) -> None:
    kept = read_dump(dump, subsample=Subsample(SUBSAMPLE, skip_first=1, seed=42))
    assert set(range(1, 2 * SUBSAMPLE)) <= set(kept.tick.tolist()) and 0 not in kept.tick  # no life's first tick
    with np.load(run / "cluster_labels.npz", allow_pickle=False) as labels:
        for name in ("env_id", "agent_id", "episode", "step", "tick"):
            np.testing.assert_array_equal(labels[name], getattr(kept, name))
    assert agreement(run, planted) > 0.95
    assert np.load(run / "embedding.npy", allow_pickle=False).shape == (len(kept), 2)


def test_summary_tells_the_planted_story(run: Path, planted: Planted) -> None:
    summary = summary_of(run)
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
    for name in ("over_seeds", "over_embeddings"):
        assert len(summary["stability"][name]) == 3 and min(summary["stability"][name]) > 0.8
    assert any("Projection stability: stable" in sentence for sentence in summary["verdict"])
    text = (run / "summary.txt").read_text()
    kept = f"one in {SUBSAMPLE} of each life, from a random tick on after its first tick"
    assert kept in " ".join(text.split()) and (summary["subsample"], summary["skip_first"]) == (SUBSAMPLE, 1)
    assert text.startswith("Verdict") and "Noise:" in text and "is_attacking" in text and "nan" not in text


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_in_another_process(run: Path, dump: Path, tmp_path: Path) -> None:
    """As users run it, with what is kept of the compiled UMAP."""
    done = run_script("analyze_activations.py", dump, "--subsample", SUBSAMPLE, "--output-dir", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (again,) = tmp_path.iterdir()
    assert names(run) == names(again)
    for name in names(run) - {"run.json", "DONE.json"}:
        if name.endswith(".npz"):
            with np.load(run / name) as a, np.load(again / name) as b:
                assert all(np.array_equal(a[key], b[key]) for key in a)
        else:
            assert (run / name).read_bytes() == (again / name).read_bytes(), name


@pytest.fixture(scope="module")
def whole(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every output, clustered in principal components."""
    options = (
        "--subsample", SUBSAMPLE, "--cluster-before-umap", "--pre-cluster-dims", "8", "--feature-scatter",
        "--umap-pairs", "--umap-pairs-dims", "4", "--dendrogram-explorer",
    )  # fmt: skip
    (folder,) = shared_folder(tmp_path_factory, "every_view", lambda path: analyse(dump, path, *options)).iterdir()
    return folder


@pytest.mark.slow
def test_every_view_at_once(whole: Path) -> None:
    assert whole.name == f"planted-sub{SUBSAMPLE}-c15-pca8-pairs4-scatter-tree"
    further = {"feature_scatter.png", "umap_pairs.png", "umap_pairs.npy", "dendrogram_explorer.html"}
    assert names(whole) == ALWAYS | OF_CLUSTERS | OF_CHOICES | FIGURES | OF_COMPONENTS | further | {"pca_choices.png"}
    assert not (whole / "dendrogram_explorer.html").stat().st_size > 6_000_000


@pytest.mark.slow
def test_clusters_of_principal_components_are_the_planted_ones(whole: Path, dump: Path, planted: Planted) -> None:
    kept = read_dump(dump, subsample=Subsample(SUBSAMPLE, skip_first=1, seed=42))
    assert agreement(whole, planted) > 0.95
    activations = kept.activations["action_decoder"]
    compared = len(features_named(["default", "choices", "ways"]))
    with np.load(whole / "pca.npz", allow_pickle=False) as pca:
        assert pca["components"].shape == (8, 16) and pca["pearson_r"].shape == (8, compared)
        scores = (activations - pca["mean"]) @ pca["components"].T
        share = scores.var(axis=0) / activations.var(axis=0).sum()
        np.testing.assert_allclose(share, pca["explained_variance_ratio"], rtol=1e-3)
    with np.load(whole / "features.npz", allow_pickle=False) as features:
        assert features["values"].shape == (len(kept), compared) and features["names"][10] == "tick"
        np.testing.assert_array_equal(features["values"][:, 10], kept.tick)
    assert np.load(whole / "umap_pairs.npy").shape == (len(kept), 4)


def agreement(run: Path, planted: Planted) -> float:
    """Return the adjusted Rand index of a run's clusters and the planted behaviours."""
    whole = planted.records
    behaviour = {(s, e): b for s, e, b in zip(whole.step, whole.env_id, planted.behaviour, strict=True)}
    with np.load(run / "cluster_labels.npz", allow_pickle=False) as labels:
        truth = [behaviour[s, e] for s, e in zip(labels["step"], labels["env_id"], strict=True)]
        return adjusted_rand_score(truth, labels["label"])


@pytest.mark.slow
def test_components_are_told_in_the_summary(whole: Path, run: Path) -> None:
    """Attacking is one of the three planted behaviours, so the components predict it; gold is random."""
    output = summary_of(whole)["components"]
    r2 = dict(zip(output["features"], output["r2"], strict=True))
    assert r2["is_attacking"] > 0.9 and r2["self_gold"] < 0.05
    text = (whole / "summary.txt").read_text()
    assert "Principal components: 8 explain" in text and "nan" not in text
    assert summary_of(run)["components"] is None


def test_without_clusters_nothing_is_embedded_or_clustered(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("this takes the time that --metric-only is to save")

    for name in ("project", "hdbscan_clusters", "umap_embedding"):
        monkeypatch.setattr(f"analysis.clusters.outputs.{name}", never)
    options = ["--metric-only", "--cluster-before-umap", "--pre-cluster-dims", "5", "--feature-scatter"]
    folder = analyse(dump, tmp_path, "--subsample", SUBSAMPLE, *options, "--features", FEW_FEATURES)
    assert folder.name == f"planted-sub{SUBSAMPLE}-metric-pca5-scatter-{FEW_FEATURES.replace(',', '+')}"
    assert names(folder) == ALWAYS | OF_COMPONENTS | {"feature_scatter.png"}
    content = summary_of(folder)
    assert content["clusters"] is None and len(content["components"]["r2"]) == 4
    assert "No clusters were looked for" in (folder / "summary.txt").read_text()


@pytest.mark.parametrize(
    ("projection", "options"),
    [pytest.param("tsne", ["--tsne-perplexity", "12"], marks=pytest.mark.slow), ("pca", ["--dendrogram-explorer"])],
)
def test_other_projections(
    dump: Path, planted: Planted, tmp_path: Path, projection: str, options: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = analyse(dump, tmp_path, "--subsample", 4, "--projection", projection, "--umap-min-dist", 0.2, *options)
    assert "no effect since nothing is embedded with UMAP: --umap-min-dist" in capsys.readouterr().out
    figures = {f"{projection}_scatter.png", f"{projection}_metric_scatter.png"}
    assert names(folder) - {"dendrogram_explorer.html"} == ALWAYS | OF_CLUSTERS | OF_CHOICES | figures
    assert agreement(folder, planted) > 0.9


def most_of(dump: Path) -> int:
    return len(read_dump(dump, subsample=Subsample(skip_first=1))) // 2


def test_activations_without_structure_still_give_every_figure(tmp_path: Path) -> None:
    dump = write_planted(tmp_path / "noise", planted_dump(agents=4, episodes=1, ticks=40, separation=0.0))
    # Clusters of half the records each, without noise, cannot occur: none is found, wherever UMAP puts the points.
    folder = analyse(dump, tmp_path / "results", "--subsample", 1, "--hdbscan-min-cluster", most_of(dump),
                     "--hdbscan-min-samples", 30, "--dendrogram-explorer", "--feature-scatter",
                     "--features", FEW_FEATURES)  # fmt: skip
    assert folder.name == f"noise-sub1-c{most_of(dump)}-s30-scatter-tree-{FEW_FEATURES.replace(',', '+')}"
    assert names(folder) >= FIGURES | {"dendrogram_explorer.html", "feature_scatter.png"}
    assert summary_of(folder)["noise_share"] == 1
    assert "No cluster was found" in (folder / "summary.txt").read_text()


ODD = {
    "one life": lambda records: (records.env_id == 0) & (records.episode == 0),
    "one tick": lambda records: records.tick == 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ODD))
def test_one_life_and_one_tick_give_pictures(name: str, tmp_path: Path) -> None:
    planted = planted_dump(agents=30, episodes=2, ticks=40)
    keep = np.flatnonzero(ODD[name](planted.records))
    odd = replace(planted, records=planted.records.take(keep), behaviour=planted.behaviour[keep])
    options = ["--cluster-before-umap", "--pre-cluster-dims", "4", "--feature-scatter", "--dendrogram-explorer"]
    folder = analyse(write_planted(tmp_path / "odd", odd), tmp_path / "results", "--subsample", 1,
                     "--skip-first", 0, "--hdbscan-min-cluster", 5, "--features", FEW_FEATURES, *options)  # fmt: skip
    assert names(folder) >= FIGURES | OF_COMPONENTS | {"dendrogram_explorer.html", "feature_scatter.png"}
    r2 = dict(zip(*(summary_of(folder)["components"][key] for key in ("features", "r2")), strict=True))
    assert r2["tick" if name == "one tick" else "is_moving"] is None
    assert "nan" not in (folder / "summary.txt").read_text()


@pytest.mark.slow
def test_other_features_can_be_asked_for(planted: Planted, tmp_path: Path) -> None:
    dump = write_planted(tmp_path / "small", planted, environment={"map_size": 64})
    folder = analyse(
        dump, tmp_path / "results", "--subsample", 4, "--features", "default,food_change, is_idle",
        "--projection", "pca", "--residualize", "tick,is_idle", "--permutations", 199, "--bootstraps", 99,
        "--confidence", 0.9,
    )  # fmt: skip
    assert folder.name == "small-sub4-c15-pca-perm199-boot99-ci0.9-default+food_change+is_idle-without_tick+is_idle"
    summary = summary_of(folder)
    chosen = [feature["name"] for feature in summary["features"]]
    assert len(chosen) == 16 and chosen[-2:] == ["food_change", "is_idle"]
    for cluster in summary["clusters"]:
        assert [effect["name"] for effect in cluster["effects"]] == chosen
    assert "food_change" in (folder / "summary.txt").read_text()
    assert summary["method"] | {"unit": "life"} == summary["method"] and summary["method"]["confidence"] == 0.9
    again = summary["residualized"]
    with np.load(folder / "residualized.npz", allow_pickle=False) as arrays:
        assert len(arrays["label"]) == summary["records"] and arrays["label"].max() + 1 == again["clusters"]
    assert again["variables"] == ["tick", "is_idle"] and 0 < again["variance_removed"] < 1


def refused(dump: Path, results: Path, *options: object) -> str:
    """Check that the stage refuses and leaves nothing behind; return the message."""
    before = sorted(results.rglob("*")) if results.exists() else None
    done = run_here("analyze_activations.py", dump, *options, "--output-dir", results)
    assert_refused(done)
    assert (sorted(results.rglob("*")) if results.exists() else None) == before
    return done.stderr


def test_a_second_run_and_mistakes_end_in_one_line(run: Path, dump: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert "already holds a run" in refused(dump, run.parent, "--subsample", SUBSAMPLE)
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
    results = tmp_path / "results"
    options = ("--metric-only", "--dendrogram-explorer", "--output-dir", results)
    assert_refused(run_script("analyze_activations.py", dump, *options), "--dendrogram-explorer has no tree")
    assert not results.exists()
    assert "too few records" in refused(dump, results, "--umap-neighbors", 100_000)
    assert "holds no layer 'nothing'" in refused(dump, results, "--layer", "nothing")


def test_dumps_that_cannot_be_read_or_do_not_think_are_refused(dump: Path, planted: Planted, tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert "does not exist" in refused(tmp_path / "nowhere", results)
    empty = Planted(planted.records.take(np.arange(0)), planted.metadata, planted.behaviour[:0])
    assert "empty dump" in refused(write_planted(tmp_path / "empty", empty), results)
    truncated = Path(shutil.copytree(dump, tmp_path / "truncated"))
    (truncated / RECORDS_FILE).write_bytes((dump / RECORDS_FILE).read_bytes()[:-500])
    options = ("--subsample", SUBSAMPLE, "--output-dir", results)
    assert_refused(run_here("analyze_activations.py", truncated, *options), "is truncated")
    assert list(results.iterdir()) == []
    same = np.ones_like(planted.records.activations["action_decoder"])
    dull = replace(planted, records=replace(planted.records, activations={"action_decoder": same}))
    options = ("--subsample", SUBSAMPLE, "--output-dir", tmp_path / "results")
    done = run_here("analyze_activations.py", write_planted(tmp_path / "dull", dull), *options)
    assert_refused(done, "every kept record has the same action_decoder")
    assert list((tmp_path / "results").iterdir()) == []


@pytest.mark.slow
def test_two_policies_of_different_width_are_never_mixed(dump: Path, tmp_path: Path) -> None:
    """A folder of dumps is refused by name; a dump that contains another dump's folder is read by itself."""
    other = write_planted(tmp_path / "both" / "wide", planted_dump(seed=3, layers={"action_decoder": 24}))
    first = Path(shutil.copytree(dump, tmp_path / "both" / "narrow"))
    message = refused(tmp_path / "both", tmp_path / "results")
    assert "holds several dumps" in message and "narrow, wide" in message
    shutil.move(other, first / "wide")
    folder = analyse(first, tmp_path / "results", "--subsample", 4, "--metric-only", "--cluster-before-umap",
                     "--pre-cluster-dims", 2)  # fmt: skip
    with np.load(folder / "pca.npz") as pca:
        assert pca["mean"].shape == (16,)
