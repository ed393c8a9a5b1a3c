"""explore.py as users run it: its page in a real browser, compared with the run and the dump."""

import base64
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from activation_store.reader import read_metadata
from activation_store.schema import TILE_COLUMNS
from analysis.explorer.base import cluster_base
from analysis.explorer.content import Explored, explored
from analysis.explorer.page.page import explorer_page
from analysis.explorer.tracks import Further, Track
from analysis.explorer.views import view_tables
from analysis.features.observed import Observed
from analysis.figures.style import cluster_colour
from analysis.life.events import DIED, action_words
from analysis.lives import lives_of
from analysis.materials import MATERIALS, PALETTE
from analysis.position import positions
from analysis.runs.cluster_run import read_run
from analysis.runs.propagated_labels import read_selection
from analysis.runs.run_folder import RUN_FILE
from analysis.statistics.circular_shift import circular_shift_test, shift_test_given_time
from analysis.statistics.confounds import variables_of
from analysis.statistics.effect_intervals import cohens_d, moments
from analysis.statistics.inference import LEVEL, Inference
from tests.analysed import Analysed
from tests.analysis.explorer.conftest import READY, content_of, quiet
from tests.browser import nearest, opened, said_of_damage, scripts_that_ran, settle, until
from tests.command import assert_refused, run, run_here, run_well
from tests.planted_run import rewrite

PAGE_BYTES = 7_000_000
HOSTILE = "</script><img src=x onerror=document.title='hacked'><b>&'\""
TAIL_ROUNDING = 1e-3
"""Relative tolerance in far tails: the analysis sums in float32, the page in float64."""
RED = (215, 38, 61)
WINDOW = (1400, 900)


@pytest.fixture(scope="module")
def content(analysed: Analysed) -> Explored:
    return content_of(analysed.run)


@pytest.fixture(scope="module")
def page_file(analysed: Analysed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    done = run("explore.py", analysed.run, "-o", path)
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout and " MB" in done.stdout and path.stat().st_size < PAGE_BYTES
    return path


@pytest.fixture
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, READY, *WINDOW) as page:
        yield page


@pytest.fixture(scope="module")
def untouched(browser, page_file: Path) -> Iterator:
    """The same page, opened once for all tests that only read: to open it takes longer than to read it."""
    with opened(browser, page_file, READY, *WINDOW) as page:
        yield page


def expected_tick(content: Explored, tick: int, words: list[str]) -> dict[str, Any]:
    """The dump's content for a tick, read directly."""
    records, metadata = content.seen.records, content.seen.metadata
    columns = metadata.entity_columns
    first, last = records.entity.offsets[tick : tick + 2]
    rows = [dict(zip(columns, row, strict=True)) for row in records.entity.values[first:last].tolist()]
    me = next(row for row in rows if row["id"] == records.agent_id[tick])
    head = [item.name for item in metadata.action_heads].index("Attack.Target")
    target = int(records.action[tick, head])
    others = [
        {
            "kind": max(row["npc_type"], 0), "id": row["id"], "health": row["health"], "down": row["row"] - me["row"],
            "right": row["col"] - me["col"], "attacked": number == target,
        }
        for number, row in enumerate(rows) if row is not me
    ]  # fmt: skip
    return {
        "tick": records.tick[tick], "agent": records.agent_id[tick], "episode": records.episode[tick],
        "materials": records.tile[tick, :, 2].tolist(), "others": others, "action": words[tick],
        **{name: me[name] for name in ("health", "food", "water", "row", "col")},
    }  # fmt: skip


