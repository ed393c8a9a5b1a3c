"""The dendrogram explorer in a real browser: offline, without errors, and with correct clusterings."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.clusters.dataset import Dataset
from analysis.clusters.dendrogram_page import ClusterTree, cluster_tree, dendrogram_page, run_clusters
from analysis.clusters.projection import Clustering, Projection, hdbscan_clusters
from analysis.features import FEATURES
from analysis.labels import NOISE
from tests.browser import opened, said_of_damage, scripts_that_ran, until
from tests.planted import planted_dump
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


def test_hovering_tells_size_persistence_and_features(page, tree: ClusterTree, data: Dataset) -> None:
    cluster = int(np.argmax(tree.persistence[1:])) + 1
    page.mouse.move(5, 5)
    page.mouse.move(*place_in_tree(page, cluster), steps=4)
    until(page, f"document.querySelector('#tree .hovertext')?.textContent.startsWith('cluster {cluster}')")
    text = page.locator("#tree .hovertext").first.text_content()
    assert f"{tree.size[cluster]:,} at its birth" in text
    persistence = float(re.search(r"persistence ([\d.,]+)", text)[1].replace(",", ""))
    assert persistence == pytest.approx(tree.persistence[cluster], rel=0.01)
    assert sum(feature.name in text for feature in FEATURES) >= 3


def test_hovering_a_point_tells_its_cluster_or_that_it_is_noise(page) -> None:
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


def test_nothing_can_be_uploaded_and_names_are_inert(page) -> None:
    titles = page.evaluate("[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)")
    assert titles and not any("hare" in title for title in titles)
    assert HOSTILE in page.locator("h1").inner_text()
    assert page.locator("h1 img").count() == 0


def test_it_fits_a_phone(page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, "document.documentElement.scrollWidth <= 400")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_foreign_scripts_do_not_run_and_a_damaged_page_says_so(browser, page_file: Path, tmp_path: Path) -> None:
    assert scripts_that_ran(browser, page_file, tmp_path) == []
    assert "cannot show its clusters" in said_of_damage(browser, page_file, "content", tmp_path)
