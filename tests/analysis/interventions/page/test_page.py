"""The page of an intervention run in a real browser: what it shows is what the two replays hold."""

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from activation_store.interventions import (
    EDITED_REPLAY,
    LIVES_FILE,
    REPLAYED_EPISODE,
    RUN_FILE,
    UNEDITED_REPLAY,
    Arm,
    LivesTable,
    read_lives,
    replayed_arms,
    write_lives,
)
from analysis.interventions.edits.state_edits import steer
from analysis.interventions.outputs import PAGE_FILE, report_run
from analysis.interventions.page.page import ComparedReplays, Films, first_difference, read_films
from analysis.interventions.play.edited_play import play_arm
from analysis.interventions.play.experiment import ArmPlan
from analysis.replays.replay import Replay
from analysis.runs.finished_files import open_finished
from common.checked_json import with_checksum
from common.files import write_json
from reinforcement_learning.play.contest import Group
from tests.browser import opened, said_of_damage, scripts_that_ran, settle, until
from tests.driven import DRIVER, UNITS, driven_contest
from tests.planted_interventions import unit

pytestmark = pytest.mark.slow

ARMS = (
    Arm("unedited", "unedited", "trained", None, "unedited"),
    Arm("edit, dose -1", "edit", "trained", -1.0, "unedited"),
    Arm("edit, dose +1", "edit", "trained", 1.0, "unedited"),
)
LOWER = "edited_dose-1.replay.lzma"
DRAWN = 5
READY = "window.compared !== undefined"
SIDES = ("unedited", "edited")


@pytest.fixture(scope="module")
def run_folder(small_world, task, maps, tmp_path_factory) -> Path:
    """A run of three arms on the small map, in which edited agents are drawn to the north or kept from it."""
    pool = driven_contest(small_world, task, maps).pool(2)
    folder, rows = tmp_path_factory.mktemp("page") / "<b>&'run'", []
    folder.mkdir()
    for arm in ARMS:
        states = () if arm.dose is None else (steer(unit(DRIVER, UNITS), arm.dose),)
        (played,) = play_arm(pool, Group(4, (0, 1)), ArmPlan(arm.name, DRAWN, states=states, replayed=REPLAYED_EPISODE))
        rows += played.rows
        name = next(name for name, replayed in replayed_arms(ARMS).items() if replayed == arm)
        (folder / name).write_bytes(played.replay)
    write_lives(folder / LIVES_FILE, LivesTable.of_rows(rows))
    write_json(folder / RUN_FILE, with_checksum({"seed": 4, "arms": ARMS}))
    report_run(folder, draws=99)
    return folder


@pytest.fixture(scope="module")
def films(run_folder: Path) -> Films:
    return read_films(run_folder, read_lives(run_folder / LIVES_FILE), ARMS, lambda share: None)


@pytest.fixture(scope="module")
def compared(films: Films) -> ComparedReplays:
    assert [(file, arm.dose) for file, (arm, _) in films.items()] == [(LOWER, -1), (EDITED_REPLAY, 1)]
    return films[EDITED_REPLAY][1]


@pytest.fixture
def page(browser, run_folder: Path) -> Iterator:
    with opened(browser, run_folder / PAGE_FILE, READY, height=900) as page:
        yield page


def seek(page, tick: int) -> None:
    page.get_by_label("Tick", exact=True).fill(str(tick))
    until(page, f"window.compared.tick === {tick}")
    settle(page)


def truth(replay: Replay, tick: int) -> dict[int, tuple[int, int, bool]]:
    """Row, column and whether alive of everyone who is there."""
    result = {}
    for group in (replay.players, replay.npcs):
        for column in np.flatnonzero(group.present[tick]):
            place = int(group.row[tick, column]), int(group.col[tick, column])
            result[int(group.ids[column])] = (*place, bool(group.alive[tick, column]))
    return result


def on_map(page, side: str) -> dict[int, tuple[int, int, bool]]:
    shown = page.evaluate(f"window.compared.shown('{side}')")
    return {item["id"]: (item["row"], item["col"], item["alive"]) for item in shown}


def pictures(page) -> list[str]:
    """What is drawn on the two maps."""
    return [page.evaluate(f"document.getElementById('{side}-map-canvas').toDataURL()") for side in SIDES]


def test_the_planted_edit_shows_in_the_replays(compared: ComparedReplays) -> None:
    """Otherwise the page would have nothing to show: edited agents go north, unedited ones stay around."""
    assert compared.drawn.sum() == DRAWN
    moved = compared.edited.players.row[8] - compared.unedited.players.row[8]
    assert moved[compared.drawn].mean() < -1 and abs(moved[~compared.drawn]).max() < 6
    first = compared.first_tick
    assert first is not None and first <= 4 and compared.drawn[compared.first == first].all()


