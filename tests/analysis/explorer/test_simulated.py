"""Simulated lives in the explorer stand beside the recorded ticks that they go on from; behaviours by vote."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import write_directions
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from activation_store.schema import STARTS, TILE_COLUMNS
from analysis.explorer.behaviours import has_behaviour, trajectories, trajectory_plane, voted
from analysis.explorer.content import Explored, is_simulated, read_simulated
from analysis.explorer.page.page import _ticks, explorer_page, life_columns
from analysis.explorer.tracks import open_further, read_further
from analysis.features.observed import Observed
from analysis.labels import NOISE
from analysis.life.events import WAS_HIT
from analysis.position import POSITION_COLUMNS, positions
from analysis.runs.propagated_labels import rule_from
from analysis.runs.saliency_maps import read_saliency
from tests.analysis.explorer.conftest import READY, content_of, quiet
from tests.browser import opened, settle, until
from tests.command import assert_refused, assert_refuses, run_here, run_well
from tests.planted_dynamics import planted_saliency_run
from tests.planted_interventions import unit
from tests.planted_run import planted_run
from tests.recorded import Recording
from tests.recorded_features import RecordedFeatures
from tests.trained_world_model import trained_world_model

TICKS = 5
LIVES = 30
DOSE = 3.0


@pytest.fixture(scope="module")
def model(features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_world_model(tmp_path_factory, features_dump)


@pytest.fixture(scope="module")
def simulated(model: Path, features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The dumps of some lives as they are, and steered."""
    folder = tmp_path_factory.mktemp("simulated")
    write_directions(folder / "d.safetensors", [unit(0, 16, "ic_1", "lstm_cell")])
    run_well(
        "simulate.py", model, "-n", LIVES, "--ticks", TICKS, "--dump", features_dump.dump, "-o", folder, "--directions",
        folder / "d.safetensors", "--edit", "steer", "--direction", "ic_1", "--dose", DOSE,
    )  # fmt: skip
    name = f"{features_dump.dump.name}-simulated"
    return [folder / name, folder / f"{name}-steer-ic_1-dose+3"]