def test_points_and_lives_are_those_of_the_run_and_the_dump(untouched, content: Explored) -> None:
    page = untouched
    words = action_words(content.seen)
    run_ = content.run
    assert page.evaluate("window.explorer.count") == len(run_.clusters.label) == len(content.rows)
    for point in np.random.default_rng(0).choice(len(content.rows), 40, replace=False).tolist():
        shown = page.evaluate(f"window.explorer.point({point})")
        expected = expected_tick(content, int(content.place[point]), words)
        assert {name: shown[name] for name in expected} == expected
        assert (shown["row_of_run"], shown["label"], shown["own"]) == (point, run_.clusters.label[point], True)
        assert [shown["x"], shown["y"]] == run_.embedding[point].tolist()
        places = run_.clusters.places
        for name, column in (("tick", "tick"), ("agent", "agent_id"), ("episode", "episode")):
            assert shown[name] == places[column][point]
        assert list(shown["features"].values()) == content.values[point].tolist()
    records = content.seen.records
    labels, own = content.tick_labels
    for point in (0, len(content.rows) // 2):
        place = content.place[point]
        same = (records.agent_id == records.agent_id[place]) & (records.episode == records.episode[place])
        life = page.evaluate(f"window.explorer.life({point})")
        assert [item["tick"] for item in life] == records.tick[same].tolist()
        for shown, tick in zip(life, np.flatnonzero(same).tolist(), strict=True):
            expected = expected_tick(content, tick, words)
            assert {name: shown[name] for name in expected} == expected
            assert (shown["label"], shown["own"]) == (labels[tick], own[tick])
            for name, column in (("reward", records.reward), ("value", records.value)):
                assert shown["columns"][name] == column[tick]
            assert shown["columns"]["self_health"] == shown["health"]
        assert 0 < sum(item["own"] for item in life) < len(life)


def a_lonely_point(page, condition: str = "true") -> tuple[int, dict[str, float]]:
    """Return the point that satisfies a condition and is farthest from all others, and its position in the window."""
    script = """() => {
      const all = Array.from({ length: explorer.count }, (_, i) => explorer.placeOf(i));
      const alone = all.map((one, i) => Math.min(...all.map((other, j) => (i === j ? Infinity : Math.hypot(other.x - one.x, other.y - one.y)))));
      const order = all.map((_, i) => i).sort((one, other) => alone[other] - alone[one]);
      const farthest = order.find((i) => { const point = explorer.point(i); return CONDITION; });
      return farthest === undefined ? null : [farthest, all[farthest]];
    }"""  # noqa: E501
    result = page.evaluate(script.replace("CONDITION", condition))
    assert result is not None
    return result


def hover(page, condition: str = "true") -> tuple[int, dict[str, float]]:
    """Move the pointer to the loneliest point that satisfies a condition; return it and its position in the window."""
    point, place = a_lonely_point(page, condition)
    page.mouse.move(place["x"] + 3, place["y"] + 3)
    page.wait_for_timeout(100)
    page.mouse.move(place["x"], place["y"])
    until(page, f"window.explorer.hovered === {point}")
    return point, place


def open_life(page, condition: str = "true") -> int:
    point, place = hover(page, condition)
    page.mouse.click(place["x"], place["y"])
    until(page, "window.explorer.open !== null")
    return point


def pixels(page, selector: str) -> np.ndarray:
    """A canvas's own pixels, (rows, columns, 3)."""
    address = page.evaluate("(selector) => document.querySelector(selector).toDataURL('image/png')", selector)
    return rgb(base64.b64decode(address.partition(",")[2]))


def rgb(png: bytes) -> np.ndarray:
    """The pixels of a picture, (rows, columns, 3) int64."""
    return np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(np.int64)


def test_hovering_a_point_draws_its_view(page) -> None:
    point, _ = hover(page, "point.others.some(({ attacked }) => attacked)")
    shown = page.evaluate(f"window.explorer.point({point})")
    panel = page.get_by_label("Point under the pointer")
    text = panel.inner_text()
    assert f"agent {shown['agent']}, episode {shown['episode']}" in text and f"cluster {shown['label']}" in text
    assert shown["action"] in text and "attacks" in shown["action"]
    for vital in ("health", "food", "water"):
        assert panel.get_by_role("meter", name=vital).get_attribute("aria-valuenow") == str(shown[vital])
    assert "attacked" in panel.locator("canvas").first.get_attribute("aria-label")
    seen = pixels(page, "#pointer-body canvas")
    scale = len(seen) / 15
    attacked = next(other for other in shown["others"] if other["attacked"])
    rows = [math.ceil(tile * scale) + 1 for tile in range(15)]  # corners, which no entity in the middle covers
    drawn, truth = seen[np.ix_(rows, rows)], PALETTE[np.reshape(shown["materials"], (15, 15))]
    here, there = 7.5 * scale, (7.5 + np.array([attacked["right"], attacked["down"]])) * scale
    x, y = there
    corners = np.stack(np.meshgrid(rows, rows), axis=2)  # (15, 15, across and down)
    along = np.linspace(np.full(2, here), there, 200)
    line = np.linalg.norm(corners[:, :, None] - along, axis=3).min(axis=2) < 0.75 * scale
    assert line.sum() < 40 and (drawn == truth)[~line].all(), "all but what the line and the ring cover"
    around = seen[
        max(0, int(y - 0.7 * scale)) : int(y + 0.7 * scale), max(0, int(x - 0.7 * scale)) : int(x + 0.7 * scale)
    ]
    assert (np.abs(around - RED).max(axis=2) < 8).sum() > 10


def test_the_ticks_around_a_point_are_a_strip_that_opens_the_life(page, content: Explored) -> None:
    point, _ = hover(page)
    strip = page.get_by_label("Ticks before and after")
    shown = page.evaluate(f"window.explorer.point({point})")
    life = page.evaluate(f"window.explorer.life({point})")
    here = next(number for number, item in enumerate(life) if item["tick"] == shown["tick"])
    around = life[max(0, here - 4) : here + 5]
    titles = [item.get_attribute("title") for item in strip.get_by_role("button").all()]
    assert [title.partition(":")[0] for title in titles] == [f"tick {item['tick']}" for item in around]
    assert strip.locator("[aria-current]").get_attribute("title").startswith(f"tick {shown['tick']}:")
    assert len({bytes(pixels(page, f".strip button:nth-child({i + 1}) canvas")) for i in range(len(around))}) > 1
    strip.get_by_role("button").last.click()
    until(page, f"window.explorer.open !== null && window.explorer.open.tick === {around[-1]['tick']}")


def test_points_most_alike_are_the_nearest_states_of_other_lives(page, content: Explored) -> None:
    states, life = content.states, content.lives.index
    for point in (0, len(states) // 2, len(states) - 1):
        distance = np.linalg.norm(states - states[point], axis=1)
        near = page.evaluate(f"explorer.near({point})")
        assert near and point not in near and (life[near] != life[point]).all()
        others = np.sort(distance[life != life[point]])[: len(near)]
        np.testing.assert_allclose(distance[near], others, rtol=1e-4, atol=1e-5)
    point, _ = hover(page)
    strip = page.get_by_label("Most alike in other lives").get_by_role("button")
    first = page.evaluate(f"explorer.point(explorer.near({point})[0])")
    assert page.evaluate("explorer.motion") is None, "there is no run of analyze_dynamics.py"
    assert strip.first.get_attribute("title").startswith(f"agent {first['agent']}, episode {first['episode']}, tick ")
    strip.first.click()
    until(page, "explorer.open !== null")
    assert page.evaluate("[explorer.open.agent, explorer.open.tick]") == [first["agent"], first["tick"]]


def test_all_materials_and_kinds_are_drawn_in_their_colours(page) -> None:
    """A synthetic view with every material and every kind of entity, drawn by the page's own code."""
    page.evaluate(
        """() => {
          const facts = JSON.parse(document.getElementById("explorer-facts").textContent);
          const canvas = document.createElement("canvas");
          canvas.id = "made-up";
          document.body.append(canvas);
          const view = Uint8Array.from({ length: 225 }, (_, tile) => tile % 16);
          const common = { id: 1, health: 9, down: 3, attacked: false };
          const others = [0, 1, 2, 3].map((kind) => ({ ...common, kind, right: kind - 6 }));
          drawView(canvas, { facts, view: () => view, others: () => others }, 0, 450);
        }"""
    )
    seen = pixels(page, "#made-up")
    scale = len(seen) / 15
    for tile in range(225):
        row, col = math.ceil(tile // 15 * scale) + 1, math.ceil(tile % 15 * scale) + 1
        assert seen[row, col].tolist() == PALETTE[tile % len(MATERIALS)].tolist()

    def middle(down: int, right: int) -> list[int]:
        return seen[int((7.5 + down) * scale), int((7.5 + right) * scale)].tolist()

    kinds = [middle(3, kind - 6) for kind in range(4)]
    assert kinds == [[228, 97, 92], [255, 255, 255], [255, 225, 77], [29, 29, 31]]
    assert middle(0, 0) == [255, 209, 102]  # the agent itself


def test_clicking_a_point_opens_its_life_at_its_tick_and_the_time_line_leads_to_every_tick(
    page, content: Explored
) -> None:
    point = open_life(page, "point.tick > 2")
    shown = page.evaluate(f"window.explorer.point({point})")
    assert page.evaluate("[explorer.open.tick, explorer.open.agent]") == [shown["tick"], shown["agent"]]
    life = page.evaluate(f"window.explorer.life({point})")
    assert (
        f"Agent {shown['agent']}, episode {shown['episode']}: ticks 0 to {life[-1]['tick']}"
        in page.locator("#life-name").inner_text()
    )
    cards = page.locator("#life-views .card b").all_inner_texts()
    assert f"tick {shown['tick'] - 1}" in cards and f"tick {shown['tick']}" in cards
    page.get_by_role("button", name="‹ tick").click()
    assert page.evaluate("explorer.open.tick") == shown["tick"] - 1
    assert "propagated" in page.locator("#life-views .now").inner_text()  # every second tick has a label of its own
    page.get_by_label("Tick of the life").fill("1")
    assert page.evaluate("explorer.open.tick") == 1
    page.get_by_role("button", name="point »").click()
    assert page.evaluate("[explorer.open.tick, explorer.open.own]") == [2 + shown["tick"] % 2, True]
    traces = {
        trace["name"]: trace
        for trace in page.evaluate(
            "document.getElementById('timeline').data.map(({ name, x, y, type }) => ({ name, x, y, type }))"
        )
    }
    for name, column in (("health", "self_health"), ("value", "value"), ("players", "n_visible_players")):
        assert traces[name]["x"] == [item["tick"] for item in life]
        assert traces[name]["y"] == [item["columns"][column] for item in life]
    moved = [item["tick"] for item in life if "moves" in item["action"]]
    assert traces["move"]["x"] == moved
    bars = [trace for trace in traces.values() if trace["type"] == "bar"]
    assert any("propagated" in bar["name"] for bar in bars) and any("propagated" not in bar["name"] for bar in bars)
    box = page.evaluate(
        """(() => {
          const { xaxis, yaxis } = document.getElementById("timeline")._fullLayout;
          const { left, top } = document.getElementById("timeline").getBoundingClientRect();
          return { x: left + xaxis._offset + xaxis.l2p(4), y: top + yaxis._offset + yaxis._length / 2 };
        })()"""
    )
    page.mouse.move(box["x"] + 2, box["y"])
    page.mouse.move(box["x"], box["y"])
    # A click counts only after plotly has registered the pointer, which takes a while on a busy machine.
    until(page, "(document.getElementById('timeline')._hoverdata ?? []).some(({ x }) => x === 4)")
    page.mouse.click(box["x"], box["y"])
    until(page, "window.explorer.open.tick === 4")
    axis = "document.getElementById('timeline').layout.xaxis.range"
    shown = page.evaluate(axis)
    page.mouse.dblclick(box["x"], box["y"])
    settle(page)
    assert page.evaluate("explorer.open.tick") == 4 and page.evaluate(axis) == shown
    page.get_by_role("button", name="Close the life").click()
    assert page.evaluate("explorer.open") is None and not page.locator("#timeline").is_visible()


def test_the_space_bar_plays_a_life_to_its_end(page) -> None:
    open_life(page, "point.tick > 2")
    tick, end = page.evaluate("explorer.open.tick"), int(page.locator("#life-tick").get_attribute("max"))
    page.keyboard.press(" ")
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    until(page, f"explorer.open.tick > {tick}")
    page.keyboard.press("ArrowLeft")
    at = page.evaluate("explorer.open.tick")
    page.wait_for_timeout(500)
    assert page.evaluate("explorer.open.tick") == at, "another tick stops it"
    page.locator("#life-tick").fill(str(end - 1))
    page.get_by_role("button", name="Play", exact=True).click()
    until(page, "document.getElementById('play').getAttribute('aria-label') === 'Play'")
    assert page.locator("#life-tick").input_value() == str(end)
    address = page.evaluate("location.hash")
    for menu in ("#panes summary", "#find"):
        page.locator(menu).click()
        page.keyboard.press("Escape")
        assert page.evaluate("explorer.open") is not None, "what is in front closes alone"
    assert not page.evaluate("document.getElementById('panes').open")
    page.evaluate("document.activeElement.blur()")
    page.locator("#play").click()
    page.keyboard.press("Escape")
    assert page.evaluate("explorer.open") is None
    page.evaluate("(address) => { location.hash = address; }", address)
    until(page, "explorer.open !== null")
    assert page.locator("#play").get_attribute("aria-label") == "Play", "a life that was closed plays no longer"


def test_the_address_names_the_run_of_what_two_runs_call_alike(page) -> None:
    called = page.evaluate("""() => {
      const list = document.createElement("select");
      for (const [label, ...names] of [["one", "ic_1"], ["two", "ic_1", "food"]]) {
        list.append(element("optgroup", { label }, ...names.map((name) => element("option", {}, name))));
      }
      return [...list.options].map((option) => calledIn(list, option));
    }""")
    assert called == ["one/ic_1", "two/ic_1", "food"]


def test_points_are_coloured_by_anything(page, content: Explored) -> None:
    options = page.locator("#colour-by option").all_inner_texts()
    names = [feature.name for feature in content.features]
    assert options == ["cluster", "policy", "value", *content.categories, *names] and names.count("tick") == 1
    marker = "document.getElementById('plot').data[0].marker"
    for i, name in enumerate(names):
        page.get_by_label("Colour by").select_option(f"feature.{i}")
        assert page.evaluate(f"Array.from({marker}.color)") == content.values[:, i].tolist()
        assert name in page.evaluate(f"{marker}.colorbar.title.text")
    page.get_by_label("Colour by").select_option("column.value")
    assert page.evaluate(f"Array.from({marker}.color)") == content.seen.records.value[content.place].tolist()
    for by in ("cluster", "policy"):
        page.get_by_label("Colour by").select_option(by)
        point, place = a_lonely_point(page, "point.label > 0")
        expected = cluster_colour(int(content.run.clusters.label[point]) if by == "cluster" else 0)
        page.mouse.move(5, 5)
        page.wait_for_timeout(300)
        clip = {"x": place["x"] - 4, "y": place["y"] - 4, "width": 9, "height": 9}
        assert nearest(rgb(page.screenshot(clip=clip)), expected) <= 12


def drag(page, start: tuple[float, float], *corners: tuple[float, float]) -> None:
    """Press the pointer at a place and move it over others."""
    page.mouse.move(*start)
    page.mouse.down()
    for corner in corners:
        page.mouse.move(*corner, steps=10)


def compared(page) -> dict[str, dict[str, Any]]:
    until(page, "window.explorer.compared !== null")
    output = page.evaluate("JSON.parse(JSON.stringify(explorer.compared))")  # NaN becomes null
    return {row["name"]: row for row in output}


def assert_same_statistics(shown: dict[str, dict[str, Any]], content: Explored, chosen: np.ndarray) -> None:
    """Compare the page's numbers with the analysis' own functions for the same selection."""
    values, origin = content.values, content.values[0]
    d = cohens_d(moments(values[chosen] - origin), moments(values[~chosen] - origin))
    labels = np.where(chosen, 0, -1)
    lives = lives_of(content.seen.records.take(content.place))
    kept = content.seen.records.take(content.place)
    settings = Inference(permutations=content.run.permutations, seed=content.run.seed)
    test = circular_shift_test(values, labels, lives, settings.permutations, settings.seed, kept.episode)
    again = shift_test_given_time(values, labels, lives, kept.tick, kept.episode, test, test.q <= LEVEL, settings)
    for i, feature in enumerate(content.features):
        row = shown[feature.name]
        assert row["mean"] == pytest.approx(values[chosen, i].mean(), abs=1e-9)
        assert row["rest"] == pytest.approx(values[~chosen, i].mean(), abs=1e-9)
        expected = d[i] if np.isfinite(d[i]) else None
        assert row["d"] == (None if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-9))
        assert row["informative"] == test.informative_lives[0, i]
        for name in ("p", "q"):
            expected = getattr(test, name)[0, i]
            assert row[name] == (None if math.isnan(expected) else pytest.approx(expected, rel=TAIL_ROUNDING))
        expected = again.q[0, i]
        assert row["qGivenTime"] == (None if math.isnan(expected) else pytest.approx(expected, rel=TAIL_ROUNDING))


def test_a_lasso_selects_and_is_tested_as_the_analysis_tests(page, content: Explored) -> None:
    page.get_by_label("lasso").check()
    places = page.evaluate("Array.from({ length: explorer.count }, (_, i) => explorer.placeOf(i))")
    x = np.array([place["x"] for place in places])
    box = page.locator("#plot .nsewdrag").bounding_box()
    border = np.median(x) + 0.5
    corners = [(box["x"] + 2, box["y"] + 2), (border, box["y"] + 2), (border, box["y"] + box["height"] - 2),
               (box["x"] + 2, box["y"] + box["height"] - 2), (box["x"] + 2, box["y"] + 2)]  # fmt: skip
    drag(page, *corners)
    page.mouse.up()
    shown = compared(page)
    selected = np.zeros(len(x), bool)
    selected[page.evaluate("explorer.selection")] = True
    sure = np.abs(x - border) > 1.5
    assert np.array_equal(selected[sure], (x < border)[sure]) and 20 < selected.sum() < len(x) - 20
    assert_same_statistics(shown, content, selected)
    assert sum(row["p"] is not None for row in shown.values()) > len(shown) / 2
    panel = page.get_by_label("Selection", exact=True).inner_text()
    assert f"{selected.sum():,} points" in panel and "Exploratory" in panel
    assert "Selected points against the rest" in panel
    page.get_by_label("move", exact=True).check()
    inside = next(point for point in np.flatnonzero(selected & sure).tolist() if 4 < places[point]["x"] - box["x"] < 99)
    page.mouse.move(places[inside]["x"] + 2, places[inside]["y"])
    page.mouse.move(places[inside]["x"], places[inside]["y"])
    until(page, "explorer.hovered !== null")
    drawn = "document.getElementById('plot').layout.selections.length"
    assert page.evaluate(drawn) == 1
    page.fill("#find", "cluster 1")
    page.keyboard.press("Enter")
    label = content.run.clusters.label[content.rows]
    until(page, f"{drawn} === 0 && explorer.selection?.length === {(label == 1).sum()}")
    marked = page.evaluate("Array.from(document.getElementById('plot').data[0].selectedpoints)")
    assert marked == np.flatnonzero(label == 1).tolist(), "what was drawn for another selection is gone"
    page.get_by_role("button", name="Clear").click()
    assert page.evaluate("explorer.selection") is None
    assert not page.get_by_label("Selection", exact=True).is_visible()


def test_escape_while_a_selection_is_drawn_leaves_the_life_open(page) -> None:
    where = page.evaluate("explorer.point(0)")
    page.evaluate(f"location.hash = '#agent={where['agent']}&episode={where['episode']}&tick={where['tick']}'")
    until(page, "explorer.open !== null")
    page.get_by_label("box").check()
    plot = page.locator("#plot .nsewdrag").bounding_box()
    drag(page, (plot["x"] + 4, plot["y"] + 4), (plot["x"] + 60, plot["y"] + 60))
    page.keyboard.press("Escape")
    assert page.evaluate("explorer.open") is not None
    page.mouse.up()
    page.keyboard.press("Escape")  # before plotly, which waits for a moment, has selected
    until(page, "explorer.open === null")
    page.evaluate("document.getElementById('clear-selection').click()")


def test_a_box_that_is_made_wider_selects_more(page) -> None:
    page.get_by_label("box").check()
    plot = page.locator("#plot .nsewdrag").bounding_box()
    left, right, middle = plot["x"] + 2, plot["x"] + plot["width"] / 3, plot["y"] + plot["height"] / 2
    drag(page, (left, plot["y"] + 2), (right, plot["y"] + plot["height"] - 2))
    page.mouse.up()
    before = len(compared(page)) and len(page.evaluate("explorer.selection"))
    drag(page, (right, middle), (plot["x"] + plot["width"] - 2, middle))
    page.mouse.up()
    until(page, f"explorer.selection.length > {before} && explorer.compared !== null")


def test_a_selection_is_of_the_same_points_in_another_plane(browser, content: Explored, tmp_path: Path) -> None:
    clusters = tuple(content.run.summary["clusters"])
    plane = -content.run.embedding[content.rows]
    mirrored = Track("mirrored", "cluster of mirrored", "", "", content.tick_labels[0], clusters, plane, "UMAP")
    (tmp_path / "explorer.html").write_text(explorer_page(content, Further(tracks=(mirrored,))))
    with opened(browser, tmp_path / "explorer.html", READY, *WINDOW) as page:
        page.get_by_label("box").check()
        plot = page.locator("#plot .nsewdrag").bounding_box()
        drag(page, (plot["x"] + 2, plot["y"] + 2), (plot["x"] + plot["width"] / 3, plot["y"] + plot["height"] - 2))
        page.mouse.up()
        until(page, "explorer.selection !== null")
        selected = page.evaluate("explorer.selection")
        page.get_by_label("Plane").select_option(label="mirrored")
        until(page, f"document.getElementById('plot').data[0].x[0] === {plane[0, 0].item()}")
        settle(page)
        marked = "Array.from(document.getElementById('plot').data[0].selectedpoints)"
        assert page.evaluate(marked) == selected == page.evaluate("explorer.selection")


def test_a_clusters_numbers_are_those_of_the_summary(page, content: Explored) -> None:
    tested = [c for c in content.run.summary["clusters"] if any(e["p"] is not None for e in c["effects"])]
    for cluster in [*content.run.summary["clusters"][:2], tested[0]]:
        page.locator(f"[data-cluster='{cluster['label']}']").get_by_role("button", name="Select").click()
        until(page, f"explorer.selection !== null && explorer.selection.length === {cluster['records']}")
        shown = compared(page)
        assert_same_statistics(shown, content, content.run.clusters.label == cluster["label"])
        for effect in cluster["effects"]:
            row = shown[effect["name"]]
            for mine, theirs in (("mean", "mean"), ("rest", "complement_mean"), ("d", "d_complement"), ("p", "p")):
                near = {"rel": TAIL_ROUNDING, "abs": 0.0} if theirs == "p" else {"rel": 1e-6, "abs": 1e-9}
                assert row[mine] == (None if effect[theirs] is None else pytest.approx(effect[theirs], **near))
        assert cluster["description"] in page.locator(f"[data-cluster='{cluster['label']}']").inner_text()


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_all_of_a_selection_and_of_a_tick_is_on_the_screen(browser, page_file: Path, width: int, height: int) -> None:
    with opened(browser, page_file, READY, width, height) as page:
        _, place = hover(page, "point.tick > 5 && point.tick < 10")
        assert cut_off(page, "#pointer-body .card, #pointer-body .tick-facts > *, .strip button", "#looked-at") == []
        page.mouse.click(place["x"], place["y"])
        until(page, "document.querySelector('#timeline .main-svg') !== null")
        settle(page)
        assert page.locator("#life-views .card").count() >= 3
        assert cut_off(page, "#life-views .card, #life-views .tick-facts > *", "#life-views") == []
        page.get_by_role("button", name="Select").first.click()
        compared(page)
        heads = page.locator("#selection thead th").all_inner_texts()
        assert [head.replace("\n", " ") for head in heads] == ["mean", "rest", "d", "p", "q", "q given time"]
        assert cut_off(page, "#selection thead th, #selection tbody:nth-of-type(2) td", "#looked-at") == []
        assert cut_off(page, "#pointer h2", "#looked-at") == []


def cut_off(page, parts: str, room: str) -> list[str]:
    """Texts of the parts that reach out of their room."""
    return page.evaluate(
        """([parts, room]) => {
          const { left, right, top, bottom } = document.querySelector(room).getBoundingClientRect();
          return [...document.querySelectorAll(parts)].filter((part) => {
            const inner = part.getBoundingClientRect();
            return inner.left < left || inner.top < top || inner.right > right + 1 || inner.bottom > bottom + 1;
          }).map((part) => part.outerHTML.slice(0, 80));
        }""",
        [parts, room],
    )


def test_clusters_are_numbered_in_the_plot(page, content: Explored) -> None:
    texts = "document.getElementById('plot').layout.annotations.map(({ text, x, y }) => [text, x, y])"
    numbers = page.evaluate(texts)
    labels = content.run.clusters.label[content.rows]
    assert sorted(int(text) for text, *_ in numbers) == np.unique(labels[labels >= 0]).tolist()
    for text, *place in numbers:
        own = content.run.embedding[content.rows][labels == int(text)]
        assert np.isclose(own, place).all(axis=1).any()
    page.get_by_label("Colour by").select_option("column.value")
    assert page.evaluate(texts) == []
    page.get_by_label("Colour by").select_option("cluster")
    assert page.evaluate(texts) == numbers
    # From afar all clusters are in one place, where the number of the largest is the one to read.
    page.evaluate("Plotly.relayout('plot', { 'xaxis.range': [-1e4, 1e4], 'yaxis.range': [-1e4, 1e4] })")
    until(page, "document.getElementById('plot').layout.annotations.length === 1")
    assert page.evaluate(texts)[0][0] == str(np.bincount(labels[labels >= 0]).argmax())
    page.evaluate("Plotly.relayout('plot', { 'xaxis.autorange': true, 'yaxis.autorange': true })")
    until(page, f"document.getElementById('plot').layout.annotations.length === {len(numbers)}")


def test_an_address_opens_a_life_at_a_tick_in_a_colour(browser, page_file: Path) -> None:
    with opened(browser, page_file, READY, *WINDOW) as page:
        shown = {name: page.evaluate(f"explorer.point(7).{name}") for name in ("agent", "episode", "tick")}
        address = "#" + "&".join(f"{name}={value}" for name, value in shown.items()) + "&colour=self_food"
        page.evaluate("(address) => { location.hash = address; }", address)
        until(page, "explorer.open !== null")
        assert {name: page.evaluate("explorer.open")[name] for name in shown} == shown
        chosen = page.locator("#colour-by option:checked").inner_text()
        assert chosen == "self_food" and page.evaluate("explorer.colourBy").startswith("feature.")
        page.get_by_role("button", name="tick ›").click()
        later = page.evaluate("location.hash")
        assert f"tick={shown['tick'] + 1}" in later
        page.evaluate("location.hash = '#agent=none&colour=nothing'")
        settle(page)
        assert page.evaluate("explorer.open.tick") == shown["tick"] + 1
        page.get_by_label("Find", exact=True).fill("food < 70")
        page.keyboard.press("Enter")
        selected = page.evaluate("explorer.selection")
        later = page.evaluate("location.hash")
        assert selected and "select=food" in later
        page.get_by_role("button", name="Clear").click()
        assert "select" not in page.evaluate("location.hash"), "nor is a selection that no words find in the address"
        full = f"{address}&select=food+<+70&hide=looked-at"
        page.evaluate("(address) => { location.hash = address; }", full)
        until(page, "explorer.selection !== null")
        assert not page.locator("#looked-at").is_visible(), "a selection does not bring back what the address hides"
        page.evaluate("(address) => { location.hash = address; }", address.replace("&colour=self_food", ""))
        until(page, "explorer.selection === null")
        assert page.evaluate("explorer.colourBy") == "cluster", "what another address named is gone"
        assert page.locator("#colour-by option:checked").inner_text() == "cluster"
        page.get_by_role("button", name="Close the life").click()
        page.evaluate("location.hash = '#hide=map,clusters'")
        until(page, "!document.getElementById('clusters').checkVisibility()")
        assert page.locator("#map").is_visible(), "without a life there is nothing else"
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(page_file.as_uri() + later)
    until(page, READY)
    assert page.evaluate("explorer.open.tick") == shown["tick"] + 1
    assert page.evaluate("explorer.selection") == selected
    context.close()


def test_search_finds_features_clusters_lives_and_what_happened(page, content: Explored) -> None:
    matches = page.locator("#matches button")
    page.get_by_label("Find", exact=True).fill("water")
    texts = matches.all_inner_texts()
    assert any(text.startswith("colour by self_water:") for text in texts)
    matches.filter(has_text="self_water:").click()
    assert page.locator("#colour-by option:checked").inner_text() == "self_water" and not matches.first.is_visible()
    page.get_by_label("Find", exact=True).fill("attacks player")
    points = range(len(content.rows))
    words = [action_words(content.seen)[tick] for tick in content.place]
    attacking = [point for point in points if "attacks player" in words[point]]
    assert attacking
    page.keyboard.press("Enter")
    selection = page.evaluate("explorer.selection")
    assert set(attacking) <= set(selection) and len(selection) < len(content.rows)
    agent = int(content.seen.records.agent_id[content.place[3]])
    page.get_by_label("Find", exact=True).fill(f"agent {agent}")
    names = [text for text in matches.all_inner_texts() if text.startswith("open")]
    assert names and all(text.startswith(f"open agent {agent}, episode") for text in names)
    matches.filter(has_text=f"agent {agent},").first.click()
    until(page, "explorer.open !== null")
    assert page.evaluate("explorer.open.agent") == agent
    episode = page.evaluate("explorer.open.episode")
    page.get_by_label("Find", exact=True).fill(f"Agent {agent}, episode {episode}, tick 3")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("explorer.open.agent") == agent and page.evaluate("explorer.open.tick") == 3
    selected = page.evaluate("explorer.selection")
    page.get_by_label("Find", exact=True).fill("FOOD == 100")
    assert "with food = 100" in matches.first.inner_text()
    page.get_by_label("Find", exact=True).fill("food > 1000")
    page.keyboard.press("Enter")
    assert matches.count() == 0 and page.evaluate("explorer.selection") == selected
    page.get_by_label("Find", exact=True).fill("value")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("explorer.colourBy") == "column.value"
    page.get_by_label("Find", exact=True).fill("<b>zebra")
    assert matches.count() == 0 and "nothing" in page.locator("#matches").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#matches").is_visible()


def test_a_selection_is_saved_for_the_other_scripts_and_loaded_again(page, content: Explored, tmp_path: Path) -> None:
    page.locator("[data-cluster='0']").get_by_role("button", name="Select").click()
    until(page, "explorer.selection !== null")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save", exact=True).click()
    saved = Path(waiting.value.path())
    selection = read_selection(saved, content.run.dump)
    assert waiting.value.suggested_filename == f"{content.run.name}-selection.json"
    assert selection.run.path == content.run.clusters.path
    assert selection.records.tolist() == np.flatnonzero(content.run.clusters.label == 0).tolist()
    assert json.loads(saved.read_text())["selected"] == "cluster 0"
    before = page.evaluate("explorer.selection")
    page.get_by_role("button", name="Clear").click()
    until(page, "explorer.selection === null")
    page.locator("#import-file").set_input_files(saved)
    until(page, "explorer.selection !== null")
    assert page.evaluate("explorer.selection") == before
    assert page.locator("#selection-name").inner_text() == "Cluster 0 against the rest"
    more = tmp_path / "more.json"
    more.write_text(json.dumps(json.loads(saved.read_text()) | {"records": [*selection.records.tolist(), 10**6]}))
    page.locator("#import-file").set_input_files(more)
    page.get_by_text("1 point of that selection is not in this page.").wait_for()
    assert page.evaluate("explorer.selection") == before


def test_students_tail_is_scipys(untouched) -> None:
    grid = [(t, freedom) for t in (0.0, 0.1, 1.0, 2.5, 10.0, 60.0) for freedom in (1.0, 2.5, 5.0, 17.3, 120.0, 2500.0)]
    shown = untouched.evaluate("(grid) => grid.map(([t, freedom]) => studentTail(t, freedom))", grid)
    expected = [stats.t.sf(t, freedom) for t, freedom in grid]
    assert shown == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_labels_are_kept_exported_and_imported(page, browser, page_file: Path, content: Explored, tmp_path) -> None:
    page.get_by_label("Label of cluster 0").fill("  forages <b>by</b> the water ")
    page.keyboard.press("Tab")
    assert page.evaluate("explorer.labels") == {"0": "forages <b>by</b> the water"}
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export labels").click()
    exported = Path(waiting.value.path())
    output = json.loads(exported.read_text())
    assert (output["run"], output["labels"]) == (content.run.name, {"0": "forages <b>by</b> the water"})
    page.reload()
    until(page, READY)
    assert page.get_by_label("Label of cluster 0").input_value() == "forages <b>by</b> the water"

    with opened(browser, page_file, READY, *WINDOW) as other:
        assert other.evaluate("explorer.labels") == {}
        for broken, message in (
            ("no json", "not JSON"),
            ('{"some": "thing"}', "holds no labels"),
            (json.dumps(output | {"runKey": "0" * 64, "run": "elsewhere"}), "another run (elsewhere)"),
        ):
            bad = tmp_path / "bad.json"
            bad.write_text(broken)
            other.locator("#import-file").set_input_files(bad)
            other.get_by_text(message).wait_for()
            assert other.evaluate("explorer.labels") == {}
        good = tmp_path / "good.json"
        good.write_text(json.dumps(output | {"labels": output["labels"] | {"999": "nobody", "1": 7}}))
        other.locator("#import-file").set_input_files(good)
        until(other, "Object.keys(explorer.labels).length === 1")
        assert other.get_by_label("Label of cluster 0").input_value() == "forages <b>by</b> the water"


def test_without_storage_labels_still_work(browser, page_file: Path) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })")
    page.goto(page_file.as_uri())
    until(page, READY)
    page.get_by_label("Label of cluster 0").fill("something")
    page.keyboard.press("Tab")
    page.get_by_text("export your labels").wait_for()
    assert page.evaluate("explorer.labels") == {"0": "something"}
    context.close()


