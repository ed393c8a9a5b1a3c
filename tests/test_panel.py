"""panel.py as users run it: its page in a real browser, compared with the runs and dumps that it was made from."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from activation_store.columns import unpack_legal
from activation_store.directions import read_directions
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from agent_zoo.checkpoint import load_checkpoint, save_checkpoint
from analysis.features.observed import Observed
from analysis.life.action_words import action_words
from common.array_files import arrays_of
from tests.browser import opened, said_of_damage, scripts_that_ran, settle, until
from tests.command import assert_refused, run_here, run_well
from tests.planted_run import rewrite
from tests.recorded_features import POLICY, RecordedFeatures
from tests.shared import shared_folder
from tests.test_analyze_dynamics import QUICK

pytestmark = pytest.mark.slow

SALIENCY = ("--samples", 3, "--ticks", 9, "--lags", 2, "--check-states", 8)
AXIS = 18
"""CSS pixels below the rows of components."""
EFFECT = 5.0
WHOLE = "document.body.dataset.whole !== undefined"
"""Of one unit of ic_1 on ic_3 one tick later, in all behaviours: planted, and far above all others."""


@dataclass(frozen=True)
class Made:
    """Everything that the panel can show of one policy."""

    dump: Path
    simulated: Path
    dynamics: Path
    saliency: Path
    circuit: Path
    policies: Path


@pytest.fixture(scope="module")
def made(features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Made:
    policies = ("--policies-dir", features_dump.policies)

    def make(folder: Path) -> None:
        dump = folder / "activation_data" / POLICY
        shutil.copytree(features_dump.dump, dump)
        results = ("--output-dir", folder / "analysis_results")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("analysis.dynamics.fixed_points.ITERATIONS", 30)
            done = run_here("analyze_dynamics.py", dump, *policies, *QUICK, *results)
        assert done.returncode == 0, done.stderr
        plant(folder / "analysis_results" / f"{POLICY}-lstm_cell-dynamics")
        run_well("saliency.py", dump, *policies, *SALIENCY, *results)
        run_well(
            "analyze_dynamics.py", dump, *policies, "--circuit", "ic_2", "--reach", 6, "--lives", 20, *results,
            "--directions", folder / "analysis_results" / f"{POLICY}-lstm_cell-dynamics" / "directions.safetensors",
        )  # fmt: skip
        run_well(
            "train_world_model.py", dump, *policies, "--records", 600, "--horizon", 4, "--batch", 8, "--hidden", 16,
            "--no-track", "--output-dir", folder / "world_models",
        )  # fmt: skip
        run_well(
            "simulate.py", folder / "world_models" / POLICY, "-n", 40, "--ticks", 12, "--dump", dump, "-o", dump.parent
        )

    folder = shared_folder(tmp_path_factory, "panel", make)
    dump, results = folder / "activation_data" / POLICY, folder / "analysis_results"
    return Made(
        dump, dump.with_name(f"{POLICY}-simulated"), results / f"{POLICY}-lstm_cell-dynamics",
        results / f"{POLICY}-saliency-value-gradient", results / f"{POLICY}-circuit-ic_2", features_dump.policies,
    )  # fmt: skip


def plant(run: Path) -> None:
    """Let ic_1 move ic_3 strongly in a finished run."""
    names = ("r", "q", "jacobian_records", "jacobians", "behaviour", "behaviour_mean", "behaviour_spread")
    arrays = arrays_of((run / "motion.npz").read_bytes(), names)
    arrays["jacobians"][:, 1, 2, 0] = EFFECT
    np.savez(run / "changed.npz", allow_pickle=False, **arrays)
    rewrite(run, "motion.npz", (run / "changed.npz").read_bytes())
    (run / "changed.npz").unlink()


@pytest.fixture(scope="module")
def page_file(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("panel") / "panel.html"
    done = run_well("panel.py", made.dynamics, "-n", 60, "-o", path)
    assert f"{path}: " in done.stdout and " MB" in done.stdout
    assert "with the simulated lives in" in done.stdout and made.saliency.name in done.stdout
    assert f"with the circuits in {made.circuit.name}" in done.stdout
    return path


@pytest.fixture
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, WHOLE, height=720) as page:
        yield page


def rollouts(page) -> list[dict[str, Any]]:
    return page.evaluate("Array.from({ length: panel.count }, (_, i) => panel.of(i))")


def rows_of(records: Records) -> dict[tuple[int, int, int], int]:
    keys = zip(records.episode.tolist(), records.agent_id.tolist(), records.tick.tolist(), strict=True)
    return {key: row for row, key in enumerate(keys)}


def of_dump(found: list[dict[str, Any]], records: Records, simulated: bool) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each tick of the page, and its row in the dump."""
    row = rows_of(records)
    for item in found:
        if item["simulated"] == simulated:
            for tick in item["ticks"]:
                yield tick, row[item["episode"], item["agent"], tick["tick"]]


