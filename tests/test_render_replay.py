"""render_replay.py as users run it: its page in a real browser, its films read back."""

import itertools
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

from activation_store.reader import read_dump
from activation_store.schema import METADATA_FILE
from analysis.figures.style import NOISE_COLOUR, cluster_colour
from analysis.materials import MATERIALS, PALETTE
from analysis.replays.frames import STRIP, FrameDrawer, colours_by_policy
from analysis.replays.replay import Replay, events_of
from analysis.runs.run_folder import RunFolder
from common.files import sha256
from tests.browser import nearest, opened, said_of_damage, scripts_that_ran, settle, until
from tests.command import assert_refused, python, run, run_here, run_well
from tests.recorded import POLICIES, Recording

STRIDE = 2
PAGE_BYTES = 1_000_000


@pytest.fixture(scope="module")
def run_folder(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the dump's records labelled: by agent, and some as noise."""
    records = read_dump(recording.dump, layers=[])
    records = records.take(records.tick % STRIDE == 0)
    places = {name: getattr(records, name) for name in ("env_id", "agent_id", "episode", "step", "tick")}
    labels = np.where(records.tick % 8 == 0, -1, records.agent_id % 3)
    path = tmp_path_factory.mktemp("results") / "run"
    with RunFolder(path, {"input": {METADATA_FILE: sha256(recording.dump / METADATA_FILE)}}) as folder:
        folder.save_arrays("cluster_labels.npz", **places, label=labels)
    return path


@pytest.fixture(scope="module")
def page_file(recording: Recording, run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with clusters, next to a copy of its replay with a name that needs escaping."""
    copy = tmp_path_factory.mktemp("page") / "<b>&'episode'.replay.lzma"
    shutil.copy(recording.replay, copy)
    done = python("render_replay.py", copy, "--dump", recording.dump, "--cluster_dir", run_folder)
    page = copy.with_name("<b>&'episode'.html")
    assert str(page) in done.stdout and page.stat().st_size < PAGE_BYTES
    return page


@pytest.fixture
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, "window.replay !== undefined") as page:
        yield page


def seek(page, tick: int) -> None:
    page.get_by_label("Tick", exact=True).fill(str(tick))
    until(page, f"window.replay.tick === {tick}")
    settle(page)


def test_the_page_says_what_it_shows_and_tiles_follow_the_scrub_bar(page, page_file: Path, replay: Replay) -> None:
    assert page.title().startswith("<b>&'episode'.replay.lzma")
    text = page.locator("header").inner_text()
    for part in ("<b>&'episode'.replay.lzma", f"{replay.ticks} ticks", "16 agents", *POLICIES):
        assert part in text
    legend = page.locator("#legend").inner_text()
    for part in (*(material.name for material in MATERIALS), "passive NPC", "neutral NPC", "aggressive NPC"):
        assert part in legend
    assert "Unpacking" not in page.locator("#map").inner_text()
    names = np.array([material.name for material in MATERIALS])
    for tick in (0, 30, 12, replay.ticks - 1, 3, 0):
        seek(page, min(tick, replay.ticks - 1))
        assert np.array_equal(page.evaluate("window.replay.materials"), names[replay.materials_at(tick)])


@pytest.mark.parametrize("share", [0.0, 0.4, 0.5, 1.0])
def test_scrubbing_shows_exactly_what_the_engine_had(page, recording: Recording, replay: Replay, share: float) -> None:
    tick = int(share * (replay.ticks - 1))
    seek(page, tick)
    truth = recording.truth[tick]
    agents = {agent["id"]: agent for agent in page.evaluate("window.replay.agents") if agent["alive"]}
    assert agents.keys() == truth.players.keys()
    for number, state in truth.players.items():
        agent = agents[number]
        for name in ("row", "col", "health", "level", "food", "water", "gold", "kills"):
            assert agent[name] == state[name]
        assert {skill: (s["level"], s["experience"]) for skill, s in agent["skills"].items()} == state["skills"]
        assert sorted((i["name"], i["level"], i["quantity"]) for i in agent["inventory"]) == state["inventory"]
        assert agent["policy"] == POLICIES[number % 2]
    npcs = {npc["id"]: npc for npc in page.evaluate("window.replay.npcs") if npc["alive"]}
    assert npcs.keys() <= truth.npcs.keys() and len(npcs) > 3
    assert all(npcs[i][name] == truth.npcs[i][name] for i in npcs for name in ("row", "col", "health"))


def test_it_plays_to_its_end_and_the_keyboard_moves_time(page, replay: Replay) -> None:
    """As every page does: tests/analysis/pages/test_kit.py tests the rest."""
    page.get_by_label("Speed").select_option("100")
    page.get_by_role("button", name="Play", exact=True).click()
    until(page, f"window.replay.tick === {replay.ticks - 1} && !window.replay.playing")
    page.locator("#map-canvas").focus()
    for key, tick in (("Home", 0), ("Shift+ArrowRight", 10)):
        page.keyboard.press(key)
        assert page.evaluate("window.replay.tick") == tick


def test_clicking_an_agent_follows_it_and_shows_its_vitals(page, recording: Recording) -> None:
    tick = 10
    seek(page, tick)
    where = [(state["row"], state["col"]) for state in recording.truth[tick].players.values()]
    number = next(i for i, s in recording.truth[tick].players.items() if where.count((s["row"], s["col"])) == 1)
    place = page.evaluate(f"window.replay.place({number})")
    box = page.locator("#map-canvas").bounding_box()
    page.mouse.click(box["x"] + place["x"], box["y"] + place["y"])
    until(page, f"window.replay.following === {number}")
    settle(page)
    middle = page.evaluate(f"window.replay.place({number})")
    assert math.dist((middle["x"], middle["y"]), (box["width"] / 2, box["height"] / 2)) < box["height"] / 20
    for later in (tick, tick + 1, tick + 2):
        seek(page, later)
        state = recording.truth[later].players.get(number)
        if state is None:
            break
        panel = page.get_by_label("Followed agent")
        for vital in ("health", "food", "water"):
            assert panel.get_by_role("meter", name=vital).get_attribute("aria-valuenow") == str(state[vital])
        for fact in ("gold", "kills"):  # the game counts NPCs among the kills
            assert panel.locator(f"[data-fact={fact}] b").inner_text() == str(state[fact])
        for skill, (level, experience) in state["skills"].items():
            assert f"{skill}\n{level} ({experience})" in panel.inner_text()
    page.keyboard.press("Escape")
    assert page.evaluate("window.replay.following") is None


def test_an_agent_is_found_by_name_and_number_and_a_mark_of_the_time_line_leads_to_its_tick(page) -> None:
    page.get_by_label("Find an agent").fill("7")
    assert page.locator("#agent-list button:visible").all_inner_texts()[0].split()[0] == f"{POLICIES[1]}_7"
    assert page.locator("#agent-list button:visible").count() == 1
    page.get_by_label("Find an agent").fill(POLICIES[0])
    assert page.locator("#agent-list button:visible").count() == 8
    page.get_by_role("button", name=f"Follow {POLICIES[0]}_4", exact=True).click()
    assert page.evaluate("window.replay.following") == 4
    first = page.evaluate("window.replay.events.find(({ kind }) => kind === 'death').tick")
    ticks = page.evaluate("window.replay.ticks")
    box = page.locator("#timeline-canvas").bounding_box()
    x = 8 + first / (ticks - 1) * (box["width"] - 16)
    page.mouse.click(box["x"] + x + 2, box["y"] + box["height"] - 2.5 * 12)  # deaths: the highest of three lanes
    assert page.evaluate("window.replay.tick") == first


def test_the_followed_agents_hits_are_counted_and_its_life_keeps_focus_while_time_passes(page, replay: Replay) -> None:
    received = replay.players.received
    player = int(received[-1].argmax())
    page.get_by_role("button", name=f"Follow {replay.players.names[player]}", exact=True).click()
    said = {
        event["tick"]: int(event["text"].split()[1])
        for event in page.evaluate("window.replay.events") if event["kind"] == "hit taken"
    }  # fmt: skip
    lost = np.diff(received[:, player], prepend=0)
    assert said == {tick: lost[tick] for tick in np.flatnonzero(lost > 0).tolist()} and sum(said.values()) > 0
    page.locator("#agent .log button").first.focus()
    page.evaluate("document.activeElement.dataset.kept = 'yes'")
    seek(page, 7)
    page.locator("#agent .log button").first.focus()
    assert page.evaluate("document.activeElement.dataset.kept") == "yes", "the list was made anew"


def test_events_lead_to_where_they_happened(page, recording: Recording) -> None:
    events = page.evaluate("window.replay.events")
    kill = next(event for event in events if event["kind"] == "kill")
    page.get_by_role("button", name=f"Follow {POLICIES[kill['agent'] % 2]}_{kill['agent']}", exact=True).click()
    page.get_by_label("Followed agent").get_by_role("button", name=f"Go to tick {kill['tick']}").first.click()
    assert page.evaluate("window.replay.tick") == kill["tick"]
    own = page.evaluate("window.replay.events")
    assert {event["agent"] for event in own} == {kill["agent"]} and "hit" in {event["kind"] for event in own}
    page.get_by_role("button", name="event ›").click()
    later = [event["tick"] for event in own if event["tick"] > kill["tick"]]
    assert page.evaluate("window.replay.tick") == (later[0] if later else kill["tick"])


def test_hovering_says_what_is_there(page, recording: Recording, replay: Replay) -> None:
    seek(page, 6)
    number, state = next(iter(recording.truth[6].players.items()))
    place = page.evaluate(f"window.replay.place({number})")
    box = page.locator("#map-canvas").bounding_box()
    page.mouse.move(box["x"] + place["x"], box["y"] + place["y"])
    tooltip = page.get_by_role("tooltip")
    tooltip.wait_for()
    text = tooltip.inner_text()
    material = MATERIALS[replay.materials_at(6)[state["row"], state["col"]]].name
    assert text.startswith(f"row {state['row']}, column {state['col']}: {material}")
    assert f"{POLICIES[number % 2]}_{number}: health {state['health']}" in text


def test_agents_are_coloured_by_policy_or_by_cluster(page, replay: Replay) -> None:
    seek(page, 9)
    page.get_by_label("Colour by").select_option("policy")
    by_policy = {agent["policy"]: agent["colour"] for agent in page.evaluate("window.replay.agents")}
    assert by_policy == {policy: cluster_colour(number) for number, policy in enumerate(POLICIES)}
    page.get_by_label("Colour by").select_option("cluster")
    seen = set()
    for tick in (7, 8, 9, 10):
        seek(page, tick)
        for agent in page.evaluate("window.replay.agents"):
            if not agent["alive"]:
                continue
            labelled = tick - tick % STRIDE  # the dump's records start at tick 0, and every second is labelled
            label = "noise" if labelled % 8 == 0 else f"cluster {agent['id'] % 3}"
            colour = NOISE_COLOUR if label == "noise" else cluster_colour(agent["id"] % 3)
            assert (agent["label"], agent["colour"]) == (label, colour)
            assert agent["solid"] == (tick == labelled)
            seen.add((label == "noise", agent["solid"]))
    assert len(seen) == 4
    legend = page.locator("#legend-agents").inner_text()
    assert "cluster 2" in legend and "noise" in legend and "hollow" in legend


def test_colours_reach_the_canvas(page) -> None:
    """The pixel in the middle of an agent has the agent's colour, which the switch changes."""
    seek(page, 10)
    agent = next(a for a in page.evaluate("window.replay.agents") if a["alive"])
    page.get_by_role("button", name=f"Follow {agent['name']}", exact=True).click()
    for by in ("policy", "cluster"):
        page.get_by_label("Colour by").select_option(by)
        settle(page)
        colour = page.evaluate(f"window.replay.agents.find(({{ id }}) => id === {agent['id']}).colour")
        place = page.evaluate(f"window.replay.place({agent['id']})")
        seen = imageio.imread(page.locator("#map-canvas").screenshot())
        pixels = seen[round(place["y"]) - 6 : round(place["y"]) + 7, round(place["x"]) - 6 : round(place["x"]) + 7, :3]
        assert nearest(pixels, colour) <= 1


def test_a_phone_shows_it_foreign_scripts_do_not_run_and_a_damaged_page_says_so(
    browser, page_file: Path, tmp_path: Path
) -> None:
    with opened(browser, page_file, "window.replay !== undefined", 390, 780) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for locator in (page.locator("#map-canvas"), page.get_by_role("button", name="Play", exact=True)):
            assert locator.bounding_box()["y"] < 780
    # They would with the policy that pages had before, which allowed every script inside the page.
    assert scripts_that_ran(browser, page_file, tmp_path) == []
    allowing = tmp_path / "allowing.html"
    allowing.write_text(re.sub("'sha256-[^']*'", "'unsafe-inline'", page_file.read_text()))
    assert {"start", "end", "attribute", "link"} <= set(scripts_that_ran(browser, allowing, tmp_path))
    assert "cannot show its replay" in said_of_damage(browser, page_file, "replay-content", tmp_path)


def test_without_clusters_there_is_no_such_switch(browser, recording: Recording, tmp_path: Path) -> None:
    run_well("render_replay.py", recording.replay, "-o", tmp_path / "plain.html")
    with opened(browser, tmp_path / "plain.html", "window.replay !== undefined") as page:
        assert page.locator("#colour-by option").all_inner_texts() == ["policy"]


def film(recording: Recording, path: Path, *options: object) -> np.ndarray:
    done = (run if path.suffix == ".mp4" else run_here)("render_replay.py", recording.replay, "-o", path, *options)
    assert done.returncode == 0, done.stderr
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    return np.stack(list(imageio.imiter(path, plugin="FFMPEG" if path.suffix == ".mp4" else "pillow")))[..., :3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio leaves ffmpeg's pipes open
@pytest.mark.parametrize(("suffix", "tolerance"), [(".gif", 3), (".mp4", 24)])
def test_films_show_the_followed_agent_on_its_tile(
    recording: Recording, replay: Replay, tmp_path: Path, suffix: str, tolerance: int
) -> None:
    column, radius, size = 3, 4, 270
    number, tile = int(replay.players.ids[column]), 270 // 9
    options = ("--follow", replay.players.names[column], "--radius", radius, "--size", size)
    frames = film(recording, tmp_path / f"film{suffix}", *options, "--start", 2, "--end", 12, "--skip", 2)
    assert frames.shape == (6, size + STRIP, size, 3)
    checked = 0
    for frame, tick in zip(frames, range(2, 13, 2), strict=True):
        truth = recording.truth[tick]
        state = truth.players[number]
        stood_on = {(one["row"], one["col"]) for one in (*truth.players.values(), *truth.npcs.values())}
        top, left = corner(truth.materials, state, radius)
        row, col = (state["row"] - top) * tile + tile // 2, (state["col"] - left) * tile + tile // 2
        middle = frame[row, col].astype(int)
        ground = PALETTE[truth.materials[state["row"], state["col"]]].astype(int)
        assert np.abs(middle - ground).max() > tolerance, f"nobody is drawn on the tile at tick {tick}"
        for down, right in itertools.product((1, 3, 5, 7), (0, 2, 4, 6)):
            place = (top + down, left + right)
            if place in stood_on or (place[0] - 1, place[1]) in stood_on:  # health bars are drawn below agents
                continue
            # The corner of a tile, which no line between the middles of tiles covers.
            seen = frame[down * tile + 2, right * tile + 2].astype(int)
            expected = PALETTE[truth.materials[place]].astype(int)
            assert np.abs(seen - expected).max() <= tolerance, (tick, down, right)
            checked += 1
    assert checked > 50


def corner(materials: np.ndarray, agent: dict[str, float], radius: int) -> tuple[int, int]:
    """First visible row and column: the agent in the middle, but at most one tile beyond the world's edge."""
    rows, cols = np.nonzero(materials)
    top, left = (
        int(min(max(agent[axis] - radius, places.min() - 1), places.max() + 1 - 2 * radius))
        for axis, places in (("row", rows), ("col", cols))
    )
    return top, left


def test_near_an_edge_the_picture_is_filled_with_the_world(replay: Replay) -> None:
    """Every agent starts at an edge, where a centred view would be half void."""
    events, radius, size = events_of(replay), 6, 130
    for column in range(4):
        drawer = FrameDrawer(replay, events, colours_by_policy(replay), size, column, radius)
        picture = drawer.draw(0)[:size]
        void = (picture == PALETTE[0]).all(axis=2).mean()
        assert void <= 1 - (12 / 13) ** 2 + 0.01
        row, col = (int(table[0, column]) for table in (replay.players.row, replay.players.col))
        state = {"row": row, "col": col}
        top, left = corner(replay.materials_at(0), state, radius)
        middle = picture[(row - top) * 10 + 5, (col - left) * 10 + 5].astype(int)
        assert np.abs(middle - PALETTE[replay.materials_at(0)[row, col]]).max() > 10


def test_the_whole_map_is_filmed_by_default(recording: Recording, replay: Replay, tmp_path: Path) -> None:
    frames = film(recording, tmp_path / "whole.gif", "--size", 128, "--skip", 10)
    assert frames.shape == (len(range(0, replay.ticks, 10)), 128 + STRIP, 128, 3)
    assert len(np.unique(frames[0].reshape(-1, 3), axis=0)) > 8


def test_films_are_coloured_by_cluster_too(
    recording: Recording, run_folder: Path, replay: Replay, tmp_path: Path
) -> None:
    options = ("--follow", 5, "--radius", 2, "--size", 250, "--start", 2, "--end", 2)
    clusters = ("--dump", recording.dump, "--cluster-dir", run_folder)
    seen, truth = {}, recording.truth[2]
    top, left = corner(truth.materials, truth.players[5], 2)
    row, col = ((truth.players[5][axis] - first) * 50 + 25 for axis, first in (("row", top), ("col", left)))
    for name, extra in (("policy", ()), ("cluster", clusters)):
        (tmp_path / name).mkdir()
        picture = film(recording, tmp_path / name / "film.gif", *options, *extra)[0]
        seen[name] = picture[row - 10 : row + 10, col - 10 : col + 10]
    expected = {"policy": cluster_colour(POLICIES.index(POLICIES[1])), "cluster": cluster_colour(5 % 3)}
    for name, colour in expected.items():
        assert nearest(seen[name], colour) <= 4
    assert nearest(seen["policy"], expected["cluster"]) > 40 < nearest(seen["cluster"], expected["policy"])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--gif", "--mp4"), ("--gif", "--mp4")),
        (("-o", "x.txt"), ("x.txt", ".html, .gif or .mp4")),
        (("-o", "x.html", "--gif"), ("x.html", ".gif")),
        (("--follow", "3"), ("--follow", "videos")),
        (("--gif", "--follow", "nobody"), ("nobody", f"{POLICIES[1]}_1")),
        (("--gif", "--start", "9", "--end", "3"), ("--end is 3", "9")),
        (("--gif", "--start", "5000"), ("ends at tick",)),
        (("--mp4", "--size", "301"), ("--size is 301", "even")),
        (("--gif", "--fps", "0"), ("--fps",)),
        (("--gif", "--skip", "0"), ("--skip",)),
        (("--dump", "somewhere"), ("--cluster-dir",)),
        (("--dump", "nowhere", "--cluster-dir", "nowhere"), ("nowhere",)),
    ],
)
def test_bad_options_are_refused(recording: Recording, tmp_path: Path, options: tuple[str, ...], parts: tuple) -> None:
    copy = tmp_path / "episode.replay.lzma"
    shutil.copy(recording.replay, copy)
    assert_refused(run_here("render_replay.py", copy, *options), *parts)
    assert [path.name for path in tmp_path.iterdir()] == [copy.name]
