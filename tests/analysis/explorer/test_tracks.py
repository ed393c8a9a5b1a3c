"""What further runs of a dump say of its ticks: read from planted runs, and shown in the explorer."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from activation_store.directions import DIRECTIONS_FILE, Direction, Source, write_directions
from activation_store.lives import places_of
from activation_store.reader import read_dump
from activation_store.schema import METADATA_FILE
from activation_store.sparse_dictionary import DictionarySource, SparseDictionary, read_dictionary, write_dictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.explorer.content import Explored
from analysis.explorer.edits import PlayedEdit, read_edits
from analysis.explorer.page.page import explorer_page
from analysis.explorer.tracks import SPARSE_FILE, Further, open_further, plane_of, read_further
from analysis.lives import places_among
from analysis.pages import pages
from analysis.position import positions
from analysis.runs.cluster_run import read_run
from analysis.runs.dynamics_run import read_dynamics
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import RunFolder
from analysis.statistics.effect_intervals import cohens_d, moments
from analysis.statistics.inference import false_discovery
from common.files import sha256
from tests.analysed import Analysed
from tests.analysis.explorer.conftest import READY, quiet
from tests.browser import opened, until
from tests.command import assert_refused, assert_refuses, run_here, run_well
from tests.planted_dynamics import planted_dynamics_run

LAYER, MOST, FEATURES = "action_decoder", 4, 12
MAPPED = 7
KIT_SCRIPT = str(pages.scripts_of(("page.js",), ()).elements)


@pytest.fixture(scope="module")
def states(analysed: Analysed, content: Explored) -> np.ndarray:
    """The layer at the ticks of the page, (T, units)."""
    records = read_dump(analysed.dump, layers=[LAYER], columns=[])
    return records.activations[LAYER][places_among(places_of(content.seen.records), places_of(records))]


@pytest.fixture(scope="module")
def results(analysed: Analysed, states: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of further runs of the dump: again (the same clusters), probed, sparse, mapped and empty."""
    folder, units = tmp_path_factory.mktemp("results"), states.shape[1]
    shutil.copytree(analysed.run, folder / "again")
    made_from = {"input": {METADATA_FILE: sha256(analysed.dump / METADATA_FILE)}}
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((MOST + 2, units)).astype(np.float32)
    with RunFolder(folder / "probed", made_from) as run:
        source = Source("probe", "probed", analysed.dump.name, "x", None)
        about = (0.5, "points", 0.0, 1.0, 9, 3, 1, source)
        directions = [Direction(f"d_{i}", LAYER, weight, *about) for i, weight in enumerate(weights)]
        write_directions(run.path / DIRECTIONS_FILE, directions)
    decoder = rng.standard_normal((FEATURES, units)).astype(np.float32)
    decoder /= np.linalg.norm(decoder, axis=1, keepdims=True)
    encoder = decoder * np.linspace(0.5, 2, FEATURES, dtype=np.float32)[:, None]
    zeros = np.zeros(FEATURES, np.float32)
    where = DictionarySource("sparse", analysed.dump.name, "0" * 64, "x", None, LAYER, 9, 3, 1, 0)
    dictionary = SparseDictionary("topk", 3, decoder, states.mean(axis=0), where, encoder, zeros, zeros)
    with RunFolder(folder / "sparse", made_from) as run:
        run.save_json(SPARSE_FILE, {"scores": [{"name": "pca", "kind": "pca"}, {"name": "topk", "kind": "topk"}]})
        write_dictionary(run.path / "topk.safetensors", dictionary)
    with RunFolder(folder / "baselines", made_from) as run:
        run.save_json(SPARSE_FILE, {"scores": [{"name": "pca", "kind": "pca"}]})
    for name, shift in (("mapped", 0), ("elsewhere", 10**6)):
        with RunFolder(folder / name, made_from | {"arguments": {"of": "value", "method": "gradient"}}) as run:
            save_maps(run, {key: place + shift for key, place in mapped_places(analysed.dump).items()})
    played = {"policy": "1" * 64, "directions": sha256(folder / "probed" / DIRECTIONS_FILE)}
    with RunFolder(folder / "played", {"input": played, "arguments": STEERED}) as run:
        run.save_json("effects.json", planted_effects())
        run.save_text("intervention.html", f"<h1>twins</h1>{KIT_SCRIPT}")
    for name, input_ in (("empty", made_from), ("foreign", {"input": {METADATA_FILE: "0" * 64}})):
        with RunFolder(folder / name, input_) as run:
            run.save_text("x.txt", "")
    return folder


