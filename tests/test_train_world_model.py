"""train_world_model.py and simulate.py as users run them, on a small real dump."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest

from activation_store.reader import read_dump, read_metadata
from agent_zoo.checkpoint import load_checkpoint
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation
from analysis.world_model.model import load_model
from analysis.world_model.open_loop import HIGHER_IS_BETTER
from analysis.world_model.scene import KINDS
from common.files import sha256
from tests.command import assert_refused, rows_of, run_here, run_well
from tests.fuzz import as_pipe
from tests.recorded_features import RecordedFeatures, recorded_features
from tests.trained_world_model import arguments, trained_world_model


@pytest.fixture(scope="module")
def trained(features_dump: RecordedFeatures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_world_model(tmp_path_factory, features_dump)


def simulate(trained: Path, recorded: RecordedFeatures, beginning: str, output: Path) -> Path:
    """Simulate lives that begin in this way; returns their dump."""
    run_well(
        "simulate.py", trained, "-n", 150, "--ticks", 6, "--from", beginning, "--dump", recorded.dump,
        "--act", "north,policy,stay", "-o", output,
    )  # fmt: skip
    return output / f"{recorded.dump.name}-simulated"


@pytest.fixture(scope="module", params=["informed", "random"])
def simulated(
    request, features_dump: RecordedFeatures, trained: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return simulate(trained, features_dump, request.param, tmp_path_factory.mktemp("simulated"))


def test_a_training_leaves_its_model_and_curves_and_is_not_overwritten(
    trained: Path, features_dump: RecordedFeatures, tmp_path: Path
) -> None:
    assert {one.name for one in trained.iterdir()} >= {
        "settings.json", "metrics.jsonl", "curves.png", "model.safetensors"
    }  # fmt: skip
    assert not (trained / "training_state.safetensors").exists()
    sightings = load_model(trained / "model.safetensors")[0].sightings
    assert sightings is not None and sightings.kernel.any()
    lines = [orjson.loads(line) for line in (trained / "metrics.jsonl").read_bytes().splitlines()]
    assert lines[-1]["records"] >= 900 and lines[-1]["test/share/material"] > 0
    again = run_here("train_world_model.py", *arguments(features_dump, trained.parent))
    assert_refused(again, "already holds a trained world model")
    shutil.copytree(trained, tmp_path / trained.name)
    state = tmp_path / trained.name / "training_state.safetensors"
    state.touch()
    again = run_here("train_world_model.py", *arguments(features_dump, tmp_path, "--resume"))
    assert_refused(again, "already holds a trained world model")
    assert not state.exists()


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["takeru", "hybrid", "yaofeng"])
def test_every_agent_lives_in_a_model_of_its_world(
    agent: str, small_world, task, maps, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """As the start kit does in the other tests."""
    recorded = recorded_features(tmp_path_factory, small_world, task, maps, agent)
    run_well("train_world_model.py", *arguments(recorded, tmp_path, "--records", 120))
    (model,) = tmp_path.iterdir()
    where = ("--dump", recorded.dump)
    run_well("simulate.py", model, "-n", 20, "--ticks", 3, *where, "--edit", "clear", "-o", tmp_path / "lives")
    (plain, edited) = sorted((tmp_path / "lives").iterdir())
    assert read_metadata(plain).agent == agent and plain.name == "small-simulated"
    values = [read_dump(dump, layers=[]).value for dump in (plain, edited)]
    assert np.isfinite(np.concatenate(values)).all() and not np.array_equal(*(value[:20] for value in values))
    done = run_well("simulate.py", "quality", model, "--ticks", 2, *where)
    assert "vitals after 1 ticks" in done.stdout


def folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("settings.json", lambda path: path.write_text("{"), "is not valid JSON"),
        ("settings.json", lambda path: path.write_text("[]"), "is damaged: delete"),
        ("settings.json", lambda path: path.write_text("{}"), "is damaged: delete"),
        ("settings.json", as_pipe, "is not a plain file"),
        ("settings.json", folder_there, "Is a directory"),
        ("metrics.jsonl", as_pipe, "is not a plain file"),
        ("metrics.jsonl", folder_there, "Is a directory"),
    ],
)
def test_an_interrupted_training_with_damaged_files_is_not_resumed(
    trained: Path, features_dump: RecordedFeatures, tmp_path: Path, name: str, damage: Callable, message: str
) -> None:
    folder = tmp_path / trained.name
    folder.mkdir()
    for one in ("settings.json", "metrics.jsonl"):
        shutil.copy(trained / one, folder)
    damage(folder / name)
    resumed = run_here("train_world_model.py", *arguments(features_dump, tmp_path, "--resume"))
    assert_refused(resumed, f"{folder / name}", message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--horizon", 65], "--horizon"),
        (["--batch", 1], "--batch"),
        (["--policies-dir", "nowhere"], "give --policies-dir"),
    ],
)
def test_bad_arguments_are_refused(more, message, features_dump: RecordedFeatures, tmp_path: Path) -> None:
    assert_refused(run_here("train_world_model.py", *arguments(features_dump, tmp_path / "out"), *more), message)
    assert not (tmp_path / "out").exists()


def test_simulated_lives_are_an_ordinary_dump(simulated: Path, trained: Path, features_dump: RecordedFeatures) -> None:
    metadata = read_metadata(simulated)
    assert metadata.origin == "simulated" and metadata.world_model_sha256 == sha256(trained / "model.safetensors")
    assert metadata.lives == 150 and {"world_hidden", "world_latent", "bottleneck"} < metadata.layers.keys()
    records = read_dump(simulated)
    assert len(records) == metadata.records <= 150 * 6
    lives = records.env_id + 1000 * records.episode
    for life in np.unique(lives):
        (rows,) = np.nonzero(lives == life)
        ticks = records.tick[rows]
        assert (np.sort(ticks) == np.arange(len(ticks))).all()
        done = records.column("done")[rows[np.argsort(ticks)]]
        assert not done[:-1].any() and (done[-1] or len(ticks) == 6)
        assert len(np.unique(records.activations["bottleneck"][rows], axis=0)) == 1
    assert records.activations["world_latent"].sum(axis=1) == pytest.approx(16)
    move = [head.name for head in metadata.action_heads].index("Move.Direction")
    assert (records.action[records.tick == 0, move] == 0).all() and (records.action[records.tick == 2, move] == 4).all()
    assert len(np.unique(records.action[records.tick == 1, move])) > 1


def test_the_policy_can_be_run_on_simulated_observations(simulated: Path, features_dump: RecordedFeatures) -> None:
    policy, info = load_checkpoint(features_dump.policies / "small.safetensors")
    check_shows_everything(simulated, info.layout)
    records = read_dump(simulated)
    observation = packed_observation(records, info.layout, policy.mask)
    encoded, _ = policy.encode(observation)
    result = encoded.detach().numpy()
    assert np.isfinite(result).all() and len(result) == len(records)
    if read_metadata(simulated).environment["simulated"]["from"] == "informed":
        first = records.tick == 0  # the recorded tick itself
        played = records.activations["encoder_output"]
        error = np.square(result[first] - played[first]).mean() / played[first].var(axis=0).mean()
        assert error < 0.5


def test_simulating_again_gives_the_same_lives(simulated: Path, trained: Path, features_dump, tmp_path: Path) -> None:
    beginning = read_metadata(simulated).environment["simulated"]["from"]
    again = simulate(trained, features_dump, beginning, tmp_path)
    files, files_again = (read_metadata(folder).files for folder in (simulated, again))
    assert {name: one.sha256 for name, one in files.items()} == {name: one.sha256 for name, one in files_again.items()}


@pytest.mark.slow
def test_quality_is_measured_on_other_maps(trained: Path, features_dump: RecordedFeatures) -> None:
    folder = trained / "quality"
    folder.mkdir()
    (folder / "other_dice.tsv").write_text("of an earlier measurement")
    done = run_well("simulate.py", "quality", trained, "--ticks", 4, "--dump", features_dump.dump)
    assert "tiles after 4 ticks" in done.stdout and "other dice" not in done.stdout
    assert not (folder / "other_dice.tsv").exists()
    assert (folder / "quality.png").stat().st_size > 10_000
    rows = rows_of(folder / "open_loop.tsv")
    assert sorted((row["measure"], int(row["horizon"]), row["rival"]) for row in rows) == sorted(
        itertools.product(HIGHER_IS_BETTER, range(1, 5), ("copy", "rules"))
    )
    for row in rows:
        assert float(row["model_low"]) <= float(row["model"]) <= float(row["model_high"])
        sign = 1 if HIGHER_IS_BETTER[row["measure"]] else -1
        difference = sign * (float(row["model"]) - float(row["other"]))
        assert float(row["better"]) == pytest.approx(difference, abs=1e-6)
    quality = orjson.loads((folder / "quality.json").read_bytes())
    shares = {one["what"]: one for one in quality["behaviours"]}
    moves = [f"moves {name}" for name in ("north", "south", "east", "west")]
    for side in ("real", "simulated"):
        assert sum(shares[name][side] for name in [*moves, "stays"]) == pytest.approx(1, abs=1e-5)
    seen = [shares[f"{kind}s in view"] for kind in KINDS]
    assert sum(one["real"] for one in seen) > 0.1 and all(one["simulated"] >= 0 for one in seen)
    assert 0 <= quality["calibration_error"] <= 1 and 0 <= quality["end_brier"] <= 1
