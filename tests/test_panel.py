"""panel.py as users run it: the explorer's page on the panel's layout, compared with what it was made from."""

import json
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
from activation_store.schema import STARTS
from agent_zoo.checkpoint import load_checkpoint, save_checkpoint
from analysis.runs.propagated_labels import read_selection
from common.array_files import arrays_of
from tests.browser import opened, until
from tests.command import assert_refused, run_here, run_well
from tests.planted_run import rewrite
from tests.recorded_features import POLICY, RecordedFeatures
from tests.shared import shared_folder
from tests.test_analyze_dynamics import QUICK

pytestmark = pytest.mark.slow

SALIENCY = ("--samples", 3, "--ticks", 9, "--lags", 2, "--check-states", 8)
READY = "window.explorer !== undefined"
TICKS = """() => {
  const points = new Map();
  for (let number = 0; number < explorer.count; number++) {
    const { episode, agent } = explorer.point(number);
    points.set(`${episode} ${agent}`, number);
  }
  return [...points.values()].flatMap(explorer.life)
    .map(({ episode, agent, tick, own, label }) => ({ episode, agent, tick, own, label }));
}"""
"""Each tick of each life of which a point is drawn."""
EFFECT = 5.0
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
    done = run_well("panel.py", made.dynamics, "-o", path)
    assert f"{path}: " in done.stdout and " MB" in done.stdout
    assert "with the simulated lives in" in done.stdout and made.saliency.name in done.stdout
    assert f"with the circuits in {made.circuit.name}" in done.stdout
    return path


@pytest.fixture(scope="module")
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, READY, height=720) as page:
        yield page


def go_to(page, agent: int, episode: int, tick: int) -> dict[str, Any]:
    """Open a life at a tick by the address; return what the page shows there."""
    page.evaluate(f"location.hash = '#agent={agent}&episode={episode}&tick={tick}'")
    until(page, f"explorer.open?.tick === {tick} && explorer.open.agent === {agent}")
    return page.evaluate("explorer.open")


def test_it_opens_on_the_panels_layout_at_a_saliency_map_with_everything_in_view(browser, page_file: Path) -> None:
    for width, height in ((1280, 720), (1920, 1080)):
        with opened(browser, page_file, READY, width, height) as page:
            assert page.evaluate("explorer.open.mapped") == [True]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert not page.locator("#world").is_visible() and not page.locator("#looked-at").is_visible()
            left, middle, right = (page.locator(f"#{name}").bounding_box() for name in ("map", "life", "motion"))
            assert left["x"] + left["width"] <= middle["x"] and middle["x"] + middle["width"] <= right["x"] + 1
            for name in ("plot", "clusters", "life-views", "timeline", "correlations", "jacobians", "play", "overlay"):
                box = page.locator(f"#{name}").bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] < height - 40, name


def test_its_layout_can_be_left_and_is_in_the_address(browser, page_file: Path) -> None:
    with opened(browser, page_file, READY) as page:
        assert "layout" not in page.evaluate("location.hash") and "hide" not in page.evaluate("location.hash")
        page.locator("#panes summary").click()
        page.select_option("#layout", "explorer")
        page.locator("#world").wait_for()
        assert page.locator("#looked-at").is_visible() and "layout=explorer" in page.evaluate("location.hash")
        life, motion = (page.locator(f"#{name}").bounding_box() for name in ("life", "motion"))
        assert motion["y"] + motion["height"] <= life["y"] + 1, "over the life"
        page.evaluate("location.hash = '#layout=panel'")
        until(page, "!document.getElementById('world').checkVisibility()")
        page.locator("#clusters button", has_text="Select").first.click()
        assert page.locator("#selection").is_visible(), "what is selected is shown"


def test_behaviours_are_the_runs_own_where_it_has_them_and_by_vote_elsewhere(page, made: Made) -> None:
    labels = arrays_of((made.dynamics / "behaviour_labels.npz").read_bytes(), ("label", "episode", "agent_id", "tick"))
    keys = zip(labels["episode"].tolist(), labels["agent_id"].tolist(), labels["tick"].tolist(), strict=True)
    label = dict(zip(keys, labels["label"].tolist(), strict=True))
    own = voted = 0
    for tick in page.evaluate(TICKS):
        key = tick["episode"], tick["agent"], tick["tick"]
        assert tick["own"] == (key in label)
        assert tick["label"] == label[key] if tick["own"] else (tick["label"] < 0) == (tick["tick"] < 6)
        own, voted = own + tick["own"], voted + (not tick["own"])
    assert own > 100 and voted > 100
    first = page.evaluate("explorer.life(0)")[0]
    go_to(page, first["agent"], first["episode"], first["tick"])
    shown = page.inner_text("#life-views")
    assert "no behaviour yet" in shown and "yet (propagated)" not in shown
    assert page.locator("#colour-by option").first.inner_text() == "behaviour"
    assert page.locator("#cluster-list b").first.inner_text() == "behaviour 0"