@pytest.mark.parametrize("simulated", [False, True])
def test_the_page_holds_what_the_dumps_hold(page, made: Made, simulated: bool) -> None:
    dump = made.simulated if simulated else made.dump
    records, metadata = read_dump(dump), read_metadata(dump)
    seen = Observed(records, metadata)
    words = action_words(seen)
    ic = [read_directions(made.dynamics / "directions.safetensors").named(f"ic_{number}") for number in range(1, 5)]
    scores = np.stack([item.read_out(records.activations["lstm_cell"]) for item in ic], axis=1)
    move = [head.name for head in metadata.action_heads].index("Move.Direction")
    ends = np.cumsum([head.size for head in metadata.action_heads])
    legal = unpack_legal(records.column("legal"), int(ends[-1]))[:, ends[move] - 5 : ends[move]]
    count = 0
    for tick, row in of_dump(rollouts(page), records, simulated):
        count += 1
        assert tick["materials"] == records.tile[row, :, 2].tolist() and tick["action"] == words[row]
        assert [tick[name] for name in ("health", "food", "water")] == [
            seen.own(name)[row] for name in ("health", "food", "water")
        ]
        assert tick["value"] == pytest.approx(float(records.value[row]), rel=1e-3, abs=1e-6)
        assert tick["components"] == pytest.approx(scores[row].tolist(), abs=0.011)
        result = np.array(tick["probabilities"]["Move.Direction"])
        assert result.sum() == pytest.approx(1, abs=0.03) and not result[~legal[row]].any()
        chosen = float(np.exp(records.log_probability[row, move]))
        if not simulated:  # a simulated tick's options are legal in degrees, and in its dump legal or not
            assert result[records.action[row, move]] == pytest.approx(chosen, abs=0.006)
        assert len(tick["others"]) <= records.entity.counts[row] - 1
    assert count > 100


def test_rollouts_are_stretches_of_lives_real_and_simulated_and_their_list_can_be_narrowed(page) -> None:
    result = rollouts(page)
    assert 0 < sum(item["simulated"] for item in result) < len(result) <= 60
    for item in result:
        ticks = [tick["tick"] for tick in item["ticks"]]
        assert ticks == list(range(ticks[0], ticks[0] + len(ticks))) and len(ticks) <= 32
    page.select_option("#from", "simulated")
    shown = page.evaluate("panel.shown()")
    assert shown == [number for number, item in enumerate(result) if item["simulated"]]
    page.select_option("#from", "all")
    page.locator("#behaviours button").nth(1).click()
    shown = page.evaluate("panel.shown()")
    assert shown == [number for number, item in enumerate(result) if item["main"] == 1]
    assert f"{len(shown)}" in page.text_content("#rollout-number")


def test_behaviours_are_those_of_the_run_where_it_has_them(page, made: Made) -> None:
    labels = arrays_of((made.dynamics / "behaviour_labels.npz").read_bytes(), ("label", "episode", "agent_id", "tick"))
    keys = zip(labels["episode"].tolist(), labels["agent_id"].tolist(), labels["tick"].tolist(), strict=True)
    label = dict(zip(keys, labels["label"].tolist(), strict=True))
    own = 0
    for rollout in rollouts(page):
        known = [tick["behaviour"] for tick in rollout["ticks"] if tick["behaviour"] >= 0]
        assert rollout["main"] == (max(sorted(set(known)), key=known.count) if known else -1)
        for tick in rollout["ticks"]:
            assert tick["own"] == (
                not rollout["simulated"] and (rollout["episode"], rollout["agent"], tick["tick"]) in label
            )
            if tick["own"]:
                own += 1
                assert tick["behaviour"] == label[rollout["episode"], rollout["agent"], tick["tick"]]
    assert own > 100


def test_maps_lie_over_the_views_that_they_are_of(page, made: Made) -> None:
    names = ("tiles", "sample", "episode", "agent_id", "tick")
    maps = arrays_of((made.saliency / "maps.npz").read_bytes(), names)
    keys = zip(maps["episode"].tolist(), maps["agent_id"].tolist(), maps["tick"].tolist(), strict=True)
    row = {key: number for number, key in enumerate(keys)}
    seen = 0
    for rollout in rollouts(page):
        for tick in rollout["ticks"]:
            at = row.get((rollout["episode"], rollout["agent"], tick["tick"])) if not rollout["simulated"] else None
            for later, result in enumerate(tick["maps"][0]):
                target = None if at is None else at + later
                if target is None or target >= len(maps["sample"]) or maps["sample"][target] != maps["sample"][at]:
                    assert result is None
                    continue
                seen += 1
                expected = maps["tiles"][target, 2 - later]
                np.testing.assert_allclose(result["tiles"], expected, atol=result["most"] / 200)
    assert seen == 3 * (9 + 8 + 7)
    page.select_option("#from", "mapped")
    assert page.evaluate("panel.shown().length") == 3


