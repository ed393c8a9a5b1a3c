"""Trees of clusters are those of HDBSCAN at every density, and their page shows them in a real browser."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

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
    dendrogram_page,
    page_content,
    run_clusters,
    strongest_features,
)
from analysis.clusters.projection import Clustering, Projection, hdbscan_clusters
from analysis.features import FEATURES
from analysis.labels import NOISE, largest_first
from analysis.statistics.effect_intervals import effect_sizes
from tests.browser import opened, said_of_damage, scripts_that_ran, until
from tests.planted import BEHAVIOURS, planted_dump
from tests.planted_summary import planted_dataset

NO_CLUSTER = 65535
PAGE_BYTES = 6_000_000
HOSTILE = "<img src=x onerror=alert(1)>&'\"</script>"


@pytest.fixture(scope="module")
def data() -> Dataset:
    planted = planted_dump(agents=12, episodes=2, ticks=60, separation=1.5)
    return replace(planted_dataset(planted), layer=HOSTILE)


@pytest.fixture(scope="module", params=["in the plane", "in many dimensions"])
def clustering(request: pytest.FixtureRequest, data: Dataset) -> Clustering:
    units = 2 if request.param == "in the plane" else 16
    return hdbscan_clusters(data.activations[:, :units], 8, 3)


@pytest.fixture(scope="module")
def tree(clustering: Clustering) -> ClusterTree:
    return cluster_tree(clustering.tree)


@pytest.fixture(scope="module")
def page_file(data: Dataset, clustering: Clustering, tmp_path_factory: pytest.TempPathFactory) -> Path:
    plane = Projection("umap", data.activations[:, :2], ("UMAP 1", "UMAP 2"))
    file = tmp_path_factory.mktemp("page") / "dendrogram_explorer.html"
    file.write_text(dendrogram_page(plane, clustering, "the UMAP plane", data, seed=0))
    assert file.stat().st_size < PAGE_BYTES
    return file


@pytest.fixture(scope="module")
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, "window.explorer !== undefined") as page:
        yield page


def shown(page) -> np.ndarray:
    """The cluster of each point in the page."""
    return np.array(page.evaluate("Array.from(window.explorer.clusterOf)"))


def set_level(page, level: int) -> None:
    page.locator("#level").fill(str(level))
    until(page, f"window.explorer.level === {level} && !window.explorer.own")


def densities(page) -> list[float]:
    return page.evaluate("facts.densities")


def test_it_opens_with_the_runs_own_clusters(page, tree: ClusterTree, clustering: Clustering) -> None:
    own = np.append(run_clusters(tree, clustering.labels), NO_CLUSTER)[clustering.labels]
    np.testing.assert_array_equal(shown(page), own)
    output = page.locator("#words").inner_text()
    assert output.startswith("The run's own clusters: ")
    assert f"{100 * np.mean(clustering.labels == NOISE):.1f}% are noise" in output
    numbers = page.evaluate("document.getElementById('plane')._fullLayout.annotations.map((a) => a.text)")
    assert sorted(numbers) == sorted(f"<b>{label}</b>" for label in range(clustering.labels.max() + 1))


def test_the_slider_cuts_the_tree(page, tree: ClusterTree) -> None:
    levels = densities(page)
    assert len(levels) > 10
    seen = []
    for level in (0, 1, len(levels) // 2, len(levels) - 1):
        set_level(page, level)
        cut = tree.cut(levels[level])
        np.testing.assert_array_equal(shown(page), np.where(cut == NOISE, NO_CLUSTER, cut))
        output = page.locator("#words").inner_text()
        assert f"{100 * np.mean(cut == NOISE):.1f}% are noise" in output
        assert f"level {level + 1} of {len(levels)}" in output
        seen.append(page.evaluate("JSON.stringify(document.getElementById('plane').data[0].marker.color)"))
        lit = page.evaluate("document.getElementById('tree').data[0].marker.color.map((c, i) => c === UNLIT ? -1 : i)")
        assert {i for i in lit if i >= 0} == set(np.unique(cut)) - {NOISE}
    assert len(set(seen)) == len(seen)


def test_buttons_and_blocks_move_the_level(page, tree: ClusterTree) -> None:
    set_level(page, 3)
    page.locator("#denser").click()
    until(page, "window.explorer.level === 4")
    page.locator("#sparser").click()
    until(page, "window.explorer.level === 3")
    cluster = int(np.argmax(tree.size[1:])) + 1
    page.mouse.click(*place_in_tree(page, cluster))
    expected = int(np.argmax(np.array(densities(page)) > tree.birth[cluster]))
    until(page, f"window.explorer.level === {expected}")
    page.locator("#own").check()
    until(page, "window.explorer.own")
    page.locator("#own").uncheck()


def place_on(page, plot: str, across: str, up: str) -> tuple[float, float]:
    """Screen position of two coordinates in a plot, said in its script's words."""
    at = page.evaluate(
        f"""() => {{ const plot = document.getElementById('{plot}'), block = plot.data[0], full = plot._fullLayout;
        const box = plot.getBoundingClientRect();
        return [box.left + full.xaxis._offset + full.xaxis.d2p({across}),
                box.top + full.yaxis._offset + full.yaxis.d2p({up})]; }}"""
    )
    return at[0], at[1]


def place_in_tree(page, cluster: int) -> tuple[float, float]:
    """Screen position of the middle of a cluster's block."""
    return place_on(page, "tree", f"block.base[{cluster}] + block.x[{cluster}] / 2", f"block.y[{cluster}]")