def test_hostile_names_are_only_text(browser, content: Explored, tmp_path: Path) -> None:
    summary = json.loads(json.dumps(content.run.summary))
    summary["policy"] = summary["layer"] = HOSTILE
    for cluster in summary["clusters"]:
        cluster["description"] = HOSTILE
    for feature in summary["features"]:
        feature.update(name=HOSTILE, definition=HOSTILE, unit=HOSTILE)
    metadata = replace(content.seen.metadata, policy=HOSTILE)
    labels = replace(content.labels, word="behaviour")
    seen = replace(content.seen, metadata=metadata)
    hostile = replace(content, run=replace(content.run, summary=summary), seen=seen, labels=labels)
    file = tmp_path / "<b>&hostile.html"
    file.write_text(explorer_page(hostile))
    with opened(browser, file, READY, *WINDOW) as page:
        page.get_by_label("Colour by").select_option("feature.0")
        page.get_by_label("Label of behaviour 0").fill(HOSTILE)
        page.keyboard.press("Tab")
        open_life(page)
        assert "by behaviour; rings" in page.inner_text("#world figcaption")
        assert "behaviours" in page.locator("#pane-list").text_content()
        page.locator("[data-cluster='0']").get_by_role("button", name="Select").click()
        compared(page)
        page.wait_for_timeout(300)
        assert HOSTILE in page.locator("header").inner_text()
        assert page.locator("img[src=x], header b").count() == 0 and "hacked" not in page.title()


