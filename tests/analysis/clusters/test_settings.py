"""Options: both spellings, invalid values, and a distinct folder name for every combination."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.clusters.settings import AnalysisSettings
from analysis.features.registry import EXTENDED_FEATURES
from common import command_line
from tests.command import assert_refuses
from tests.planted import planted_metadata

DEFAULTS = AnalysisSettings(Path("data/NAME"))
METADATA = replace(planted_metadata(), records=1000, lives=10)


def test_both_spellings_mean_the_same() -> None:
    dashes = [
        "hdbscan-min-cluster", "20", "cluster-before-umap", "pre-cluster-dims", "8", "umap-pairs", "umap-pairs-dims",
        "4",
    ]  # fmt: skip
    words = ["x", *(word if word.isdigit() else f"--{word}" for word in dashes)]
    underlined = ["x", *(word.replace("-", "_").replace("__", "--", 1) for word in words[1:])]
    first, second = (command_line.parse(AnalysisSettings, "", args=given) for given in (words, underlined))
    assert first == second
    assert first.hdbscan_min_cluster == 20 and first.cluster_before_umap and first.umap_pairs_dims == 4


CHANGES = [
    {"subsample": 3}, {"skip_first": 0}, {"layer": "lstm_cell"}, {"features": "tick,self_food"}, {"projection": "tsne"},
    {"projection": "pca"}, {"umap_neighbors": 16}, {"umap_min_dist": 0.2}, {"hdbscan_min_cluster": 16},
    {"hdbscan_min_samples": 6}, {"cluster_before_umap": True}, {"cluster_before_umap": True, "pre_cluster_dims": 9},
    {"cluster_before_umap": True, "metric_only": True}, {"feature_scatter": True}, {"umap_pairs": True},
    {"umap_pairs": True, "umap_pairs_dims": 4}, {"dendrogram_explorer": True}, {"seed": 7}, {"tsne_perplexity": 9.0},
    {"permutations": 499}, {"bootstraps": 499}, {"confidence": 0.9}, {"residualize": "tick,age"},
]  # fmt: skip


def test_other_settings_go_to_another_folder() -> None:
    folders = [DEFAULTS.run_folder, *(replace(DEFAULTS, **change).run_folder for change in CHANGES)]
    assert folders[0] == Path("analysis_results/NAME-sub10-c15")
    assert len(set(folders)) == len(folders)
    assert all(len(folder.name) < 200 for folder in folders)
    every = ",".join(feature.name for feature in EXTENDED_FEATURES)
    assert len(replace(DEFAULTS, features=every, residualize=every).run_folder.name) < 200


@pytest.mark.parametrize("change", CHANGES)
def test_combinations_that_work_are_not_refused(change: dict) -> None:
    settings = replace(DEFAULTS, **change)
    settings.check()
    if settings.layer == DEFAULTS.layer:
        replace(settings, pre_cluster_dims=8).check_against(METADATA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subsample": 0}, "--subsample is 0: must be 1 or more"),
        ({"max_records": 999}, "--max-records is 999: must be 1000 or more"),
        ({"skip_first": -1}, "--skip-first is -1: must be 0 or more"),
        ({"hdbscan_min_cluster": 1}, "--hdbscan-min-cluster is 1"),
        ({"hdbscan_min_samples": 0}, "--hdbscan-min-samples is 0"),
        ({"umap_neighbors": 1}, "--umap-neighbors is 1"),
        ({"umap_min_dist": 1.5}, "--umap-min-dist is 1.5: must be 0 to 1"),
        ({"umap_min_dist": float("nan")}, "--umap-min-dist is nan"),
        ({"tsne_perplexity": 0.5}, "--tsne-perplexity is 0.5"),
        ({"tsne_perplexity": float("inf")}, "--tsne-perplexity is inf"),
        ({"pre_cluster_dims": 1}, "--pre-cluster-dims is 1"),
        ({"umap_pairs_dims": 1}, "--umap-pairs-dims is 1"),
        ({"umap_pairs_dims": 101}, "--umap-pairs-dims is 101: must be 2 to 100"),
        ({"seed": -1}, "--seed is -1"),
        ({"permutations": 50}, "--permutations is 50: must be 99 to 100000"),
        ({"bootstraps": -1}, "--bootstraps is -1"),
        ({"confidence": 95.0}, "--confidence is 95.0: must be 0.5 to below 1"),
        ({"metric_only": True}, "--metric-only leaves nothing to show: add"),
        ({"metric_only": True, "dendrogram_explorer": True}, "--dendrogram-explorer has no tree"),
        ({"metric_only": True, "dendrogram_explorer": True, "umap_pairs": True}, "--dendrogram-explorer has no tree"),
    ],
)
def test_what_cannot_work_is_refused(change: dict, message: str) -> None:
    assert_refuses(message, replace(DEFAULTS, **change).check)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": "nothing"}, "holds no layer 'nothing', only: action_decoder"),
        ({"cluster_before_umap": True, "pre_cluster_dims": 17}, "--pre-cluster-dims is 17: layer .* has 16 units only"),
        ({"subsample": 1000}, "--subsample 1000 keeps at most 11 of .*, two clusters of .* needs 30"),
        ({"hdbscan_min_cluster": 500}, "--hdbscan-min-cluster 500 needs 1000"),
        ({"hdbscan_min_samples": 110}, "--hdbscan-min-samples 110 needs 111"),
        ({"umap_neighbors": 110}, "--umap-neighbors 110 needs 111"),
        ({"projection": "tsne", "tsne_perplexity": 110.0}, "--tsne-perplexity 110 needs 112"),
        ({"umap_pairs": True, "umap_pairs_dims": 100, "subsample": 20, "umap_neighbors": 5}, "-dims 100 needs 102"),
    ],
)
def test_what_a_dump_cannot_give_is_refused(change: dict, message: str) -> None:
    assert_refuses(message, replace(DEFAULTS, **change).check_against, METADATA)


def test_without_clusters_few_records_are_enough() -> None:
    metric = replace(DEFAULTS, metric_only=True, feature_scatter=True)
    metric.check_enough(2)
    assert_refuses("any output needs 2", metric.check_enough, 1)
    replace(DEFAULTS, projection="pca", umap_neighbors=5000).check_against(METADATA)


def test_options_without_effect_are_told() -> None:
    assert DEFAULTS.without_effect() == []
    (pairs,) = replace(DEFAULTS, umap_pairs_dims=4).without_effect()
    (before,) = replace(DEFAULTS, pre_cluster_dims=4).without_effect()
    assert pairs == "no effect without --umap-pairs: --umap-pairs-dims"
    assert before == "no effect without --cluster-before-umap: --pre-cluster-dims"
    metric = replace(DEFAULTS, metric_only=True, umap_pairs=True, hdbscan_min_cluster=20, umap_neighbors=20)
    assert metric.without_effect() == ["no effect with --metric-only: --hdbscan-min-cluster"]
    intervals = replace(DEFAULTS, metric_only=True, umap_pairs=True, bootstraps=99, confidence=0.9)
    assert intervals.without_effect() == ["no effect without clusters and components: --bootstraps, --confidence"]
    tests = replace(DEFAULTS, metric_only=True, cluster_before_umap=True, permutations=99)
    assert tests.without_effect() == [], "components are tested too"
    assert replace(intervals, cluster_before_umap=True).without_effect() == []
    pca = replace(DEFAULTS, projection="pca", umap_min_dist=0.5, tsne_perplexity=5.0)
    assert len(pca.without_effect()) == 2


def test_features_are_checked_at_once() -> None:
    for change, message in (
        ({"features": "tick,life_fraction"}, "there is no feature 'life_fraction'"),
        ({"features": ","}, "no features given"),
        ({"features": "tick", "feature_scatter": True}, "needs two features or more"),
        ({"residualize": "tick,tok"}, "--residualize tok: there is no such variable"),
    ):
        assert_refuses(message, replace(DEFAULTS, **change).choose_features, METADATA)
    both = replace(DEFAULTS, features="tick, self_food").choose_features(METADATA)
    assert [feature.name for feature in both] == ["tick", "self_food"]