ARM = {"name": "edit", "kind": "edit", "policy": "trained", "dose": None, "twin": "unedited"}
STEERED = {"edit": "steer", "direction": "d_2", "from_tick": 20, "until_tick": 21, "condition": "self_food < 3"}


def planted_effects() -> dict[str, object]:
    """Two doses; one effect of the second counts, and it moves two options at once."""
    trained = [ARM | {"name": f"edit, dose {dose}", "dose": dose} for dose in (-2.0, 2.0)]
    control = {"control": "random directions", "effect": {"value": -0.25, "low": -1.0, "high": 0.5}}
    effects = [
        {
            "arm": arm["name"], "outcome": outcome, "effect": {"value": value, "low": value - 1, "high": value + 1},
            "verdict": "effect" if arm is trained[1] and outcome == "reward" else "undecided", "against": [control],
        }
        for arm in trained for outcome, value in (("ticks", 7.0), ("reward", -3.5))
    ]  # fmt: skip
    gains = {"North": 0.125, "East": None, "South": -0.5}
    at_once = [
        {"arm": trained[1]["name"], "outcome": f"gain_total/Move.Direction/{option}", "level": {"value": gain}}
        for option, gain in gains.items()
    ]
    arms = [ARM | {"name": "unedited", "kind": "unedited"}, *trained]
    return {"episodes": 6, "arms": arms, "effects": effects, "at_once": at_once}


def mapped_places(dump: Path) -> dict[str, np.ndarray]:
    """The ticks that have maps: the first ones of the dump, last first."""
    return {name: place[:MAPPED][::-1] for name, place in places_of(read_dump(dump, layers=[], columns=[])).items()}


def save_maps(run: RunFolder, places: dict[str, np.ndarray]) -> None:
    """Write maps of one tick a sample, and of the tick before it, as saliency.py does; a check of them failed.

    They say nothing of the task, as those by occlusion.
    """
    value = np.ones(MAPPED)
    value[0] = np.nan  # in the last of these ticks in the dump an option was illegal
    run.save_arrays(
        "maps.npz", **places, **planted_maps(), sample=np.arange(MAPPED), value=value, task=np.full((MAPPED, 2), np.nan)
    )
    run.save_json("sanity.json", {"failures": ["it does not beat nearest first"], "checks": {}})


def further_of(paths: list[Path], content: Explored, most: int) -> Further:
    return read_further(open_further(content.run.clusters.path, content.run.dump, paths, []), content, most, quiet)


def planted_maps() -> dict[str, np.ndarray]:
    """Attributions of two ticks of each sample; samples are those of the mapped ticks from the last to the first."""
    rng, widths = np.random.default_rng(1), {"tiles": 225, "entities": 3, "own": 5, "inventory": 1}
    return {name: rng.standard_normal((MAPPED, 2, width)) for name, width in widths.items()}


def test_maps_lie_over_their_ticks_and_say_what_others_in_view_raise(
    results: Path, content: Explored, analysed: Analysed
) -> None:
    (overlay,) = further_of([results / "mapped"], content, MOST).overlays
    seen = content.seen
    own = {name: place[overlay.ticks] for name, place in places_of(seen.records).items()}
    there = {name: place[::-1] for name, place in mapped_places(analysed.dump).items()}
    rows, maps = places_among(own, there), {name: item[::-1, -1] for name, item in planted_maps().items()}
    assert len(overlay.ticks) == MAPPED - 1, "where it is defined"
    assert overlay.tiles == pytest.approx(maps["tiles"][rows], rel=1e-6)
    assert overlay.parts[:, :-1].sum(axis=1) == pytest.approx(1) and np.isnan(overlay.parts[:, -1]).all()
    wanted = []
    for row, tick in zip(rows, overlay.ticks.tolist(), strict=True):
        first, last = seen.records.entity.offsets[tick : tick + 2]
        others = ~seen.is_self[first:last] & (seen.distance[first:last] <= 7)
        wanted += [maps["entities"][row, min(number, 2)] for number in np.flatnonzero(others)]
    assert len(wanted) and overlay.entities == pytest.approx(wanted, rel=1e-6)


