"""analyze_dynamics.py as users run it, on a small real dump."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.directions import read_directions
from activation_store.reader import read_dump, read_metadata
from analysis.dynamics.tracks import Update, load_policy_of, read_tracks
from common.array_files import arrays_of
from common.files import sha256
from common.user_error import UserError
from tests.command import assert_refused, run_here, run_well
from tests.recorded_policy import NAME, RecordedPolicy, record_policy
from tests.shared import shared_folder

QUICK = (
    "--components", 4, "--clusters", 5, "--behaviours", 3, "--subsample", 2, "--lives", 24, "--lags", 3, "--states", 40,
    "--spectrum-states", 10, "--tsne-records", 200, "--reach", 4, "--followed-states", 20,
    "--permutations", 99, "--bootstraps", 2,
)  # fmt: skip
FIGURES = {
    "components_features.png", "tsne.png", "trajectories.png", "correlations_jacobians.png", "agreement.png",
    "spectra.png", "half_lives.png", "memory_length.png", "fixed_points.png",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def few_iterations():
    """tests/analysis/dynamics/test_perturbations.py has the search for fixed points at its full length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.dynamics.fixed_points.ITERATIONS", 30)
        yield


@pytest.fixture(scope="module")
def results(recorded: RecordedPolicy, tmp_path_factory) -> Path:
    def analyze(output: Path) -> None:
        done = run_well("analyze_dynamics.py", *recorded.arguments, *QUICK, "--output-dir", output)
        assert "Sign agreement of correlations with Jacobians" in done.stdout

    return shared_folder(tmp_path_factory, "dynamics", analyze) / f"{NAME}-lstm_cell-dynamics"


@pytest.mark.slow
def test_its_behaviours_can_be_attributed_to(recorded: RecordedPolicy, results: Path, tmp_path: Path) -> None:
    run_well(
        "saliency.py", *recorded.arguments, "--clusters", results, "--samples", 2, "--ticks", 8, "--lags", 0,
        "--check-states", 8, "--output-dir", tmp_path, "--of", "direction:ic_1", "--directions",
        results / "directions.safetensors",
    )  # fmt: skip
    (folder,) = tmp_path.glob("[!.]*")
    result = arrays(folder / "maps.npz", "agent_id", "episode", "tick")
    labels = arrays(results / "behaviour_labels.npz", "label", "agent_id", "episode", "tick")
    keys = zip(labels["agent_id"], labels["episode"], labels["tick"], strict=True)
    label = dict(zip(keys, labels["label"], strict=True))
    of_states = [label[key] for key in zip(result["agent_id"], result["episode"], result["tick"], strict=True)]
    text = (folder / "summary.txt").read_text()
    for number in range(3):
        if count := of_states.count(number):
            assert f"behaviour {number} ({count} states)" in text
    assert (folder / "groups.png").exists()


def arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    return arrays_of(path.read_bytes(), names)


def numbers_of(folder: Path) -> object:
    """The summary, with numbers to six digits: the last ones depend on where arrays lie in memory."""
    return json.loads((folder / "summary.json").read_text(), parse_float=lambda text: f"{float(text):.6g}")


def test_everything_is_there_and_whole(results: Path) -> None:
    done = json.loads((results / "DONE.json").read_text())["files"]
    named = {"report.html", "summary.txt", "summary.json", "directions.safetensors", "run.json", "memory_use.tsv"}
    assert set(done) >= FIGURES | named
    assert all(one["sha256"] == sha256(results / name) for name, one in done.items())
    assert not (results.parent / f".{results.name}.parts").exists()


def test_directions_read_the_stored_scores_out_of_the_dump(recorded: RecordedPolicy, results: Path) -> None:
    directions = read_directions(results / "directions.safetensors")
    names = {one.name for one in directions}
    expected = {f"{kind}_{number}" for kind in ("pc", "ic", "nmf") for number in range(1, 5)}
    assert names >= expected | {"cluster_0", "slow_1"}
    result = arrays(results / "states.npz", "ica_scores", "agent_id", "episode", "tick")
    records = read_dump(recorded.dump, layers=["lstm_cell"])
    place = {key: i for i, key in enumerate(zip(records.episode, records.agent_id, records.tick, strict=True))}
    rows = [place[key] for key in zip(result["episode"], result["agent_id"], result["tick"], strict=True)]
    for number in range(4):
        direction = directions.named(f"ic_{number + 1}")
        assert direction.source.checkpoint_sha256 == sha256(recorded.checkpoint)
        read = direction.read_out(records.activations["lstm_cell"][rows])
        np.testing.assert_allclose(read, result["ica_scores"][:, number], atol=1e-3)
        assert direction.spread == pytest.approx(1, abs=0.02) and abs(direction.mean) < 1e-3