def test_slider_keys_and_buttons_move_both_replays_and_maps_zoom_together(page, compared: ComparedReplays) -> None:
    last = compared.edited.ticks - 1
    for key, tick in (("End", last), ("d", compared.first_tick), ("Home", 0), ("ArrowRight", 1)):
        page.keyboard.press(key)
        assert page.evaluate("window.compared.tick") == tick
    page.get_by_label("Speed").select_option("100")
    page.get_by_role("button", name="Play", exact=True).click()
    until(page, f"window.compared.tick === {last} && !window.compared.playing")
    page.get_by_role("button", name="Go there").click()
    assert page.evaluate("window.compared.tick") == compared.first_tick
    for tick in (0, 9, compared.edited.ticks - 1, 3):
        seek(page, tick)
        for side in SIDES:
            assert on_map(page, side) == truth(getattr(compared, side), tick)
        assert f"tick {tick} of {compared.edited.ticks - 1}" in page.locator("#clock").inner_text()
    assert on_map(page, "unedited") != on_map(page, "edited")
    seek(page, 4)
    page.get_by_role("button", name="Zoom in").click()
    settle(page)
    places = [
        {item["id"]: (item["x"], item["y"]) for item in page.evaluate(f"window.compared.shown('{side}')")}
        for side in SIDES
    ]
    tiles = [on_map(page, side) for side in SIDES]
    still = [number for number in tiles[0] if tiles[0].get(number) == tiles[1].get(number)]
    assert len(still) > 3
    assert sum(math.dist(places[0][number], places[1][number]) < 1 for number in still) > len(still) / 2


def test_another_dose_is_shown_on_the_right_also_where_another_page_asks_for_it(page, films: Films) -> None:
    lower, higher = (compared for _, compared in films.values())
    seek(page, 7)
    assert on_map(page, "edited") == truth(higher.edited, 7) != truth(lower.edited, 7)
    page.get_by_role("slider", name="Dose").fill("0")
    until(page, "document.getElementById('edited-title').textContent === 'Edited, dose -1'")
    settle(page)
    assert page.locator("#dose-value").inner_text() == "−1"
    assert page.locator("#dose").get_attribute("aria-valuetext") == "−1"
    assert first_difference(lower) in page.locator("#difference").inner_text()
    seek(page, 8)
    assert on_map(page, "edited") == truth(lower.edited, 8) and on_map(page, "unedited") == truth(lower.unedited, 8)
    for key, dose in (("[", -1), ("]", 1)):
        page.keyboard.press(key)
        until(page, f"window.compared.dose === {dose}")
    settle(page)
    assert on_map(page, "edited") == truth(higher.edited, 8)
    page.evaluate("window.name = 'dose -1'")
    page.reload()
    until(page, "window.compared !== undefined && window.compared.dose === -1")
    until(page, "document.getElementById('replays').getBoundingClientRect().top < 10")
    assert page.locator("#dose-value").inner_text() == "−1"