@pytest.fixture(scope="module")
def run(features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_run(features_dump.dump, tmp_path_factory.mktemp("runs"), 2, "--permutations", 99, "--bootstraps", 99)


@pytest.fixture(scope="module")
def content(run: Path, simulated: list[Path]) -> Explored:
    return content_of(run, simulated=simulated)


def open_life(page, simulated: list[Path], slot: int = 0) -> tuple[int, int, int]:
    """Open the recorded life that a simulated one goes on from, there; return its episode, agent and tick."""
    episode, agent, tick = starts_of(simulated[0])[slot].tolist()
    page.evaluate(f"location.hash = 'agent={agent}&episode={episode}&tick={tick}'")
    until(page, f"explorer.open?.tick === {tick} && explorer.open.agent === {agent}")
    return episode, agent, tick


def starts_of(dump: Path) -> np.ndarray:
    """Episode, agent and tick that each simulated life goes on from, by its slot in the only episode."""
    (described,) = read_metadata(dump).episodes
    return np.array(described[STARTS])


def test_lives_go_on_from_the_ticks_that_they_say_and_runs_say_the_same_of_them(
    content: Explored, simulated: list[Path], run: Path, features_dump: RecordedFeatures, sparse_run: Path
) -> None:
    recorded = content.seen.records
    for dump, lives in zip(simulated, content.simulated, strict=True):
        starts, records = starts_of(dump), read_dump(dump, layers=[])
        assert len(lives.begins) == len(starts) == LIVES and len(lives.seen) == len(records)
        ticks = np.stack([recorded.episode, recorded.agent_id, recorded.tick], axis=1)[lives.begins]
        first = lives.timeline.lives.starts
        slots = lives.seen.records.env_id[first]
        np.testing.assert_array_equal(ticks, starts[slots])
        np.testing.assert_array_equal(lives.seen.records.tile[first], recorded.tile[lives.begins], "the scene there")
        assert lives.behind[first].max() == 0 and lives.behind.max() == lives.timeline.lives.lengths.max() - 1
    label, own = content.tick_labels
    states = [read_dump(dump, columns=[]).activations["action_decoder"] for dump in simulated]
    wanted = content.labels.rule.labels_of(np.concatenate(states))
    assert len(label) == len(own) == len(content.seen) + len(wanted) and not own[len(content.seen) :].any()
    assert sorted(label[len(content.seen) :].tolist()) == sorted(wanted.tolist())
    tracks = read_further(
        open_further(content.run.clusters.path, content.run.dump, [sparse_run], []), content, 3, quiet
    ).tracks
    assert {len(track.values) for track in tracks} == {len(label)}


@pytest.fixture(scope="module")
def page_file(run: Path, simulated: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "e.html"
    run_well("explore.py", run, *simulated, "-o", path)
    return path


@pytest.fixture
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, READY, 1600, 1000) as page:
        yield page


def records_of_life(dump: Path, slot: int) -> Records:
    records = read_dump(dump, layers=[])
    return records.take(records.env_id == slot)


def test_a_simulated_life_stands_beside_the_recorded_one(page, simulated: list[Path], content: Explored) -> None:
    lives = [records_of_life(dump, 0) for dump in simulated]
    episode, agent, tick = open_life(page, simulated)
    for place in range(min(3, len(lives[0]))):
        shown = page.evaluate("explorer.simulated")
        others = [start for start in starts_of(simulated[0]).tolist() if start[:2] == [episode, agent]]
        if place and [episode, agent, tick + place] in others:
            break  # another life begins here
        assert (shown["tick"], shown["agent"]) == (tick + place, agent) and shown["episode"] < 0
        assert shown["materials"] == lives[0].tile[place, :, 2].tolist()
        assert shown["columns"]["value"] == pytest.approx(lives[0].value[place], rel=1e-6)
        assert page.locator("#simulated-views .card.now b").inner_text() == f"tick {tick + place}, simulated"
        page.keyboard.press("ArrowRight")
    open_life(page, simulated)
    assert page.locator("#simulation option").all_inner_texts() == ["unedited", "steer ic_1, dose +3", "none"]
    page.select_option("#simulation", label="steer ic_1, dose +3")
    assert page.evaluate("explorer.simulated.columns.value") == pytest.approx(lives[1].value[0], rel=1e-6)
    edited = page.evaluate("location.hash")
    open_life(page, simulated)
    assert page.locator("#simulation option:checked").inner_text() == "unedited"
    page.evaluate("(address) => { location.hash = address; }", edited)
    until(page, "document.getElementById('simulation').selectedIndex === 1")
    assert page.evaluate("explorer.simulated.columns.value") == pytest.approx(lives[1].value[0], rel=1e-6)
    assert page.evaluate("explorer.count") == len(content.rows) and page.evaluate("explorer.ticks") == len(content.seen)
    lanes = page.evaluate("document.getElementById('timeline').data.map(({name}) => name)")
    assert "value, simulated" in lanes and "health, simulated" in lanes
    page.select_option("#simulation", label="none")
    until(page, "!document.getElementById('timeline').data.some(({name}) => name === 'value, simulated')")
    assert page.evaluate("explorer.simulated") is None and page.locator("#simulated-views .card").count() == 0


BEYOND = 70
"""Tiles that simulated agents are moved by, to where they see what is far to the north and west of the map."""


def test_agents_that_left_the_map_are_drawn_too(
    browser, content: Explored, simulated: list[Path], tmp_path: Path
) -> None:
    first, *others = content.simulated
    records = first.seen.records
    tile = records.tile.copy()
    tile[:, :, [TILE_COLUMNS.index(axis) for axis in POSITION_COLUMNS]] -= BEYOND
    columns = {**records.columns, **{axis: records.columns[axis] - BEYOND for axis in POSITION_COLUMNS}}
    gone = replace(first, seen=Observed(replace(records, tile=tile, columns=columns), first.seen.metadata))
    assert min(axis.min() for axis in positions(gone.seen.records)) < 0
    shown = []
    for lives in (first, gone):
        (tmp_path / "e.html").write_text(explorer_page(replace(content, simulated=[lives, *others])))
        with opened(browser, tmp_path / "e.html", READY, 1600, 1000) as page:
            open_life(page, simulated)
            settle(page)
            world = page.evaluate("document.querySelector('#world canvas').toDataURL()")
            shown.append((page.evaluate("explorer.open"), world, page.evaluate("explorer.simulated")))
    assert shown[0][:2] == shown[1][:2], "what was recorded"
    there, away = (simulated_there for _, _, simulated_there in shown)
    assert away == {**there, **{axis: there[axis] - BEYOND for axis in POSITION_COLUMNS}}


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=str)
def test_both_views_and_the_time_axis_are_on_the_screen(page, simulated: list[Path], size: tuple[int, int]) -> None:
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    open_life(page, simulated)
    until(page, "document.querySelector('#time-axis .xtick') !== null")
    page.evaluate("document.getElementById('life-times').scrollTop = 200")
    for row in ("#life-views", "#simulated-views"):
        for part in (".card.now", ".action"):
            box = page.locator(f"{row} {part}").bounding_box()
            assert box["width"] > 50 and box["y"] + box["height"] <= size[1], (row, part)
    axis, times = (page.locator(part).bounding_box() for part in ("#time-axis", "#life-times"))
    assert axis["y"] == pytest.approx(times["y"], abs=1)
    labels = page.locator("#time-axis .xtick").all_text_contents()
    page.evaluate("Plotly.relayout('timeline', {'xaxis.range': [1, 3]})")
    until(page, f"document.querySelector('#time-axis .xtick').textContent !== {labels[0]!r}")