def test_the_report_says_what_the_summary_says(results: Path) -> None:
    report, summary = (results / "report.html").read_text(), json.loads((results / "summary.json").read_text())
    assert all(f"<b>{name}.</b>" in report for name in FIGURES)
    assert f"{summary['explained']['ica']:.1%} of the variance" in report
    assert summary["memory_length"]["ticks"] == [1, 2, 3, 4] and len(summary["fixed_points"]) == 4
    for row in summary["components"]:
        assert 0 < row["gaussian"] <= row["gaussian_highest"] <= 1.0001
        assert row["stable"] == str(row["stability_q"] <= 0.05).lower()
    text = (results / "summary.txt").read_text()
    assert text.count("at best; stable: ") == 3 and text.count(", with those of a Gaussian ") == 2
    assert len(summary["components"]) == 12 and len(summary["sign_agreement"]) == 3 * 3
    assert "python analyze_dynamics.py" in report and "--lags 3" in report


@pytest.mark.slow
def test_the_same_run_gives_the_same_numbers_after_an_interruption(
    recorded: RecordedPolicy, results: Path, tmp_path: Path, monkeypatch
) -> None:
    arguments = (*recorded.arguments, *QUICK, "--output-dir", tmp_path)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):

        def stop(*_: object, **__: object) -> None:
            raise RuntimeError("stopped")

        patch.setattr("analysis.dynamics.stages.lagged_jacobians", stop)
        run_here("analyze_dynamics.py", *arguments)
    folder = tmp_path / results.name
    assert not folder.exists()
    done = run_here("analyze_dynamics.py", *arguments)
    assert done.returncode == 0 and "going on after: behaviours" in done.stdout
    for name in ("sign_agreement.tsv", "components.tsv"):
        assert (folder / name).read_bytes() == (results / name).read_bytes(), name
    pairs = zip(*(read_directions(path / "directions.safetensors") for path in (folder, results)), strict=True)
    for one, other in pairs:
        assert one.name == other.name
        np.testing.assert_allclose(one.weight, other.weight, rtol=1e-5, atol=1e-7, err_msg=one.name)
    assert numbers_of(folder) == numbers_of(results)
    assert_refused(run_here("analyze_dynamics.py", *arguments), "already holds a run")


@pytest.mark.slow
def test_half_lives_stand_beside_those_of_interventions(
    recorded: RecordedPolicy, results: Path, small_world, task, maps, tmp_path: Path
) -> None:
    played = tmp_path / "played"
    run_well(
        "intervene.py", "-p", NAME, "--policies-dir", recorded.policies, "--directions",
        results / "directions.safetensors", "--edit", "steer", "--direction", "ic_1", "--dose", 2, "--follow", 4,
        "--episodes", 2, "--controls", 0, "--share", 0.25, "--workers", 1, "--maps-dir", small_world.maps_dir, "-o",
        played,
    )  # fmt: skip
    output = tmp_path / "results"
    run_well("analyze_dynamics.py", *recorded.arguments, *QUICK, "--interventions", played, "--output-dir", output)
    (folder,) = output.glob("[!.]*")
    rows = json.loads((folder / "summary.json").read_text())["interventions"]
    measured = {one["what"]: one for one in json.loads((played / "effects.json").read_text())["persistences"]
                if one["policy"] == "trained"}  # fmt: skip
    assert [row["states"] for row in rows] == ["cell", "hidden"]
    assert all(row["measured"] == measured[row["states"]]["half_life"]["value"] for row in rows)
    assert all(row["direction"] == "ic_1" and row["dose"] == 2 and 0 < row["computed"] < 4 for row in rows)
    text = (folder / "summary.txt").read_text()
    assert "ic_1, dose +2, cell states: measured" in text
    assert "<b>followed_edits.png.</b>" in (folder / "report.html").read_text()


def test_the_parts_of_a_circuit_add_up_and_are_all_there(
    recorded: RecordedPolicy, results: Path, tmp_path: Path
) -> None:
    done = run_well(
        "analyze_dynamics.py", *recorded.arguments, "--circuit", "ic_1", "--directions",
        results / "directions.safetensors", "--reach", 6, "--lives", 20, "--output-dir", tmp_path,
    )  # fmt: skip
    assert "Written through the gates of the layer" in done.stdout
    circuit = tmp_path / f"{NAME}-circuit-ic_1"
    lines = [line.split("\t") for line in (circuit / "circuit.tsv").read_text().splitlines()]
    assert lines[0] == ["kind", "part", "share", "low", "high"]
    sums: dict[str, float] = {}
    for kind, _, share, *_ in lines[1:]:
        sums[kind] = sums.get(kind, 0) + float(share)
    assert sums.keys() == {
        "gate", "source", "source and gate", "gate and unit", "tick", "traced source", "traced tick", "input unit",
    }  # fmt: skip
    assert all(total == pytest.approx(1, abs=1e-3) for kind, total in sums.items() if kind != "gate and unit")
    named = {part for kind, part, *_ in lines[1:] if kind == "traced source"}
    assert named == {"tiles", "own row", "entities", "inventory", "market", "task"}
    units = [line.split("\t") for line in (circuit / "units.tsv").read_text().splitlines()[1:]]
    assert len(units) == 16 and sum(float(unit[1]) for unit in units) == pytest.approx(1, abs=1e-3)
    heads = [line.split("\t") for line in (circuit / "heads.tsv").read_text().splitlines()[1:]]
    assert {"north", "south", "stay"} <= {option for head, option, *_ in heads if head == "Move.Direction"}
    assert "<b>circuit.png.</b>" in (circuit / "report.html").read_text()