def test_a_phone_shows_it_foreign_scripts_do_not_run_and_a_damaged_page_says_so(
    browser, page_file: Path, tmp_path: Path
) -> None:
    with opened(browser, page_file, READY, 400, 800) as page:
        page.evaluate("document.querySelector('#cluster-list button').click()")
        _, place = a_lonely_point(page)
        page.mouse.click(place["x"], place["y"])
        until(page, "window.explorer.open !== null")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert scripts_that_ran(browser, page_file, tmp_path) == []
    assert "cannot show its run" in said_of_damage(browser, page_file, "explorer-content", tmp_path)


def test_a_policy_that_does_not_see_its_place_is_drawn_where_it_is(content: Explored) -> None:
    """As recorded with `--env.relative-position`: positions of view and entities are relative to the agent."""
    records, metadata = content.seen.records, content.seen.metadata
    own = np.stack(positions(records), axis=1)  # (T, 2)
    tile, entity = records.tile.copy(), records.entity.values.copy()
    tile[:, :, [TILE_COLUMNS.index("row"), TILE_COLUMNS.index("col")]] -= own[:, None]
    entity[:, [metadata.entity_columns.index(axis) for axis in ("row", "col")]] -= own[records.entity.owner]
    relative = replace(records, tile=tile, entity=replace(records.entity, values=entity))
    tables, expected = view_tables(Observed(relative, metadata)), view_tables(content.seen)
    assert tables.keys() == expected.keys() and expected["entity.down"].any()
    for name, values in expected.items():
        np.testing.assert_array_equal(tables[name], values, err_msg=name)
    lives = lives_of(records)
    for one, other in zip(variables_of(relative, lives), variables_of(records, lives), strict=True):
        np.testing.assert_array_equal(one.category, other.category, err_msg=one.name)