def test_a_run_of_one_film_has_no_choice_of_doses(browser, run_folder: Path, tmp_path: Path) -> None:
    """As versions left it that kept one replay, whatever the number of doses."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    for name in (LOWER, "DONE.json"):
        (folder / name).unlink()
    report_run(folder, draws=99)
    with opened(browser, folder / PAGE_FILE, READY) as page:
        assert page.locator("#dose").count() == 0 and page.evaluate("window.compared.dose") == 1


def test_the_page_says_what_it_shows_and_who_is_dead(page, compared: ComparedReplays, run_folder: Path) -> None:
    tick = 12
    seek(page, tick)
    assert page.title() == "<b>&'run' – intervention" and page.locator("h1").inner_text() == "<b>&'run'"
    assert first_difference(compared) in page.locator("#difference").inner_text()
    summary = page.locator("#summary").inner_text()
    assert "2 episodes in each arm, 3 arms, 96 lives" in summary and "edit, dose +1" in summary
    assert page.locator("#arms h3").all_inner_texts() == ["Unedited", "Edited, dose +1"]
    for side in SIDES:
        alive = getattr(compared, side).players.alive[tick]
        who = "edited agents" if side == "edited" else "agents drawn at random"
        drawn, others = (alive & compared.drawn).sum(), (alive & ~compared.drawn).sum()
        living = page.locator(f"#{side}-living").inner_text()
        assert living.startswith(f"Alive: {drawn} of {DRAWN} {who}, {others} of {16 - DRAWN} others.")
    first, others = page.locator("#summary img").count(), page.locator("#figures img").count()
    assert first == 1 and first + others == len([*run_folder.glob("*.png")]) > 1
    last = compared.edited.ticks - 1
    died = np.flatnonzero(~compared.edited.players.alive[last - 1] & (compared.edited.players.health[0] > 0))
    player = int(died[0])
    seek(page, last - 1)
    page.get_by_label("Agent", exact=True).select_option(str(player))
    settle(page)
    at = int(np.flatnonzero(~compared.edited.players.alive[:, player])[0])
    assert f"died at tick {at}, " in page.get_by_role("row", name="state").inner_text()


def test_only_the_edited_agents_can_be_shown(page, compared: ComparedReplays) -> None:
    seek(page, 2)
    drawn = set(compared.ids[compared.drawn].tolist())
    page.get_by_label("only the edited agents").check()
    settle(page)
    for side in SIDES:
        there = {number for number in truth(getattr(compared, side), 2) if number in drawn}
        assert set(on_map(page, side)) == there != set()
    page.keyboard.press("e")
    settle(page)
    assert on_map(page, "edited") == truth(compared.edited, 2)


def test_a_clicked_agent_is_told_in_both_arms_and_has_two_paths(page, compared: ComparedReplays) -> None:
    tick = 6
    seek(page, tick)
    before = pictures(page)
    everyone = page.evaluate("window.compared.shown('edited')")
    alone = [
        item for item in everyone
        if item["id"] > 0 and all(
            other is item or math.dist((item["x"], item["y"]), (other["x"], other["y"])) > 12 for other in everyone
        )
    ]  # fmt: skip
    ids = compared.ids.tolist()
    chosen = next(item for item in alone if compared.first[ids.index(item["id"])] in range(tick + 1))
    player = ids.index(chosen["id"])
    box = page.locator("#edited-map-canvas").bounding_box()
    page.mouse.move(box["x"] + chosen["x"], box["y"] + chosen["y"])
    settle(page)
    hover = page.locator("#edited-tooltip").inner_text()
    for side in SIDES:
        players = getattr(compared, side).players
        if players.alive[tick, player]:
            vitals = ", ".join(f"{name} {getattr(players, name)[tick, player]}" for name in ("health", "food", "water"))
            assert f"alive, {vitals}" in hover
    page.mouse.down()
    page.mouse.up()
    until(page, f"window.compared.following === {chosen['id']}")
    settle(page)
    table = page.locator("#agent").inner_text()
    assert f"agent {chosen['id']}" in table and "unedited" in table
    assert f"This agent first differs at tick {compared.first[player]}: {compared.differs[player][0]}" in table
    page.mouse.move(box["x"] - 5, box["y"] - 5)
    settle(page)
    assert all(now != then for now, then in zip(pictures(page), before, strict=True))
    page.keyboard.press("Escape")
    settle(page)
    assert page.evaluate("window.compared.following") is None
    assert pictures(page) == before
    page.evaluate("window.addEventListener('message', ({ data }) => { window.heard = data; })")
    page.keyboard.press("Escape")
    until(page, "window.heard === 'Escape'")  # by a page around this one


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_window_in_both_colour_schemes(browser, run_folder: Path, scheme: str) -> None:
    with opened(browser, run_folder / PAGE_FILE, READY, 800, 900, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        left, right = (page.locator(f"#{side}-map-canvas").bounding_box() for side in SIDES)
        assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_only_its_own_scripts_run_and_a_damaged_page_says_so(browser, run_folder: Path, tmp_path: Path) -> None:
    assert scripts_that_ran(browser, run_folder / PAGE_FILE, tmp_path) == []
    assert "cannot show its replays" in said_of_damage(browser, run_folder / PAGE_FILE, "edited-1-content", tmp_path)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_without_whole_replays_the_page_says_why(run_folder: Path, tmp_path: Path) -> None:
    for place, (name, harm, before, message) in enumerate((
        (UNEDITED_REPLAY, Path.unlink, "reported", "is missing"),
        (UNEDITED_REPLAY, truncated, "reported", "does not match its SHA-256"),
        (EDITED_REPLAY, truncated, "played", "is truncated"), (LOWER, Path.unlink, "reported", "is missing"),
    )):  # fmt: skip
        folder = tmp_path / str(place)
        shutil.copytree(run_folder, folder)
        if before == "played":
            (folder / "DONE.json").unlink()
        harm(folder / name)
        lines = report_run(folder, draws=99)
        assert lines[-1].startswith(f"{PAGE_FILE} shows no replays: {name} {message}")
        text = (folder / PAGE_FILE).read_text()
        assert str(tmp_path) not in text and "<script" not in text and "<canvas" not in text
        assert "Repeat the run" in text and message in text and text.count("data:image/png") > 1
        finished = open_finished(folder)
        assert PAGE_FILE in finished and name not in finished


def test_the_page_is_the_same_again_and_is_proved(run_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / run_folder.name
    shutil.copytree(run_folder, folder)
    report_run(folder, draws=99)
    assert (folder / PAGE_FILE).read_bytes() == (run_folder / PAGE_FILE).read_bytes()
    assert {PAGE_FILE, UNEDITED_REPLAY, EDITED_REPLAY, LOWER} <= open_finished(folder).sha256.keys()