def test_circuits_that_cannot_be_found_are_refused(recorded: RecordedPolicy, results: Path, tmp_path: Path) -> None:
    ours = ("analyze_dynamics.py", *recorded.arguments, "--output-dir", tmp_path / "out")
    file = ("--directions", results / "directions.safetensors")
    assert_refused(run_here(*ours, "--circuit", "ic_1"), "--circuit and --directions go together")
    assert_refused(run_here(*ours, *file, "--circuit", "ic_9"), "holds no direction 'ic_9'")
    assert_refused(run_here(*ours, *file, "--circuit", "ic_1", "--reach", 256), "no life in", "lasts 256 ticks")
    assert_refused(run_here(*ours, *file, "--circuit", "ic_1", "--behaviours-of", "lstm_cell"), "is a run of its own")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*"))


def test_bad_input_is_refused_in_one_line(recorded: RecordedPolicy, recording, tmp_path: Path) -> None:
    def refused(*arguments: object, parts: tuple[str, ...]) -> None:
        assert_refused(run_here("analyze_dynamics.py", *arguments, "--output-dir", tmp_path / "results"), *parts)

    ours = recorded.arguments
    refused(*ours, "--layer", "world_hidden", parts=("holds no layer 'world_hidden', only: ",))
    refused(*ours, "--layer", "encoder_output", "--interventions", "x", parts=("--interventions does nothing with",))
    refused(*ours, "--behaviours-of", "lstm_cell,lstm_hiden", parts=("did you mean lstm_hidden",))
    refused(
        *ours, "--behaviours-of", "lstm_cell,lstm_cell", parts=("--behaviours-of is lstm_cell,lstm_cell: it names",)
    )
    refused(*ours, "--layer", "lstm_cell_2", parts=("holds no layer 'lstm_cell_2'", "did you mean lstm_cell"))
    refused(*ours, "--components", 17, parts=("--components is 17: layer lstm_cell has 16 units",))
    refused(*ours, "--components", 1, parts=("--components is 1: must be 2 to 256",))
    refused(*ours, "--features", "self_fod", parts=("did you mean self_food",))
    refused(*ours, "--subsample", 1000, parts=("too few records",))
    refused(*ours, "--lags", 64, *QUICK[:8], parts=("--lags is 64: no life drawn is long enough",))
    refused(*ours, *QUICK, "--reach", 200, parts=("--reach is 200: fewer than two of the lives drawn last 402 ticks",))
    refused(tmp_path / "nowhere", parts=("does not exist",))
    refused(recorded.dump, "--policies-dir", tmp_path, parts=("does not exist: name the checkpoint", "--policy"))
    refused(recorded.dump, "--policy", tmp_path / "x.safetensors", parts=("there is no policy",))
    refused(recording.dump, "--layer", "lstm_cell", parts=("holds no layer 'lstm_cell'",))
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").glob("[!.]*"))


@pytest.mark.slow
def test_a_dump_without_observations_lacks_memory_length_alone(small_world, task, maps, tmp_path: Path) -> None:
    bare = record_policy(tmp_path, small_world, task, maps, episodes=1, fields=())
    done = run_well("analyze_dynamics.py", *bare.arguments, *QUICK, "--output-dir", tmp_path / "results")
    assert "Memory length was not measured" in done.stdout and "--record standard" in done.stdout.replace("\n", " ")
    assert not list((tmp_path / "results").glob("*/memory_length.png"))


def test_another_policy_is_refused(recorded: RecordedPolicy, small_world, task, maps, tmp_path: Path) -> None:
    other = record_policy(tmp_path, small_world, task, maps, layers=2, episodes=1)
    metadata = read_metadata(recorded.dump)
    with pytest.raises(UserError, match=r"is not the checkpoint that .* was recorded from: their hashes differ"):
        load_policy_of(metadata, recorded.dump, other.checkpoint, tmp_path)
    copied = tmp_path / "copied"
    shutil.copytree(recorded.policies, copied)
    policy, _ = load_policy_of(metadata, recorded.dump, None, copied)
    for parameter in policy.lstm.parameters():
        parameter.data *= 1.5
    with pytest.raises(UserError, match="does not belong to this policy"):
        read_tracks(recorded.dump, metadata, Update(policy), "lstm_cell", 10, 0)
    with pytest.raises(UserError, match="without a checkpoint"):
        load_policy_of(replace(metadata, checkpoint_sha256=None), recorded.dump, None, copied)


@pytest.mark.slow
def test_every_layer_of_a_memory_can_be_studied(small_world, task, maps, tmp_path: Path) -> None:
    two = record_policy(tmp_path, small_world, task, maps, layers=2, episodes=1)
    layer = ("--layer", "lstm_hidden_1")
    run_well("analyze_dynamics.py", *two.arguments, *layer, *QUICK, "--output-dir", tmp_path / "results")
    (run,) = (tmp_path / "results").iterdir()
    assert json.loads((run / "summary.json").read_text())["layer"] == "lstm_hidden_1"
    assert (run / "memory_length.png").is_file()