def test_clusters_are_carried_to_every_tick_and_planes_to_their_points(results: Path, content: Explored) -> None:
    (track,) = further_of([results / "again"], content, MOST).tracks
    assert (track.run, track.name) == ("again", "cluster of again")
    assert np.array_equal(track.values, content.tick_labels[0])
    assert [cluster["label"] for cluster in track.clusters] == content.run.clusters.clusters
    assert track.plane is not None and np.array_equal(track.plane, content.run.embedding[content.rows])
    run = read_run(results / "again", content.run.dump)
    kept = np.arange(len(run.clusters.label)) % 3 > 0
    places = {name: values[kept] for name, values in run.clusters.places.items()}
    fewer = replace(run, clusters=replace(run.clusters, places=places), embedding=run.embedding[kept])
    plane = plane_of(fewer, content)
    assert plane is not None and np.array_equal(np.isnan(plane).all(axis=1), ~kept[content.rows])
    assert np.array_equal(plane[kept[content.rows]], run.embedding[content.rows][kept[content.rows]])
    none = {name: np.full_like(values, 10**6) for name, values in places.items()}
    assert plane_of(replace(fewer, clusters=replace(run.clusters, places=none)), content) is None


def test_directions_and_the_features_that_vary_most_are_read_out_at_every_tick(
    results: Path, content: Explored, states: np.ndarray
) -> None:
    tracks = further_of([results / "probed"], content, MOST).tracks
    weights = np.random.default_rng(0).standard_normal((MOST + 2, states.shape[1])).astype(np.float32)
    assert [track.name for track in tracks] == ["d_0", "d_1", "d_2", "d_3"], "the first ones"
    assert tracks[0].unit == "points" and not tracks[0].clusters
    for track, weight in zip(tracks, weights, strict=False):
        assert track.values == pytest.approx(states @ weight.astype(np.float64) + 0.5, rel=1e-5, abs=1e-5)
    coder = SparseCoder(read_dictionary(results / "sparse" / "topk.safetensors"))
    strengths = coder.strengths(torch.from_numpy(states)).numpy()
    tracks = further_of([results / "sparse"], content, MOST).tracks
    most = np.argsort(-strengths.std(axis=0))[:MOST]
    assert [track.name for track in tracks] == [f"feature_{number}" for number in sorted(most)]
    for track, number in zip(tracks, sorted(most), strict=True):
        assert track.values == pytest.approx(strengths[:, number], rel=1e-5, abs=1e-5)


def test_edits_in_play_are_said_in_words_with_what_counts(results: Path, content: Explored) -> None:
    further = further_of([results / "probed", results / "played"], content, MOST)
    without, counts = further.edits
    assert without.edit == "steer d_2, dose -2, in tick 20, while self_food < 3" and not without.changes
    assert (counts.run, counts.episodes, counts.tested) == ("played", 6, 2)
    assert counts.changes == (("reward (total)", -3.5, -4.5, -2.5, -0.25),)
    assert counts.options == {"Move.Direction South": -0.5, "Move.Direction North": 0.125}
    assert [further.tracks[i].name for i in further.edited_by(counts)] == ["d_2"]
    assert further.edited_by(replace(counts, sources=("0" * 64,))) == [], "a direction of another file"
    metadata = replace(content.seen.metadata, checkpoint_sha256="2" * 64)
    of_others = replace(content, seen=replace(content.seen, metadata=metadata))
    assert_refuses("edited another policy", further_of, [results / "played"], of_others, MOST)


@pytest.fixture(scope="module")
def dynamics_run(content: Explored, tmp_path_factory: pytest.TempPathFactory) -> Path:
    units = content.seen.metadata.layers[LAYER]
    return planted_dynamics_run(tmp_path_factory.mktemp("moved") / "moved", content.run.dump, units, LAYER)


def test_a_run_that_moves_brings_its_behaviours_components_and_matrices(
    results: Path, content: Explored, dynamics_run: Path, states: np.ndarray
) -> None:
    dynamics = read_dynamics(dynamics_run, content.run.dump)
    further = further_of([results / "probed", dynamics_run], content, MOST)
    (motion,), behaviours = further.motions, further.tracks[MOST]
    assert behaviours.name == "behaviour of moved" and motion.labels == MOST
    assert [further.tracks[number].name for number in motion.tracks] == ["ic_1", "ic_2"]
    for number in motion.tracks:
        assert further.tracks[number].values == pytest.approx(states.sum(axis=1), rel=1e-4, abs=1e-4), "as planted"
    own = places_among(places_of(content.seen.records), dynamics.behaviours.places)
    assert np.array_equal(behaviours.values[own >= 0], dynamics.behaviours.label[own[own >= 0]])
    assert (own < 0).any() and set(behaviours.values[own < 0].tolist()) <= {-1, 0, 1}
    assert np.array_equal(motion.tables["jacobian"], dynamics.jacobian.astype(np.float32), equal_nan=True)
    assert motion.tables["r"] == pytest.approx(100 * dynamics.r, abs=0.51)
    (one,) = further_of([dynamics_run], content, 1).motions
    assert one.tables["r"].shape == (*dynamics.r.shape[:2], 1, 1), "of the components in the page"