def test_it_says_where_an_edited_simulation_parts_from_the_unedited_one(page, simulated: list[Path]) -> None:
    starts, checked = starts_of(simulated[0]).tolist(), 0
    for slot in range(4):
        episode, agent, tick = starts[slot]
        if any(start[:2] == [episode, agent] and start[2] in range(tick + 1, tick + TICKS) for start in starts):
            continue  # another life begins before this one is over
        checked += 1
        first, other = (records_of_life(dump, slot) for dump in simulated)
        shared = min(len(first), len(other))
        same = (first.tile[:shared, 112] == other.tile[:shared, 112]).all(axis=1)
        same &= (first.action[:shared] == other.action[:shared]).all(axis=1)
        open_life(page, simulated, slot)
        page.select_option("#simulation", index=1)
        note = page.locator("#simulated-views .note").inner_text()
        assert f"Ticks {tick} to {tick + len(other) - 1} were simulated" in note
        if same.all():
            assert "as in “unedited”" in note or "differ" in note, "vitals may differ"
        else:
            assert "from tick" in note and int(note.split("from tick ")[1].split()[0]) <= tick + int(np.argmin(same))
    assert checked


def test_a_tick_that_was_not_simulated_leads_to_one_that_was(page, simulated: list[Path]) -> None:
    starts = starts_of(simulated[0])
    episode, agent, _ = starts[0].tolist()
    page.evaluate(f"location.hash = 'agent={agent}&episode={episode}&tick=0'")
    until(page, f"explorer.open?.tick === 0 && explorer.open.agent === {agent}")
    mine = sorted(start[2] for start in starts.tolist() if start[:2] == [episode, agent])
    assert page.evaluate("explorer.simulated") is None and mine[0] >= 2, "lives start at the third tick or later"
    page.evaluate("location.hash += '&hide=life-views'")
    until(page, "document.getElementById('life-views').hidden")
    page.get_by_role("button", name="Go to tick").click()
    until(page, f"explorer.open?.tick === {mine[0]}")
    alone = page.locator("#simulated-views .card.now b").inner_text()
    assert alone == f"tick {mine[0]}, simulated", "also where the recorded view is put away"
    assert page.evaluate("explorer.simulated.tick") == mine[0]


def test_whom_simulated_agents_meet_has_no_number(page, content: Explored, simulated: list[Path]) -> None:
    """Numbers of simulated players are those of their tiles, and an attacker's is a guess between two agents."""
    open_life(page, simulated)
    met = page.evaluate("explorer.simulated.others.map(({ id }) => id)")
    assert set(met) <= {None} and any(page.evaluate("explorer.open.others.map(({ id }) => id !== null)"))
    said = page.locator("#simulated-views .card.now canvas").get_attribute("aria-label").split("in view: ")[1]
    assert met and not re.search(r"(player|NPC) -?\d", said)
    events = content.simulated[0].timeline.events
    planted = replace(events, record=np.zeros(1, np.int64), kind=np.array([WAS_HIT]), detail=("8 damage, by agent 57",))
    lives = replace(content.simulated[0], timeline=replace(content.simulated[0].timeline, events=planted))
    _, texts = _ticks(replace(content, simulated=(lives,)), life_columns(content.timeline))
    assert "was hit: 8 damage, by agent" in texts["events"] and "was hit: 8 damage, by agent 57" not in texts["events"]


