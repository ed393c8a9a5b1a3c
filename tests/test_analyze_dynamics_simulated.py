"""analyze_dynamics.py on simulated lives as users run it: the world's state, and behaviours of agent and world."""

import json
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import read_directions
from activation_store.reader import read_dump
from analysis.explorer.behaviours import fit_rule
from analysis.runs.dynamics_run import read_dynamics
from common.array_files import arrays_of
from tests.browser import opened
from tests.command import assert_refused, rows_of, run_here, run_well
from tests.recorded_features import POLICY, RecordedFeatures
from tests.shared import shared_folder
from tests.trained_world_model import trained_world_model

pytestmark = pytest.mark.slow

QUICK = (
    "--components", 6, "--clusters", 20, "--behaviours", 3, "--subsample", 2, "--lives", 24, "--lags", 2,
    "--states", 40, "--spectrum-states", 10, "--tsne-records", 200, "--reach", 4, "--followed-states", 20,
    "--permutations", 99, "--bootstraps", 2, "--features", "self_food,self_health",
)  # fmt: skip
UNITS = 16
LEFT_OUT = "is no state of the policy's memory, so what needs the policy's own update is left out"


@pytest.fixture(scope="module")
def simulated(features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = trained_world_model(tmp_path_factory, features_dump)

    def simulate(folder: Path) -> None:
        run_well("simulate.py", model, "-n", 50, "--ticks", 20, "--dump", features_dump.dump, "-o", folder)

    return shared_folder(tmp_path_factory, "simulated_lives", simulate) / f"{POLICY}-simulated"


@pytest.fixture(scope="module")
def world(simulated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("world")
    # There is no policy: the world's state is analysed without one.
    done = run_well(
        "analyze_dynamics.py", simulated, "--layer", "world_hidden", "--policies-dir", output, *QUICK, "--output-dir",
        output,
    )  # fmt: skip
    assert LEFT_OUT in done.stdout
    return output / f"{POLICY}-simulated-world_hidden-dynamics"


@pytest.fixture(scope="module")
def combined(simulated: Path, features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("combined")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.dynamics.fixed_points.ITERATIONS", 30)
        done = run_here(
            "analyze_dynamics.py", simulated, "--behaviours-of", "lstm_hidden,world_hidden", "--policies-dir",
            features_dump.policies, *QUICK, "--output-dir", output,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output / f"{POLICY}-simulated-lstm_cell-dynamics-lstm_hidden+world_hidden"


def test_the_worlds_state_is_analysed_without_the_policys_update(world: Path, simulated: Path) -> None:
    summary = json.loads((world / "summary.json").read_text())
    assert summary["layer"] == "world_hidden" and len(summary["components"]) == 18
    assert len(summary["clusters"]["sizes"]) == 20 and len(summary["behaviours"]["sizes"]) == 3
    assert summary["behaviours"]["layers"] == ["world_hidden"] and summary["behaviours"]["pairs"] == []
    assert summary["sign_agreement"] is summary["half_lives"] is summary["fixed_points"] is None
    report = (world / "report.html").read_text()
    assert LEFT_OUT.replace("'", "&#39;") in report and "<b>correlations.png.</b>" in report
    assert not {"half_lives.png", "spectra.png", "sign_agreement.tsv"} & {one.name for one in world.iterdir()}
    directions = read_directions(world / "directions.safetensors")
    records = read_dump(simulated, layers=["world_hidden"])
    read = directions.named("ic_1").read_out(records.activations["world_hidden"])
    assert directions.named("ic_1").layer == "world_hidden" and 0.5 < read.std() < 2
    motion = arrays_of((world / "motion.npz").read_bytes(), ("r", "jacobians", "scores"))
    assert motion["r"].shape == (3, 3, 6, 6) and motion["jacobians"].shape == (0, 3, 6, 6)
    np.testing.assert_allclose(np.diagonal(motion["r"][:, 0], axis1=1, axis2=2), 1, atol=1e-6)


def test_behaviours_of_agent_and_world_stand_beside_those_of_each(combined: Path) -> None:
    summary = json.loads((combined / "summary.json").read_text())
    assert summary["layer"] == "lstm_cell" and summary["behaviours"]["layers"] == ["lstm_hidden", "world_hidden"]
    assert len(summary["sign_agreement"]) == 3 * 2 and summary["half_lives"]
    together = "lstm_hidden+world_hidden"
    rows = rows_of(combined / "behaviour_agreement.tsv")
    assert [(row["one"], row["other"]) for row in rows] == [
        (together, "lstm_hidden"), (together, "world_hidden"), ("lstm_hidden", "world_hidden"),
    ]  # fmt: skip
    assert all(0 <= float(row["information"]) <= 1 and float(row["rand"]) <= 1 for row in rows)
    text = (combined / "summary.txt").read_text()
    assert "Behaviours of lstm_hidden and world_hidden together: 3 clusters" in text
    assert f"  {together} and world_hidden: information {float(rows[1]['information']):.2f}" in text


def test_the_panel_tells_behaviours_from_all_their_layers(
    combined: Path, features_dump: RecordedFeatures, browser
) -> None:
    dynamics = read_dynamics(combined, None)
    assert dynamics.behaviour_layers == ("lstm_hidden", "world_hidden")
    assert dynamics.units == {"lstm_cell": UNITS, "lstm_hidden": UNITS, "world_hidden": UNITS}
    rule = fit_rule(dynamics, lambda share: None)
    assert len(rule.mean) == 4 * 2 * UNITS
    run_well("panel.py", combined)
    shown = shown_by(browser, combined / "panel.html")
    assert ", lstm_hidden and world_hidden: " in shown["text"]
    assert shown["behaviours"] <= {-1, 0, 1, 2} and len(shown["behaviours"]) > 1
    assert not np.isnan(shown["effects"]).any()


def test_the_panel_shows_the_world_without_effects(world: Path, browser) -> None:
    run_well("panel.py", world)
    shown = shown_by(browser, world / "panel.html")
    assert "world_hidden is no state of the policy" in shown["text"]
    assert len(shown["effects"]) == 6 * 6 and np.isnan(shown["effects"]).all()


def shown_by(browser, file: Path) -> dict:
    """Return a panel's text, the behaviours of its points, and the effects of a behaviour."""
    with opened(browser, file, "window.explorer !== undefined") as page:
        behaviours = page.evaluate("Array.from({ length: explorer.count }, (_, i) => explorer.point(i).label)")
        effects = page.evaluate("explorer.motion.entries.map(({ effect }) => effect)")
        text = " ".join(page.text_content("body").split())
    return {"text": text, "behaviours": set(behaviours), "effects": np.array(effects)}


def test_bad_input_is_refused_in_one_line(simulated: Path, features_dump: RecordedFeatures, tmp_path: Path) -> None:
    def refused(*arguments: object, parts: tuple[str, ...]) -> None:
        done = run_here("analyze_dynamics.py", simulated, *arguments, "--output-dir", tmp_path / "results")
        assert_refused(done, *parts)

    refused("--layer", "bottleneck", parts=("--layer is bottleneck, which is the same in all ticks of a life",))
    refused("--behaviours-of", "lstm_cell,bottleneck", parts=("--behaviours-of is bottleneck",))
    refused("--layer", "world_hidden", "--interventions", "x", parts=("--interventions does nothing with --layer",))
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").glob("[!.]*"))