def test_matrices_are_those_of_the_run(page, made: Made) -> None:
    names = ("r", "jacobians", "jacobian_records", "behaviour")
    motion = arrays_of((made.dynamics / "motion.npz").read_bytes(), names)
    label = motion["behaviour"][motion["jacobian_records"]]
    for behaviour in range(3):
        for lag in (0, 3):
            shown = page.evaluate(f"panel.matrices({behaviour}, {lag})")
            r = np.array(shown["r"], float)
            np.testing.assert_allclose(r, motion["r"][behaviour, lag], atol=0.0051)
            own = motion["jacobians"][label == behaviour, lag]
            if len(own):
                np.testing.assert_allclose(np.array(shown["jacobian"], float), own.mean(axis=0), rtol=1e-3, atol=1e-6)


def row_of(page, component: int) -> tuple[float, float]:
    """A place in the window on a component's row over time."""
    box = page.locator("#lines").bounding_box()
    return box["x"] + 200, box["y"] + box["height"] - AXIS - (4 - component - 0.5) * page.evaluate("panel.rowHeight")


def test_a_component_lists_what_moves_it_and_what_it_moves(page) -> None:
    page.mouse.move(*row_of(page, 0))
    assert page.text_content("#component-name") == "ic_1"
    assert page.text_content("#moves li:first-child").startswith(f"ic_3+{EFFECT:.2f}")
    page.mouse.move(*row_of(page, 2))
    assert page.text_content("#component-name") == "ic_3"
    assert page.text_content("#moved-by li:first-child").startswith(f"ic_1+{EFFECT:.2f}")
    box = page.locator("#jacobians").bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + 0.5 * (box["height"] - 26))  # column of ic_1
    output = page.text_content("#matrix-text")
    assert re.match(r"ic_1 → ic_[1-4]: r .*, effect ", output)


def test_a_component_that_is_clicked_stays(page) -> None:
    page.locator("#moves li").first.click()
    kept = page.text_content("#component-name")
    assert kept.endswith("(kept)")
    page.mouse.move(*row_of(page, 0))
    page.mouse.move(*row_of(page, 3))
    assert page.text_content("#component-name") == kept
    page.click("#unpin")
    page.mouse.move(*row_of(page, 3))
    assert page.text_content("#component-name") == "ic_4"


def test_a_circuit_is_drawn_from_its_run_and_says_what_each_box_holds(page, made: Made) -> None:
    graph = json.loads((made.circuit / "graph.json").read_text())
    boxes = [box for column in graph["boxes"] for box in column]
    assert len(graph["lines"]) > 5 and page.locator("#circuit-graph path").count() == len(graph["lines"])
    shown = page.locator("#circuit-graph g").all()
    assert len(shown) == len(boxes)
    for drawn, box in zip(shown, boxes, strict=True):
        description = drawn.get_attribute("aria-label")
        assert description.startswith(f"{box['name']}: ")
        assert box["value"] is None or f"{abs(box['value']):.2f}" in description
    source = max(graph["boxes"][0], key=lambda box: abs(box["value"]))
    shown[graph["boxes"][0].index(source)].hover()
    own = [line for line in graph["lines"] if line["column"] == 0 and line["start"] == source["name"]]
    assert own and page.locator("#circuit-graph path:not(.pale)").count() == len(own)
    for line in own:
        assert f"{line['end']} {line['share']:.2f}" in page.text_content("#circuit-text")
    page.mouse.move(5, 5)
    assert page.locator("#circuit-graph .pale").count() == 0
    assert "lstm_cell after 6 ticks" in page.text_content("#circuit-text")