def test_simulated_lives_are_found_by_words(page, simulated: list[Path]) -> None:
    episode, agent, tick = starts_of(simulated[0])[-1].tolist()
    page.fill("#find", f"simulated life agent {agent} episode {episode} tick {tick}")
    page.locator("#matches button").first.click()
    until(page, f"explorer.open?.tick === {tick} && explorer.open.agent === {agent}")
    assert page.evaluate("explorer.open.episode") == episode
    assert page.evaluate("explorer.simulated.tick") == tick
    page.fill("#find", "simulated life")
    listed = page.locator("#matches button").count()
    note = page.locator("#matches .note").all_inner_texts()
    assert listed + (int(note[0].split()[1]) if note else 0) == LIVES


def test_lives_that_do_not_belong_here_are_refused(
    model: Path, run: Path, simulated: list[Path], features_dump: RecordedFeatures, content: Explored, tmp_path: Path
) -> None:
    command = ["simulate.py", model, "-n", 3, "--ticks", 1, "--dump", features_dump.dump, "-o", tmp_path]
    run_well(*command, "--from", "random")
    loose = tmp_path / simulated[0].name
    assert is_simulated(loose) and not is_simulated(run) and not is_simulated(features_dump.dump)
    twice = run_here("explore.py", run, simulated[0], simulated[0], "-o", tmp_path / "e.html")
    assert_refused(twice, f"called {simulated[0].name}: give each once")
    assert_refused(run_here("explore.py", run, loose, "-o", tmp_path / "e.html"), "does not say which ticks")
    records = content.seen.records
    late = replace(records, tick=records.tick + 1000)
    for dump, seen, message in (
        (simulated[1], records, "was not simulated from"),
        (features_dump.dump, late, "has no life from a tick of this page on"),
    ):
        assert_refuses(message, read_simulated, simulated[0], dump, seen, 9, lambda _: None)
    few = read_simulated(simulated[0], features_dump.dump, records, 2 * TICKS, lambda _: None)
    assert len(few.begins) == 2
    assert not (tmp_path / "e.html").exists()


def test_behaviours_follow_the_nearest_labelled_trajectories() -> None:
    z = np.arange(10, dtype=np.float32)[:, None] ** 2
    assert trajectories(z)[8].tolist() == [64, 64 - 36, 64 - 16, 64 - 4], "the state and its changes"
    assert trajectories(z)[0].tolist() == [0, 0, 0, 0]
    assert has_behaviour(8).tolist() == [False] * 6 + [True] * 2
    random = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 60)
    points = (10 * np.eye(3)[label] + random.normal(0, 0.5, (180, 3))).astype(np.float32)
    rule = rule_from(points, label, np.arange(180) % 6)
    asked = (10 * np.eye(3)[[2, 0, 1, 1, 0]] - rule.mean) @ rule.components.T
    assert voted(rule, asked, np.array([True, True, True, True, False])).tolist() == [2, 0, 1, 1, NOISE]
    state = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.array_equal(trajectory_plane(state, seed=0), state[:, :2])
    assert trajectory_plane(state[:, :1], seed=0).tolist() == [[0, 0], [3, 0], [6, 0], [9, 0]]


@pytest.mark.slow
def test_trajectories_that_are_alike_lie_together() -> None:
    random = np.random.default_rng(1)
    label = np.arange(60) % 2
    place = trajectory_plane((random.normal(0, 1, (60, 5)) + 30 * label[:, None]).astype(np.float32), seed=0)
    centres = np.stack([place[label == case].mean(axis=0) for case in (0, 1)])
    nearest = np.linalg.norm(place[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == label).all()


def test_maps_that_an_older_version_checked_are_marked(recording: Recording, tmp_path: Path) -> None:
    now = read_saliency(planted_saliency_run(tmp_path / "now", recording.dump))
    before = read_saliency(planted_saliency_run(tmp_path / "before", recording.dump, {"failures": []}))
    (message,) = before.failures
    assert now.failures == () and message == "an older version checked them, too leniently: run saliency.py again"