def test_lives_beyond_the_limit_are_left_out_and_the_page_says_so(analysed: Analysed, content: Explored) -> None:
    fewer = content_of(analysed.run, len(content.seen) // 2)
    assert 0 < len(fewer.seen) <= len(content.seen) // 2 and len(fewer.lives) < fewer.lives_of_run
    assert f"from {fewer.lives_of_run} lives" in explorer_page(fewer)
    # Whole lives are kept, unchanged.
    where = {tuple(key): i for i, key in enumerate(keys(content))}
    places = [where[tuple(key)] for key in keys(fewer)]
    assert fewer.run.clusters.label[fewer.rows].tolist() == content.run.clusters.label[content.rows][places].tolist()
    assert np.array_equal(fewer.values, content.values[places])
    kept = {tuple(key[:2]) for key in keys(fewer)}
    assert len(fewer.rows) == sum(tuple(key[:2]) in kept for key in keys(content))


def test_a_killer_of_whose_life_the_run_kept_no_record_is_known(analysed: Analysed, content: Explored) -> None:
    """A run that keeps few records has none of some short lives, and a killer's may be one of them."""
    events, records = content.timeline.events, content.seen.records
    struck = next(i for i, cause in enumerate(events.detail) if cause.startswith("struck by agent "))
    killer, at = int(events.detail[struck].split()[-1]), events.record[struck]
    run, labels, states = cluster_base(read_run(analysed.run, None), quiet)
    places = run.clusters.places
    kept = (places["agent_id"] != killer) | (places["episode"] != records.episode[at])
    clusters = replace(
        run.clusters, places={name: values[kept] for name, values in places.items()}, label=run.clusters.label[kept]
    )
    base = replace(run, clusters=clusters, embedding=run.embedding[kept]), replace(labels, run=clusters), states[kept]
    fewer = explored(base, 400_000, quiet)
    assert fewer.whole and len(fewer.timeline.lives) == len(fewer.lives) == len(content.lives) - 1
    shown = fewer.seen.records
    victim = (shown.agent_id == records.agent_id[at]) & (shown.episode == records.episode[at])
    (dies,) = np.flatnonzero(victim & (shown.tick == records.tick[at]))
    own = (fewer.timeline.events.record == dies) & (fewer.timeline.events.kind == DIED)
    assert [fewer.timeline.events.detail[i] for i in np.flatnonzero(own)] == [events.detail[struck]]
    assert not explored(base, len(content.seen) - 1, quiet).whole, "without the rest of the dump, it is not said"


def keys(content: Explored) -> list[list[int]]:
    points = content.seen.records.take(content.place)
    return np.stack([points.agent_id, points.episode, points.tick], axis=1).tolist()


def test_a_dump_that_has_moved_is_given(analysed: Analysed, tmp_path: Path) -> None:
    moved, copy = shutil.copytree(analysed.dump, tmp_path / "moved"), shutil.copytree(analysed.run, tmp_path / "run")
    output = json.loads((copy / RUN_FILE).read_text())
    output["arguments"]["dump"] = str(tmp_path / "where it was")
    rewrite(copy, RUN_FILE, json.dumps(output).encode())
    assert_refused(run_here("explore.py", copy), "where it was", "--dump")
    assert not (copy / "explorer.html").exists()
    run_well("explore.py", copy, "--dump", moved)
    assert (copy / "explorer.html").exists()


def test_what_does_not_fit_is_refused(analysed: Analysed, tmp_path: Path) -> None:
    other = shutil.copytree(analysed.dump, tmp_path / "other")
    metadata = json.loads((other / "metadata.json").read_text())
    (other / "metadata.json").write_text(json.dumps(metadata))  # the same in other bytes
    assert read_metadata(other).records
    for arguments, parts in (
        ((analysed.run, "--dump", other), (str(other), str(analysed.dump), "another dump")),
        ((tmp_path / "nowhere",), ("nowhere", "does not exist")),
        ((analysed.run, "-o", tmp_path / "page.txt"), ("page.txt", ".html")),
        ((analysed.run, "--max-ticks", 1), ("--max-ticks 1",)),
        ((analysed.run, "--dump", tmp_path), (str(tmp_path), "is not an activation dump")),
    ):
        assert_refused(run_here("explore.py", *arguments), *parts)
    assert not (analysed.run / "explorer.html").exists()