def test_runs_that_cannot_be_shown_are_refused(
    results: Path, content: Explored, analysed: Analysed, tmp_path: Path
) -> None:
    for name, reason in (
        ("empty", "says nothing of single ticks"), ("foreign", "was not made from"), ("baselines", "no autoencoder"),
        ("elsewhere", "no map of this page's lives"),
    ):  # fmt: skip
        assert_refuses(reason, further_of, [results / name], content, MOST)
    page = tmp_path / "page.html"
    dumped = ("--dump", analysed.dump, "-o", page)
    assert_refused(run_here("explore.py", analysed.run, analysed.run, *dumped), "give each once")
    assert_refused(run_here("explore.py", "-o", page), "name a run")
    assert_refused(run_here("explore.py", analysed.run, *dumped, "--max-tracks", 0), "--max-tracks")
    assert not page.exists()


@pytest.fixture(scope="module")
def page(
    browser, results: Path, analysed: Analysed, dynamics_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator:
    file = tmp_path_factory.mktemp("page") / "explorer.html"
    further = [*(results / name for name in ("again", "probed", "sparse", "mapped", "played")), dynamics_run]
    run_well("explore.py", analysed.run, *further, "--dump", analysed.dump, "--max-tracks", MOST, "-o", file)
    with opened(browser, file, READY, 1400, 900) as page:
        yield page


def test_the_page_colours_by_them_within_their_rounding(page, results: Path, content: Explored) -> None:
    tracks = further_of([results / name for name in ("again", "probed", "sparse")], content, MOST).tracks
    point = len(content.rows) // 2
    shown = page.evaluate(f"explorer.point({point}).tracks")
    assert len(shown) - 3 == len(tracks) == 1 + 2 * MOST, "behaviours and two components are of the run that moves"
    for value, track in zip(shown, tracks, strict=False):
        step = 0 if track.clusters else np.ptp(track.values) / 255
        assert abs(value - track.values[content.place[point]]) <= 0.51 * step
    page.select_option("#colour-by", label="d_2")
    until(page, "document.getElementById('plot').data[0].marker.colorbar?.title.text.startsWith('d_2')")
    colours = np.array(page.evaluate("Array.from(document.getElementById('plot').data[0].marker.color)"))
    exact = tracks[3].values[content.place]
    assert np.abs(colours - exact).max() <= 0.51 * np.ptp(tracks[3].values) / 255
    page.select_option("#colour-by", label="cluster of again")
    until(page, "document.getElementById('plot').layout.annotations.length > 0")
    own = page.evaluate("Array.from(document.getElementById('plot').data[0].marker.color)")
    page.select_option("#colour-by", label="cluster")
    assert own == page.evaluate("Array.from(document.getElementById('plot').data[0].marker.color)"), "as the run's own"


def test_a_life_shows_them_over_time_and_the_search_finds_them(page, content: Explored) -> None:
    where = page.evaluate("explorer.point(0)")
    page.evaluate(f"location.hash = '#agent={where['agent']}&episode={where['episode']}&tick={where['tick']}'")
    until(page, "document.querySelector('#timeline .main-svg') !== null")
    drawn = "document.getElementById('timeline').data"
    heat = page.evaluate(f"{drawn}.filter(({{ z }}) => z).map(({{ z, text }}) => ({{ z, text }}))")
    life = page.evaluate("explorer.life(0)")
    assert [len(rows["z"]) for rows in heat] == [MOST, MOST, 2], "a group a run"
    assert {len(row) for rows in heat for row in rows["z"]} == {len(life)}
    assert heat[0]["text"][1][0].startswith("d_1 ")
    names = page.evaluate(f"{drawn}.map(({{ name }}) => name ?? '')")
    assert any(name.startswith("cluster of again: ") for name in names)
    page.fill("#find", "d_3")
    page.locator("#matches button", has_text="d_3").click()
    assert page.evaluate("explorer.colourBy") == "track.4"


def test_the_search_compares_features_and_numbers_of_further_runs(page, results: Path, content: Explored) -> None:
    column = [feature.name for feature in content.features].index("self_food")
    half = float(np.median(content.values[:, column]))
    page.fill("#find", f"self_food <= {half:g}")
    page.keyboard.press("Enter")
    until(page, "explorer.selection !== null")
    assert page.evaluate("explorer.selection") == np.flatnonzero(content.values[:, column] <= half).tolist()
    until(page, "explorer.compared !== null")
    names = page.locator("#selection table").first.locator("tbody th").all_inner_texts()
    assert names[-1] == "self_food (selected by it)" and not any("selected by it" in name for name in names[:-1])
    tracks = further_of([results / "probed"], content, MOST).tracks
    until(page, "explorer.comparedFurther !== null")
    rows = {row["name"]: row for row in page.evaluate("JSON.parse(JSON.stringify(explorer.comparedFurther))")}
    chosen = content.values[:, column] <= half
    for track in tracks[1:]:
        values = track.values[content.place][:, None]
        d = cohens_d(moments(values[chosen]), moments(values[~chosen]))[0]
        assert rows[track.name]["d"] == pytest.approx(d, abs=0.05)  # the page rounds to a 255th of the range
    ps = np.array([[row["p"] for row in rows.values()]], float)
    corrected = false_discovery(ps[np.isfinite(ps)])
    np.testing.assert_allclose([row["q"] for row in rows.values() if row["p"] is not None], corrected)
    page.fill("#find", f"d_2 > {np.median(tracks[2].values):.2f}")
    page.locator("#matches button", has_text="with d_2").click()
    share = len(page.evaluate("explorer.selection")) / len(content.rows)
    until(page, "document.getElementById('selection').innerText.includes('d_2 (selected by it)')")
    assert 0.3 < share < 0.7 and page.evaluate("document.activeElement.id") != "find"
    page.evaluate("document.getElementById('clear-selection').click()")


def test_at_the_pointer_only_active_features_are_listed(page, results: Path, content: Explored) -> None:
    sparse = further_of([results / "sparse"], content, MOST).tracks
    active = sum(track.values[content.place] > 0.1 for track in sparse)
    point = int(np.flatnonzero((active > 0) & (active < MOST))[0])
    place = page.evaluate(f"explorer.placeOf({point})")
    page.mouse.move(place["x"] + 3, place["y"] + 3)
    page.mouse.move(place["x"], place["y"])
    until(page, "explorer.hovered !== null")
    hovered = page.evaluate("explorer.hovered")
    names = page.eval_on_selector_all(".features dt", "terms => terms.map((term) => term.textContent)")
    values = [track.values[content.place[hovered]] for track in sparse]
    active = [track.name for track, value in zip(sparse, values, strict=True) if value > np.ptp(track.values) / 255]
    idle = [track.name for track, value in zip(sparse, values, strict=True) if value == 0]
    assert {"cluster of again", "d_0", *active} <= set(names) and not set(idle) & set(names)


def test_a_card_says_how_a_feature_is_spread_and_where_it_is_greatest(
    page, results: Path, content: Explored, dynamics_run: Path
) -> None:
    track = further_of([results / "sparse"], content, MOST).tracks[0]
    page.select_option("#colour-by", label=track.name)
    card = page.locator("#quantity")
    card.wait_for()
    assert card.locator("h2").inner_text() == track.name and "sparse feature" in card.inner_text()
    steps = np.rint((track.values - track.values.min()) * (255 / np.ptp(track.values)))[content.place]  # as in the page
    counts = page.eval_on_selector_all(".histogram i", "bars => bars.map(({ title }) => Number(title.split(' ')[0]))")
    assert sum(counts) == ((steps > 0).sum() if (steps == 0).mean() > 0.5 else len(steps))
    others = further_of([results / "probed", results / "sparse", dynamics_run], content, MOST).tracks
    own = dict(zip((feature.name for feature in content.features), content.values.T, strict=True))
    numbers = [other for other in others if other.name != track.name and not other.clusters]
    further = {other.name: other.values[content.place] for other in numbers}
    terms = page.eval_on_selector_all("#quantity dt, #quantity dd", "terms => terms.map((term) => term.textContent)")
    listed = dict(zip(terms[::2], terms[1::2], strict=True))
    for columns in (own, further):
        with np.errstate(invalid="ignore"):
            r = {name: np.corrcoef(steps, column)[0, 1] for name, column in columns.items()}
        strongest = max(r, key=lambda name: abs(np.nan_to_num(r[name])))
        assert listed[strongest] == f"{r[strongest]:+.2f}".replace("-", "−")
    first = card.locator(".strip button").first.get_attribute("title")
    agents = content.seen.records.agent_id[content.place[steps == steps.max()]]
    assert first is not None and any(f"agent {agent}," in first for agent in agents.tolist())
    card.locator("button", has_text="Select the greatest").click()
    until(page, "explorer.selection !== null")
    upper = np.sort(steps)[int(0.95 * len(steps))]
    assert page.evaluate("explorer.selection") == np.flatnonzero((steps >= upper) & (steps > 0)).tolist()
    page.evaluate("document.getElementById('clear-selection').click()")
    page.select_option("#colour-by", label="cluster")
    assert not card.is_visible()


def cell(page, later: int, earlier: int) -> tuple[float, float]:
    """A place in the window on a cell of the second matrix, beside the middle, where no dot is."""
    box, count = page.locator("#jacobians").bounding_box(), 2
    size = (box["width"] - EDGE) / count
    return box["x"] + EDGE + (earlier + 0.2) * size, box["y"] + (later + 0.2) * size


def test_matrices_say_what_moves_what_and_a_clicked_component_stays(
    page, content: Explored, dynamics_run: Path
) -> None:
    dynamics = read_dynamics(dynamics_run, content.run.dump)
    page.select_option("#of-behaviour", "1")
    shown = page.evaluate("explorer.motion")
    for entry in shown["entries"]:
        at = 1, 1, entry["later"], entry["earlier"]
        assert entry["effect"] == pytest.approx(dynamics.jacobian[at], rel=1e-6)
        assert (entry["r"], entry["sure"]) == (
            pytest.approx(dynamics.r[at], abs=0.0051),
            bool(dynamics.significant[at]),
        )
    box = page.locator("#jacobians").bounding_box()
    places = [cell(page, entry["later"], entry["earlier"]) for entry in shown["entries"]]
    inside = [[x - box["x"], y - box["y"]] for x, y in places]
    colours = np.array(page.locator("#jacobians").evaluate(COLOURS, inside), float)
    assert np.sign(colours[:, 0] - colours[:, 2]).tolist() == [np.sign(entry["effect"]) for entry in shown["entries"]]
    page.mouse.move(*cell(page, 1, 0))
    effect = f"{dynamics.jacobian[1, 1, 1, 0]:+.2f}".replace("-", "−")
    text = page.inner_text("#matrix-text")
    assert text.startswith("ic_1 → ic_2: r ") and text.endswith(f"effect {effect}")
    assert page.inner_text("#component-name") == "ic_2"
    assert page.locator("#moved-by li").first.inner_text().split()[:2] == ["ic_1", effect]
    page.locator("#lag").fill("0")
    assert page.evaluate("explorer.motion.lag") == 0
    page.locator("#lag").fill("1")
    page.mouse.click(*cell(page, 0, 1))
    assert page.inner_text("#component-name") == "ic_1 (kept)"
    page.mouse.move(*cell(page, 1, 0))
    assert page.inner_text("#component-name") == "ic_1 (kept)"
    page.locator("#let-go").click()
    page.mouse.move(*cell(page, 1, 0))
    assert page.inner_text("#component-name") == "ic_2"
    page.locator("#colour-component").click()
    assert page.locator("#colour-by option:checked").inner_text() == "ic_2"
    page.select_option("#colour-by", label="cluster")
    page.select_option("#of-behaviour", "follow")
    places = read_dynamics(dynamics_run, content.run.dump).behaviours.places
    agent, episode, tick = (int(places[name][3]) for name in ("agent_id", "episode", "tick"))
    for step, behaviour in ((0, 1), (1, 0)):
        page.evaluate(f"location.hash = '#agent={agent}&episode={episode}&tick={tick + step}'")
        until(page, f"explorer.open?.tick === {tick + step}")
        assert page.evaluate("explorer.motion.behaviour") == behaviour
        assert page.inner_text("#behaviour-shown").strip() == f"behaviour {behaviour}: {['more', 'less'][behaviour]}"


def test_edits_are_listed_and_stand_on_the_card_of_what_they_edit(page) -> None:
    page.fill("#find", "steer 20")
    page.locator("#matches button", has_text="steer d_2, dose +2").click()
    edit = page.locator("#edits article", has_text="dose +2")
    assert "reward (total): −3.5 (−4.5 to −2.5); random directions −0.25" in " ".join(edit.inner_text().split())
    edit.get_by_role("button", name="Colour by d_2").click()
    assert page.evaluate("explorer.colourBy") == "track.3"
    assert page.locator("#quantity article h3").all_inner_texts() == page.locator("#edits h3").all_inner_texts()
    page.locator("#quantity article").first.get_by_role("button", name="Figures and films").click()
    assert page.frame_locator("dialog iframe").locator("h1").inner_text() == "twins"
    assert page.frames[-1].evaluate("typeof byId") == "function", "scripts of this toolkit run in it"
    page.evaluate("window.postMessage('Escape', '*')")
    assert page.locator("dialog").count() == 1, "only the frame's own Escape counts"
    page.frames[-1].evaluate("parent.postMessage('Escape', '*')")
    until(page, "document.querySelector('dialog') === null")
    page.locator("#quantity article").first.get_by_role("button", name="Figures and films").click()
    page.get_by_role("button", name="Close", exact=True).click()
    assert page.locator("dialog").count() == 0
    page.select_option("#colour-by", label="d_1")
    assert page.locator("#quantity article").count() == 0
    page.select_option("#colour-by", label="cluster")


def test_other_scripts_of_a_runs_page_do_not_run(browser, content: Explored, tmp_path: Path) -> None:
    edits = tuple(PlayedEdit(run, "steer x", (), (), 2, 1.234567e-5, 1, True, (), {}) for run in ("now", "earlier"))
    films = {
        "now": f"<h1>twins</h1><img src=x onerror=document.body.append('foreign')>{KIT_SCRIPT}",
        "earlier": "<h1>twins</h1><script>document.body.append('another version')</script>",
    }
    (tmp_path / "page.html").write_text(explorer_page(content, Further(edits=edits, films=films)))
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    until(page, READY)
    page.locator("#edits summary").click()
    earlier = page.locator("#edits article").nth(1)
    assert "python intervene.py report …/earlier" in earlier.inner_text() and earlier.locator("button").count() == 0
    page.get_by_role("button", name="Figures and films").click()
    assert page.frame_locator("dialog iframe").locator("body").inner_text() == "twins"
    assert page.frames[-1].evaluate("[typeof byId, window.name]") == ["function", "dose 0.00001234567"]
    context.close()


def test_points_move_to_the_plane_that_is_chosen(page, results: Path, content: Explored) -> None:
    assert page.locator("#plane option").all_inner_texts() == [content.run.name, "again"]
    x = "Array.from(document.getElementById('plot').data[0].x)"
    before = page.evaluate(x)
    page.evaluate("document.getElementById('plot').data[0].x.fill(0)")
    page.select_option("#plane", label="again")
    until(page, f"{x}.some((value) => value !== 0)")
    assert page.evaluate(x) == before, "the same run again has the same places"
    assert "plane=again" in page.evaluate("location.hash")
    page.set_viewport_size({"width": 1280, "height": 720})
    assert page.evaluate("document.querySelector('header').scrollWidth") <= 1280, "both lists fit beside the rest"


COLOURS = """(canvas, places) => {
  const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const ratio = width / canvas.getBoundingClientRect().width;
  return places.map(([x, y]) => {
    const at = 4 * (Math.floor(y * ratio) * width + Math.floor(x * ratio));
    return Array.from(data.subarray(at, at + 4));
  });
}"""
"""The colours of a canvas at places in CSS pixels."""
EDGE = 26
"""CSS pixels beside a matrix, for numbers."""


def test_a_map_lies_over_the_view_and_can_be_taken_away(page, content: Explored) -> None:
    page.fill("#find", "saliency map")
    page.locator("#matches button").first.click()
    view = page.locator("#life-views .card.now")
    view.wait_for()
    opened_tick = page.evaluate("explorer.open")
    assert opened_tick["mapped"] == [True]
    assert view.locator(".failed").inner_text() == "map, not to be trusted"
    meaning = view.locator(".failed").get_attribute("title")
    assert meaning.startswith("value: red raises it") and "nearest first" in meaning
    assert "own row " in meaning and "task" not in meaning, "which the maps say nothing of"
    size = view.locator("canvas").bounding_box()["width"] / 15
    tiles = [[(column + 0.15) * size, (row + 0.15) * size] for row in range(15) for column in range(15)]  # beside marks
    over = np.array(view.locator("canvas").evaluate(COLOURS, tiles), float)
    page.select_option("#overlay", label="none")
    until(page, "!document.querySelector('#life-views .card.now').innerText.includes('map')")
    plain = np.array(page.locator("#life-views .card.now canvas").evaluate(COLOURS, tiles), float)
    assert "map=none" in page.evaluate("location.hash")
    records = read_dump(content.run.dump, layers=[], columns=[])
    is_it = records.tick == opened_tick["tick"]
    is_it &= (records.agent_id == opened_tick["agent"]) & (records.episode == opened_tick["episode"])
    order = planted_maps()["tiles"][::-1, -1][is_it[:MAPPED].argmax()]
    strong = np.abs(order) > 0.4 * np.abs(order).max()
    redder = (over - plain)[:, 0] - (over - plain)[:, 2]  # red gained, less blue gained
    assert (np.sign(redder[strong]) == np.sign(order[strong])).mean() > 0.9
    page.select_option("#overlay", label="mapped")
    until(page, "document.querySelector('#life-views .card.now').innerText.includes('map')")


def test_panes_are_put_away_and_keys_go_through_the_life(page) -> None:
    page.fill("#find", "saliency map")
    page.locator("#matches button").first.click()
    page.locator("#life-views .card.now").wait_for()
    first = page.evaluate("explorer.open.tick")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("explorer.open.tick") == first + 1
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("explorer.open.tick") == first
    wide = page.locator("#life").bounding_box()["width"]
    page.locator("#panes summary").click()
    for name in ("embedding", "pointer and selection", "clusters"):
        page.locator("#pane-list label", has_text=name).click()
    until(page, f"document.getElementById('life').clientWidth > {wide}")
    assert not page.locator("#map").is_visible() and not page.locator("aside").is_visible()
    kept = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('hide')")
    page.evaluate("location.hash = location.hash.replace(/&hide=[^&]*/, '')")
    page.locator("#map").wait_for()
    assert kept == "map,looked-at,clusters" and page.locator("#cluster-list").is_visible()
    page.locator("#panes summary").click()
    page.locator("h1").click()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.locator("h1").click()
    page.keyboard.press("Escape")
    assert page.evaluate("explorer.open") is None


def test_the_world_shows_everyone_of_the_page_and_opens_the_life_that_is_clicked(page, content: Explored) -> None:
    records, first = content.seen.records, int(content.place[0])
    agent, episode, tick = (int(column[first]) for column in (records.agent_id, records.episode, records.tick))
    page.evaluate(f"location.hash = '#agent={agent}&episode={episode}&tick={tick}'")
    page.locator("#world canvas").wait_for()
    together = np.flatnonzero((records.tick == tick) & (records.episode == episode))
    until(page, f"document.querySelector('#world figcaption').innerText.startsWith('{len(together)} agent')")
    tiles = records.tile[records.episode == episode].reshape(-1, 3)
    known = tiles[tiles[:, 2] > 0, :2]  # rows and columns of all tiles seen but the void
    row, col = (int(column[next(at for at in together if at != first)]) for column in positions(records))
    box = page.locator("#world canvas").bounding_box()
    scale = box["width"] / (1 + np.ptp(known, axis=0).max())
    down, right = (np.array([row, col]) - known.min(axis=0) + 0.5) * scale
    page.locator("#world canvas").click(position={"x": right, "y": down})
    shown = page.evaluate("explorer.open")
    assert (shown["tick"], shown["row"], shown["col"]) == (tick, row, col)


EDITS_IN_WORDS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "clear the memory": ({"edit": "clear", "from_tick": 0, "until_tick": None}, {}, ()),
    "erase tick, from tick 5": ({"edit": "erase", "variable": "tick", "from_tick": 5}, {}, ()),
    "swap ic_3, ic_5, in ticks 2 to 5": (
        {"edit": "swap", "origin": "ic_3", "target": "ic_5", "from_tick": 2, "until_tick": 6}, {}, ("ic_3", "ic_5"),
    ),
    "collapse b, in ticks 0 to 8": (
        {"edit": "collapse", "direction": "a,b", "until_tick": 9}, {"direction": "b"}, ("b",)
    ),
    "interchange a and clear the memory, donors by self_food": (
        {"edit": "interchange", "direction": "a", "donor": "self_food", "further": [{"edit": "clear"}]}, {}, ("a",),
    ),
    "clear the memory and interchange a, donors by self_goal": (
        {"edit": "clear", "further": [{"edit": "interchange", "direction": "a", "donor": "self_goal"}]}, {}, ("a",),
    ),
    "steer a, dose -1.5": ({"edit": "steer", "direction": "a"}, {"dose": -1.5}, ("a",)),
}  # fmt: skip


def test_an_edit_is_said_in_words(tmp_path: Path) -> None:
    for words, (arguments, arm, directions) in EDITS_IN_WORDS.items():
        with RunFolder(tmp_path / words, {"input": {"policy": "1" * 64}, "arguments": arguments}) as run:
            run.save_json("effects.json", {"episodes": 2, "arms": [ARM | arm], "effects": [], "at_once": []})
        (edit,) = read_edits(open_finished(tmp_path / words), "1" * 64)
        assert (edit.edit, edit.directions, edit.tested) == (words, directions, 0)