def test_hovering_tells_of_clusters_and_of_points(page, tree: ClusterTree, data: Dataset) -> None:
    cluster = int(np.argmax(tree.persistence[1:])) + 1
    page.mouse.move(5, 5)
    page.mouse.move(*place_in_tree(page, cluster), steps=4)
    until(page, f"document.querySelector('#tree .hovertext')?.textContent.startsWith('cluster {cluster}')")
    text = page.locator("#tree .hovertext").first.text_content()
    assert f"{tree.size[cluster]:,} at its birth" in text
    persistence = float(re.search(r"persistence ([\d.,]+)", text)[1].replace(",", ""))
    assert persistence == pytest.approx(tree.persistence[cluster], rel=0.01)
    assert sum(feature.name in text for feature in FEATURES) >= 3
    assert page.evaluate("[0.0001234, 0.02345, 12345, null].map(number)") == ["0.000123", "0.0235", "12,300", "∞"]
    set_level(page, len(densities(page)) // 2)
    clusters = shown(page)
    for wanted in ("noise", "cluster"):
        result = np.flatnonzero((clusters == NO_CLUSTER) == (wanted == "noise"))
        texts = page.evaluate("document.getElementById('plane').data[0].text")
        assert all(texts[i].startswith("noise here" if wanted == "noise" else "<b>cluster") for i in result)
    i = int(np.flatnonzero(clusters != NO_CLUSTER)[0])
    x, y = place_on(page, "plane", f"points.x[{i}]", f"points.y[{i}]")
    page.mouse.move(x - 40, y - 40)
    page.mouse.move(x, y, steps=4)
    until(page, "document.querySelector('#plane .hoverlayer .hovertext') !== null")


def test_nothing_can_be_uploaded_names_are_inert_and_it_fits_a_phone(page) -> None:
    titles = page.evaluate("[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)")
    assert titles and not any("hare" in title for title in titles)
    assert HOSTILE in page.locator("h1").inner_text()
    assert page.locator("h1 img").count() == 0
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, "document.documentElement.scrollWidth <= 400")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_foreign_scripts_do_not_run_and_a_damaged_page_says_so(browser, page_file: Path, tmp_path: Path) -> None:
    assert scripts_that_ran(browser, page_file, tmp_path) == []
    assert "cannot show its clusters" in said_of_damage(browser, page_file, "content", tmp_path)


SMALLEST = 12


def blobs(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(900, 2)) * 0.7 + np.repeat([[0, 0], [4, 0], [0, 9]], 300, axis=0)


POINTS = {
    "blobs": blobs(), "one lump": np.random.default_rng(1).normal(size=(400, 3)),
    "many coincide": np.round(blobs(2), 0), "on a grid": np.round(blobs(3), 1),
    "nearly all coincide": np.concatenate([np.zeros((300, 2)), np.random.default_rng(4).normal(size=(30, 2))]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", POINTS)
def test_cuts_are_those_of_hdbscan_and_the_first_holds_everything(name: str) -> None:
    fitted = hdbscan.HDBSCAN(min_cluster_size=SMALLEST, min_samples=5, core_dist_n_jobs=1).fit(POINTS[name])
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


def test_persistence_is_hdbscans_stability_and_finite_where_records_coincide() -> None:
    model = hdbscan.HDBSCAN(min_cluster_size=SMALLEST, min_samples=5, core_dist_n_jobs=1).fit(blobs())
    stability = compute_stability(model.condensed_tree_._raw_tree)
    expected = [stability[cluster] for cluster in sorted(stability)]
    np.testing.assert_allclose(cluster_tree(model.condensed_tree_.to_numpy()).persistence, expected, rtol=1e-9)
    tree = cluster_tree(hdbscan_clusters(POINTS["many coincide"], SMALLEST, 5).tree)
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


def test_strongest_features_are_cohens_d_and_a_page_counts_all_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = planted_dump(agents=8, episodes=2, ticks=40)
    values = np.random.default_rng(0).normal(size=(len(planted.records), len(FEATURES))) * 10 + 500
    values[:, 0] += 30 * planted.behaviour
    values[:, 1] = 7
    data = replace(planted_dataset(planted), values=values)
    clustering = hdbscan_clusters(data.activations, SMALLEST, 5)
    tree = cluster_tree(clustering.tree)
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
    monkeypatch.setattr("analysis.clusters.dendrogram_page.POINTS_AT_MOST", 100)
    plane = Projection("pca", data.activations[:, :2], ("PC 1", "PC 2"))
    content, tables = page_content(plane, clustering, tree, data, seed=0)
    assert len(tables["x"]) == len(tables["y"]) == 100
    for level in content["levels"]:
        assert sum(level["sizes"]) + level["noise"] == content["records"] == len(data)


def test_planted_blobs_are_found_the_largest_first() -> None:
    labels = np.array([3, 3, 0, 0, 0, NOISE, 7, 7, 7, 7])
    assert largest_first(labels).tolist() == [2, 2, 1, 1, 1, NOISE, 0, 0, 0, 0]
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [150, 100, 50])
    points = np.array([[0, 0], [20, 0], [0, 20]])[truth] + rng.normal(size=(300, 2))
    assert adjusted_rand_score(truth, hdbscan_clusters(points, 20, 5).labels) > 0.95
    assert np.bincount(hdbscan_clusters(points, 20, 5).labels + 1)[1:].argmax() == 0