def test_components_and_probabilities_are_those_of_the_dump(page, made: Made) -> None:
    records, metadata = read_dump(made.dump), read_metadata(made.dump)
    ic = [read_directions(made.dynamics / "directions.safetensors").named(f"ic_{number}") for number in range(1, 5)]
    scores = np.stack([item.read_out(records.activations["lstm_cell"]) for item in ic], axis=1)
    move = [head.name for head in metadata.action_heads].index("Move.Direction")
    ends = np.cumsum([head.size for head in metadata.action_heads])
    legal = unpack_legal(records.column("legal"), int(ends[-1]))[:, ends[move] - 5 : ends[move]]
    step = np.ptp(scores, axis=0) / 255
    for row in range(0, len(records), len(records) // 12):
        shown = go_to(page, records.agent_id[row], records.episode[row], records.tick[row])
        assert (np.abs(np.array(shown["tracks"]) - scores[row]) <= 2 * step).all()
        odds = np.array(shown["odds"]["Move.Direction"])
        assert odds.sum() == pytest.approx(1, abs=0.03) and not odds[~legal[row]].any()
        chosen = np.exp(records.log_probability[row])
        assert odds[records.action[row, move]] == pytest.approx(chosen[move], abs=0.0051)
        assert shown["chosen"] == pytest.approx(chosen.tolist(), abs=0.0051)
    assert page.locator("#life-views .odds").inner_text().startswith("move\nnorth\n")


def test_simulated_lives_stand_beside_and_selected_points_are_records_for_other_scripts(
    page, made: Made, tmp_path: Path
) -> None:
    (described,) = read_metadata(made.simulated).episodes
    episode, agent, tick = described[STARTS][0]
    go_to(page, agent, episode, tick)
    assert page.evaluate("explorer.simulated.own") is False
    assert page.locator("#simulated-views .card").count() == 1
    assert "were simulated" in page.inner_text("#simulated-views")
    facts = page.evaluate("JSON.parse(document.getElementById('explorer-facts').textContent)")
    points = [page.evaluate(f"explorer.point({number})") for number in (3, 40)]
    content = {name: facts[name] for name in ("run", "runKey", "folder")}
    rows = {"kind": facts["selectionKind"], "records": [point["row_of_run"] for point in points]}
    (tmp_path / "selection.json").write_text(json.dumps(content | rows))
    places = read_selection(tmp_path / "selection.json").places
    for name, column in (("agent", "agent_id"), ("episode", "episode"), ("tick", "tick")):
        assert places[column].tolist() == [point[name] for point in points]


def test_a_row_of_the_time_line_lists_what_moves_the_component(page) -> None:
    place = """(row) => {
      const plot = document.getElementById("timeline"), { left, top } = plot.getBoundingClientRect();
      const heat = plot._fullData.find(({ type }) => type === "heatmap");
      const axis = plot._fullLayout[heat.yaxis.replace("y", "yaxis")];
      return [left + plot._fullLayout.xaxis._offset + 40, top + axis._offset + axis.l2p(row)];
    }"""
    for row, name in ((0, "ic_1"), (2, "ic_3")):
        x, y = page.evaluate(place, row)
        page.mouse.move(x + 6, y)
        page.mouse.move(x, y)
        until(page, f"document.getElementById('component-name').innerText === '{name}'")
    assert page.locator("#moved-by li").first.inner_text().split()[:2] == ["ic_1", f"+{EFFECT:.2f}"]


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


def test_the_explorer_takes_the_run_too_and_opens_on_its_own_layout(browser, made: Made, tmp_path: Path) -> None:
    run_well("explore.py", made.dynamics, made.circuit, "-o", tmp_path / "e.html")
    with opened(browser, tmp_path / "e.html", READY) as page:
        assert page.evaluate("document.body.dataset.layout") == "explorer" and page.evaluate("explorer.open") is None
        assert page.locator("#looked-at").is_visible() and page.locator("#circuit").count() == 1
        assert page.evaluate("explorer.motion.entries.length") == 4 * 4


def test_without_what_lies_beside_it_the_page_is_about_the_run_alone(browser, made: Made, tmp_path: Path) -> None:
    run, dump = tmp_path / "results" / "run", tmp_path / "data" / POLICY
    shutil.copytree(made.dynamics, run)
    shutil.copytree(made.dump, dump)
    arguments = json.loads((run / "run.json").read_text())
    arguments["arguments"]["policies_dir"] = str(tmp_path / "nowhere")
    rewrite(run, "run.json", json.dumps(arguments).encode())
    done = run_well("panel.py", run, "--dump", dump)
    assert "without the probabilities of actions: " in done.stdout
    with opened(browser, run / "panel.html", READY) as page:
        assert page.locator("#overlay, #circuit, #simulated").count() == 0
        shown = page.evaluate("explorer.open")
        assert shown["odds"] == {} and 0 < min(shown["chosen"]) <= 1
        page.keyboard.press("ArrowRight")
        assert page.evaluate("explorer.open.tick") == shown["tick"] + 1


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
    refused(made.dynamics, "--max-ticks", 0, parts=("--max-ticks is 0: must be 1 or more",))
    refused(made.dynamics, "--saliency", made.dynamics, parts=("holds no maps.npz: give a run of saliency.py",))
    refused(made.dynamics, "--circuits", made.dynamics, parts=("holds no graph.json",))
    refused(made.dynamics, "--simulated", made.dump, parts=("holds no simulated lives", "simulate.py"))
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