def test_keys_and_mouse_go_through_ticks_and_rollouts(page) -> None:
    first = page.evaluate("panel.rollout")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("panel.at") == 1 and "(2 of " in page.text_content("#clock")
    page.keyboard.press("End")
    last = page.evaluate("panel.at")
    assert last == len(rollouts(page)[first]["ticks"]) - 1
    page.keyboard.press("ArrowDown")
    assert page.evaluate("[panel.rollout, panel.at]") == [(first + 1) % 60, 0]
    page.keyboard.press("ArrowUp")
    assert page.evaluate("panel.rollout") == first
    page.keyboard.press("Space")
    until(page, "panel.at >= 2")
    assert page.evaluate("panel.playing")
    bars = "getComputedStyle(document.getElementById('play'), '::before').borderLeftWidth"
    assert page.text_content("#play") == "" and page.evaluate(bars) == "3px"  # drawn: few fonts have a pause sign
    page.keyboard.press("Space")
    assert not page.evaluate("panel.playing")
    there = page.evaluate("panel.placeOf(7)")
    page.mouse.click(there["x"], there["y"])
    settle(page)
    chosen = page.evaluate("panel.rollout")
    place = page.evaluate(f"panel.placeOf({chosen})")
    assert abs(place["x"] - there["x"]) + abs(place["y"] - there["y"]) < 12


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_everything_is_in_view(browser, page_file: Path, width: int, height: int) -> None:
    with opened(browser, page_file, WHOLE, width, height) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in (
            "scatter", "view", "lines", "correlations", "jacobians", "component", "play", "target", "behaviours",
        ):  # fmt: skip
            box = page.locator(f"#{name}").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= height, name


def test_without_saliency_and_simulation_it_says_how_to_get_them(browser, made: Made, tmp_path: Path) -> None:
    run, dump = tmp_path / "results" / "run", tmp_path / "data" / POLICY
    shutil.copytree(made.dynamics, run)
    shutil.copytree(made.dump, dump)
    arguments = json.loads((run / "run.json").read_text())
    arguments["arguments"]["policies_dir"] = str(tmp_path / "nowhere")
    rewrite(run, "run.json", json.dumps(arguments).encode())
    done = run_well("panel.py", run, "--dump", dump, "-n", 12)
    assert "without the probabilities of actions: " in done.stdout
    with opened(browser, run / "panel.html", WHOLE) as page:
        text = page.text_content("body")
        assert "python saliency.py" in text and "python simulate.py" in text and "--circuit ic_1" in text
        assert page.locator("#target").count() == 0
        assert page.evaluate("Object.keys(panel.of(0).ticks[0].probabilities).length") == 0
        page.keyboard.press("ArrowRight")
        assert page.evaluate("panel.at") == 1


def test_the_probabilities_need_the_policy_that_was_recorded(made: Made, tmp_path: Path) -> None:
    policy, info = load_checkpoint(made.policies / f"{POLICY}.safetensors")
    policy.policy.critic.weight.data += 1
    save_checkpoint(tmp_path / "other.safetensors", policy, info)
    done = run_here("panel.py", made.dynamics, "--policy", tmp_path / "other.safetensors", "-o", tmp_path / "x.html")
    assert_refused(done, "is not the checkpoint", "their hashes differ")
    assert not (tmp_path / "x.html").exists()


def test_bad_input_is_refused_in_one_line(made: Made, tmp_path: Path) -> None:
    def refused(*arguments: object, parts: tuple[str, ...]) -> None:
        assert_refused(run_here("panel.py", *arguments, "-o", tmp_path / "page.html"), *parts)
        assert not (tmp_path / "page.html").exists()

    refused(tmp_path / "nowhere", parts=("does not exist: give a folder that analyze_dynamics.py wrote",))
    refused(made.saliency, parts=("holds no motion.npz: give a run of analyze_dynamics.py",))
    refused(made.dynamics, "-n", 0, parts=("--rollouts is 0: must be 1 or more",))
    refused(made.dynamics, "--saliency", made.dynamics, parts=("holds no maps.npz: give a run of saliency.py",))
    refused(made.dynamics, "--circuits", made.dynamics, parts=("holds no graph.json",))
    refused(made.dynamics, "--simulated", made.dump, parts=("was recorded in the game", "simulate.py"))
    refused(made.dynamics, "--dump", made.simulated, parts=("was made from another dump",))
    refused(made.dynamics, "--dump", tmp_path, parts=("is not an activation dump",))
    assert_refused(run_here("panel.py", made.dynamics, "-o", tmp_path / "page.txt"), "does not end in .html")
    other = tmp_path / "other"
    shutil.copytree(made.dynamics, other)
    content = (other / "motion.npz").read_bytes()
    (other / "motion.npz").write_bytes(content[:-1] + b"x")
    refused(other, parts=("motion.npz does not match its SHA-256",))
    rewrite(other, "motion.npz", content[:1000])
    refused(other, parts=("motion.npz is not as analyze_dynamics.py writes it",))


def test_foreign_scripts_do_not_run_and_damage_is_told(browser, page_file: Path, tmp_path: Path) -> None:
    assert scripts_that_ran(browser, page_file, tmp_path) == []
    for part in ("panel-content", "panel-ticks-0"):
        assert "build it again with panel.py" in said_of_damage(browser, page_file, part, tmp_path)
