"""Clusters are found where they were planted, and cuts of their tree equal those of HDBSCAN at every density."""

from dataclasses import replace

import hdbscan
import numpy as np
import pytest
from hdbscan._hdbscan_tree import compute_stability
from sklearn.metrics import adjusted_rand_score

from analysis.clusters.dataset import Dataset
from analysis.clusters.dendrogram_page import (
    ClusterTree,
    block_layout,
    cluster_tree,
    page_content,
    run_clusters,
    strongest_features,
)
from analysis.clusters.projection import Clustering, Projection, hdbscan_clusters
from analysis.features import FEATURES
from analysis.labels import NOISE, largest_first
from analysis.statistics.effect_intervals import effect_sizes
from tests.planted import BEHAVIOURS, planted_dump
from tests.planted_summary import planted_dataset

SMALLEST = 12


def blobs(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(900, 2)) * 0.7 + np.repeat([[0, 0], [4, 0], [0, 9]], 300, axis=0)


POINTS = {
    "blobs": blobs(), "one lump": np.random.default_rng(1).normal(size=(400, 3)),
    "many coincide": np.round(blobs(2), 0), "on a grid": np.round(blobs(3), 1),
    "nearly all coincide": np.concatenate([np.zeros((300, 2)), np.random.default_rng(4).normal(size=(30, 2))]),
}  # fmt: skip


@pytest.fixture(params=list(POINTS))
def fitted(request: pytest.FixtureRequest) -> hdbscan.HDBSCAN:
    return hdbscan.HDBSCAN(min_cluster_size=SMALLEST, min_samples=5, core_dist_n_jobs=1).fit(POINTS[request.param])


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_cuts_are_those_of_hdbscan_and_the_first_holds_everything(fitted: hdbscan.HDBSCAN) -> None:
    tree = cluster_tree(fitted.condensed_tree_.to_numpy())
    densities = tree.densities(30)
    assert 1 <= len(densities) <= 30 and (np.diff(densities) > 0).all()
    assert (tree.cut(densities[0]) == 0).all()
    assert tree.size[0] == len(fitted.labels_) and (tree.gathered(np.ones(tree.size[0])) == tree.size).all()
    for density in densities:
        ours, theirs = tree.cut(density), fitted.single_linkage_tree_.get_clusters(1 / density, SMALLEST)
        if (ours == 0).all() or (theirs == NOISE).all():  # the tree keeps its root, however small
            continue
        np.testing.assert_array_equal(ours == NOISE, theirs == NOISE)
        assert adjusted_rand_score(ours, theirs) == pytest.approx(1)


def test_persistence_is_hdbscans_stability() -> None:
    model = hdbscan.HDBSCAN(min_cluster_size=SMALLEST, min_samples=5, core_dist_n_jobs=1).fit(blobs())
    stability = compute_stability(model.condensed_tree_._raw_tree)
    expected = [stability[cluster] for cluster in sorted(stability)]
    np.testing.assert_allclose(cluster_tree(model.condensed_tree_.to_numpy()).persistence, expected, rtol=1e-9)


def test_persistence_is_finite_where_records_coincide() -> None:
    result = hdbscan_clusters(POINTS["many coincide"], SMALLEST, 5)
    tree = cluster_tree(result.tree)
    assert np.isinf(tree.leaves).any() and np.isfinite(tree.persistence).all() and (tree.persistence >= 0).all()


@pytest.mark.parametrize("name", list(POINTS))
def test_the_runs_clusters_are_found_in_the_tree(name: str) -> None:
    result = hdbscan_clusters(POINTS[name], SMALLEST, 5)
    tree = cluster_tree(result.tree)
    for label, cluster in enumerate(run_clusters(tree, result.labels)):
        member = result.labels == label
        np.testing.assert_array_equal(tree.gathered(member)[cluster], member.sum())
        assert tree.size[cluster] == member.sum()


def test_blocks_hold_their_children_and_no_leaves_overlap() -> None:
    tree = cluster_tree(hdbscan_clusters(blobs(), SMALLEST, 5).tree)
    layout = block_layout(tree)
    for child in range(1, len(tree)):
        parent = tree.parent[child]
        assert layout["low"][parent] <= layout["low"][child] < layout["high"][child] <= layout["high"][parent]
    leaves = np.setdiff1d(np.arange(len(tree)), tree.parent)
    assert sorted(layout["low"][leaves]) == list(range(len(leaves)))
    children = {p: [c for c in range(1, len(tree)) if tree.parent[c] == p] for p in tree.parent[1:]}
    for parent, within in children.items():
        colours = [layout["colour"][c] for c in within]
        assert len(set(colours)) == len(within)
        assert layout["colour"][parent] == layout["colour"][max(within, key=lambda c: tree.size[c])]


@pytest.fixture(scope="module")
def data() -> Dataset:
    planted = planted_dump(agents=8, episodes=2, ticks=40)
    values = np.random.default_rng(0).normal(size=(len(planted.records), len(FEATURES))) * 10 + 500
    values[:, 0] += 30 * planted.behaviour
    values[:, 1] = 7
    return replace(planted_dataset(planted), values=values)


def tree_of(data: Dataset) -> tuple[Clustering, ClusterTree]:
    clustering = hdbscan_clusters(data.activations, SMALLEST, 5)
    return clustering, cluster_tree(clustering.tree)


def test_strongest_features_are_cohens_d_against_the_rest(data: Dataset) -> None:
    clustering, tree = tree_of(data)
    expected = effect_sizes(data.values, clustering.labels, data.lives, seed=0, draws=1).d_complement
    strongest = strongest_features(tree, data)
    assert strongest[0] == []
    for label, cluster in enumerate(run_clusters(tree, clustering.labels)):
        assert [abs(d) for _, d in strongest[cluster]] == sorted((abs(d) for _, d in strongest[cluster]), reverse=True)
        for name, effect in strongest[cluster]:
            column = [feature.name for feature in FEATURES].index(name)
            assert effect == pytest.approx(expected[label, column], rel=1e-6)
        assert FEATURES[1].name not in dict(strongest[cluster])
    first = [strongest[cluster][0][0] for cluster in run_clusters(tree, clustering.labels)]
    assert first.count(FEATURES[0].name) == BEHAVIOURS - 1  # the one in the middle differs little from the others


def test_a_page_counts_all_records_where_it_shows_a_sample(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.clusters.dendrogram_page.POINTS_AT_MOST", 100)
    clustering, tree = tree_of(data)
    plane = Projection("pca", data.activations[:, :2], ("PC 1", "PC 2"))
    content, tables = page_content(plane, clustering, tree, data, seed=0)
    assert len(tables["x"]) == len(tables["y"]) == 100
    for level in content["levels"]:
        assert sum(level["sizes"]) + level["noise"] == content["records"] == len(data)


def test_largest_first() -> None:
    labels = np.array([3, 3, 0, 0, 0, NOISE, 7, 7, 7, 7])
    assert largest_first(labels).tolist() == [2, 2, 1, 1, 1, NOISE, 0, 0, 0, 0]


def test_planted_blobs_are_found() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [150, 100, 50])
    points = np.array([[0, 0], [20, 0], [0, 20]])[truth] + rng.normal(size=(300, 2))
    assert adjusted_rand_score(truth, hdbscan_clusters(points, 20, 5).labels) > 0.95
    assert np.bincount(hdbscan_clusters(points, 20, 5).labels + 1)[1:].argmax() == 0
