"""The explorer with planted clusters: everything stays in view for any number of them, with the planted names."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.explorer.content import Explored
from analysis.explorer.page.page import explorer_page
from analysis.figures.style import cluster_colour
from tests.analysis.explorer.conftest import READY, content_of
from tests.browser import opened, until
from tests.planted_run import planted_run
from tests.recorded_policy import RecordedPolicy

SIZES = ((1280, 720), (1920, 1080))
COUNTS = (1, 20, 200)


def planted(content: Explored, clusters: int) -> Explored:
    """Return the same points in this number of alternating clusters."""
    run = content.run
    label = np.arange(len(run.clusters.label)) % clusters
    sizes = np.bincount(label, minlength=clusters).tolist()
    first = run.summary["clusters"][0]
    output = [
        {**first, "label": i, "records": size, "share": size / len(label), "description": f"sign {i}"}
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    summary = {**run.summary, "clusters": output, "noise_records": 0}
    return replace(content, run=replace(run, summary=summary, clusters=replace(run.clusters, label=label)))


@pytest.fixture(
    scope="module",
    params=[pytest.param(count, marks=() if count == max(COUNTS) else pytest.mark.slow) for count in COUNTS],
    ids=lambda count: f"{count} clusters",
)
def page(request: pytest.FixtureRequest, browser, content: Explored, tmp_path_factory) -> Iterator:
    file: Path = tmp_path_factory.mktemp("page") / "explorer.html"
    file.write_text(explorer_page(planted(content, request.param)))
    with opened(browser, file, READY, height=720) as page:
        page.planted = request.param
        yield page


def box(page, selector: str) -> dict[str, float]:
    """Position of an element in the window."""
    return page.locator(selector).first.bounding_box()


def open_a_life(page) -> None:
    page.locator("#plot .nsewdrag").wait_for()
    for point in range(page.evaluate("explorer.count")):
        place = page.evaluate(f"explorer.placeOf({point})")
        page.mouse.move(place["x"] + 3, place["y"] + 3)
        page.wait_for_timeout(60)
        page.mouse.move(place["x"], place["y"])
        page.mouse.click(place["x"], place["y"])
        page.wait_for_timeout(60)
        if page.evaluate("explorer.open !== null"):
            return
    raise AssertionError("no click opened a life")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_everything_stays_in_view(page, size: tuple[int, int]) -> None:
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    assert_the_list_is_in_view(page, size)
    assert box(page, "#map")["height"] > 0.85 * height
    open_a_life(page)
    assert_the_list_is_in_view(page, size)
    views, strip = box(page, "#life-views .now canvas"), box(page, "#timeline .nsewdrag[data-subplot=xy]")
    for part in (views, box(page, "#life-tick")):
        assert part["y"] >= 0 and part["y"] + part["height"] <= height and part["x"] + part["width"] <= width
    assert 0.3 * height < strip["y"] < height - 150 and strip["width"] > 0.25 * width
    assert views["y"] - 40 < strip["y"] and box(page, "#map")["height"] > 0.3 * height
    page.get_by_role("button", name="Close the life").click()
    assert box(page, "#map")["height"] > 0.85 * height


def assert_the_list_is_in_view(page, size: tuple[int, int]) -> None:
    """The page is as large as the window, and the list of clusters scrolls inside it."""
    assert page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]") == list(size)
    listed = box(page, "#cluster-list")
    assert listed["height"] > 150 and listed["y"] + listed["height"] <= size[1]
    scrolls = page.evaluate("(({ scrollHeight, clientHeight }) => scrollHeight > clientHeight)(document.getElementById('cluster-list'))")  # fmt: skip  # noqa: E501
    assert scrolls == (page.planted > 1)
    last = page.locator(f"[data-cluster='{page.planted - 1}']")
    last.scroll_into_view_if_needed()
    assert last.bounding_box()["y"] + last.bounding_box()["height"] <= size[1] + 1
    assert page.evaluate("window.scrollY") == 0


def test_clusters_are_called_and_coloured_as_planted_in_any_room(page) -> None:
    items = page.locator("#cluster-list li").all_inner_texts()
    assert len(items) == page.planted
    for number in {0, page.planted // 2, page.planted - 1}:
        assert f"cluster {number}" in items[number] and f"sign {number}" in items[number]
    last = page.planted - 1
    page.locator(f"[data-cluster='{last}']").get_by_role("button", name="Select").click()
    until(page, "explorer.selection !== null")
    assert page.evaluate("explorer.selection") == list(range(last, page.evaluate("explorer.count"), page.planted))
    shown = page.evaluate("JSON.parse(document.getElementById('explorer-facts').textContent).clusters")
    assert [item["colour"] for item in shown] == [cluster_colour(number) for number in range(page.planted)]
    for room in (-20, 0, 3, 300):  # as in a hidden panel: no circle may have a negative radius
        width = page.evaluate(
            """(room) => {
              const facts = JSON.parse(document.getElementById("explorer-facts").textContent);
              const canvas = document.createElement("canvas");
              const other = { id: 1, health: 9, down: 3, right: 2, kind: 0, attacked: true };
              drawView(canvas, { facts, view: () => new Uint8Array(225), others: () => [other] }, 0, room);
              return parseFloat(canvas.style.width);
            }""",
            room,
        )
        assert width == max(60, room)


def test_points_are_coloured_by_a_whole_choice_and_by_goals(browser, ways: RecordedPolicy, tmp_path: Path) -> None:
    run = planted_run(ways.dump, tmp_path / "runs", 2, "--features", "move", "--permutations", 99, "--bootstraps", 99)
    content = content_of(run)
    records, metadata = content.seen.records.take(content.place), content.seen.metadata
    head = [head.name for head in metadata.action_heads].index("Move.Direction")
    goals = np.array([name.split("side:")[1].split("_")[0] for name in metadata.environment["tasks"]])
    expected = {"move": np.minimum(records.action[:, head], 4), "goal": goals[records.columns["truth/task"]]}
    file = tmp_path / "explorer.html"
    file.write_text(explorer_page(content))
    with opened(browser, file, READY) as page:
        for name, held in expected.items():
            page.get_by_label("Colour by").select_option(label=name)
            shown = page.locator("#groups li").all_inner_texts()
            colours = np.array(page.evaluate("Array.from(document.getElementById('plot').data[0].marker.color)"))
            places = np.array([0, *range(len(shown))])[colours]  # the first colour is that of no option
            names = np.array(shown)[places]
            assert shown[:4] == ["north", "south", "east", "west"] and len(set(names)) == len(set(held.tolist())) > 1
            assert (names == (np.array(shown)[held] if held.dtype.kind == "i" else held)).all()
            assert page.locator("#plot .annotation").count() == 0
        page.get_by_label("Colour by").select_option("cluster")
        assert not page.locator("#groups").is_visible()
