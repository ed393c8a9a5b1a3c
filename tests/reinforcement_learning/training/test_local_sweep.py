"""`train.py -m sweep --no-track`: Optuna chooses the values, real trainings in a small world are the trials."""

import json
import math
import os
import shutil
import signal
from pathlib import Path

import orjson
import pytest
import yaml

from reinforcement_learning.run_settings import load_settings, read_run_settings
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.local_sweep import SweepFolder, Trial, TrialCommands
from reinforcement_learning.training.sweep import SearchSpace, override, read_search_space, read_sweep
from tests.command import ROOT, assert_refused, assert_refuses, printed_until, python, run, run_here, start
from tests.test_train import FOREVER, ONE_UPDATE, TWO_UPDATES, folders

METRIC = {"name": "lives/ticks", "goal": "maximize"}
RATES = {"train.learning_rate": {"distribution": "log_uniform_values", "min": 1e-5, "max": 1e-2}}


def sweep_file(folder: Path, parameters: dict[str, object], **others: object) -> Path:
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump({"method": "bayes", "metric": METRIC, "parameters": parameters} | others))
    return path


def space_of(folder: Path, parameters: dict[str, object], **others: object) -> SearchSpace:
    path = sweep_file(folder, parameters, **others)
    return read_search_space(read_sweep(path, Settings()), path)


def trials_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def grid_of_three(folder: Path) -> tuple[object, ...]:
    """The command of a sweep of three trials, of which the second cannot work."""
    sizes = {"train.batch_size": {"values": [256, 250, 512]}, "train.learning_rate": {"value": 0.002}}
    path = sweep_file(folder, sizes, method="grid", metric={"name": "loss/entropy", "goal": "minimize"})
    return (
        "-m", "sweep", "-n", "tuned", *TWO_UPDATES, "--sweep-config", path, "--sweeps-dir", folder / "sweeps",
        *folders(folder),
    )  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder in which the first two trials have run, and what the command printed."""
    folder = tmp_path_factory.mktemp("swept")
    result = python("train.py", *grid_of_three(folder), "--sweep-runs", 2)
    return folder, result.stdout, result.stderr


@pytest.mark.slow
def test_trials_are_trained_and_the_best_settings_written(swept: tuple[Path, str, str]) -> None:
    folder, printed, warned = swept
    assert "train.batch_size 250 must be a multiple" in warned and "trial 1 failed: exit code 2" in printed
    first, second = trials_of(folder / "sweeps" / "tuned")
    assert (first["state"], second["state"]) == ("finished", "failed")
    last = json.loads((folder / "runs" / "tuned_000" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["loss/entropy"], last["agent_steps"]) == (first["metric"], first["agent_steps"])
    assert (folder / "policies" / "tuned_000.safetensors").exists()
    heads, *rows = (line.split("\t") for line in (folder / "sweeps" / "tuned" / "trials.tsv").read_text().splitlines())
    assert heads == ["trial", "run", "state", "loss/entropy", "agent_steps", "train.batch_size", "train.learning_rate"]
    assert [row[:3] for row in rows] == [["0", "tuned_000", "finished"], ["1", "tuned_001", "failed"]]
    assert float(rows[0][3]) == first["metric"] and rows[1][3:] == ["", "", "250", "0.002"]
    best = folder / "sweeps" / "tuned" / "best.yaml"
    assert f"best settings: {best}" in printed
    agent, trained = read_run_settings(folder / "runs" / "tuned_000")
    assert load_settings(best, agent) == trained
    assert trained.train.learning_rate == 0.002
    other = run_here("train.py", *grid_of_three(folder), "--train.gamma", 0.5)
    assert_refused(other, "tuned holds a sweep with another train.gamma (0.99, now 0.5)", "-n")


@pytest.mark.slow
def test_an_interrupted_trial_is_continued_and_a_grid_ends(swept: tuple[Path, str, str], tmp_path: Path) -> None:
    """What a kill after a trial's last update leaves: its run is there, the sweep does not know how it ended."""
    shutil.copytree(swept[0], tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "sweeps" / "tuned"
    before = (folder / "trials.jsonl").read_bytes().splitlines(keepends=True)
    interrupted = orjson.loads(before[0]) | {"state": "running", "metric": None, "agent_steps": None}
    (folder / "trials.jsonl").write_bytes(orjson.dumps(interrupted) + b"\n" + before[1])
    result = python("train.py", *grid_of_three(tmp_path), "--sweep-runs", 3)
    assert "the grid is complete: all 3 combinations were tried" in result.stdout
    trials = trials_of(folder)
    assert [trial["state"] for trial in trials] == ["finished", "failed", "finished"]
    assert trials[0] == orjson.loads(before[0])
    assert trials[2]["values"]["train.batch_size"] == 512


@pytest.mark.slow
def test_ctrl_c_stops_the_trial_and_the_sweep(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, RATES)
    how = ("--sweep-config", path, "--sweeps-dir", tmp_path / "sweeps", *folders(tmp_path))
    with start("train.py", "-m", "sweep", "-n", "endless", *FOREVER, *how) as process:
        printed_until(process, " agent-steps")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        printed = process.stdout.read()
    assert process.returncode == 130, printed
    assert "to continue trial 0, repeat the command with -n endless" in printed and "Traceback" not in printed
    (trial,) = trials_of(tmp_path / "sweeps" / "endless")
    assert trial["state"] == "running" and (tmp_path / "runs" / "endless_000" / "training_state.safetensors").exists()


def test_a_sweep_whose_trials_all_fail_is_one_line(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, {"train.batch_size": {"values": [250]}})
    how = ("--sweep-config", path, "--sweeps-dir", tmp_path / "sweeps", "--sweep-runs", 1)
    result = run("train.py", "-m", "sweep", "-n", "none", *ONE_UPDATE, *how, *folders(tmp_path))
    assert result.returncode == 2
    trial, sweep = result.stderr.strip().splitlines()
    assert "train.batch_size 250" in trial
    assert sweep.startswith("error: no trial of the sweep") and "1 failed, trial 0 with: exit code 2" in sweep


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_the_search_finds_a_planted_optimum(tmp_path: Path, goal: str) -> None:
    """The metric peaks at a learning rate of 1e-3: after 40 trials, a random one would rarely be as close."""
    space = space_of(tmp_path, RATES, metric={"name": "lives/ticks", "goal": goal})
    finished: list[tuple[dict[str, float], float]] = []
    for number in range(40):
        values = space.suggest(number, finished, seed=1)
        off = (math.log10(values["train.learning_rate"]) + 3) ** 2
        finished.append((values, off if goal == "minimize" else -off))
    late = sorted(abs(math.log10(values["train.learning_rate"]) + 3) for values, _ in finished[20:])
    assert late[len(late) // 2] < 0.5  # uniform choice over the three decades: 0.9


@pytest.mark.parametrize("method", ["bayes", "random"])
def test_values_stay_in_the_space_and_do_not_depend_on_interruptions(tmp_path: Path, method: str) -> None:
    parameters = RATES | {
        "train.update_epochs": {"min": 1, "max": 3},
        "train.gamma": {"values": [0.98, 0.99]},
        "train.minibatch_rows": {"distribution": "q_uniform", "min": 16, "max": 64, "q": 16},
        "env.mask_intrinsics": {"value": "own"},
    }
    space = space_of(tmp_path, parameters, method=method)
    finished: list[tuple[dict[str, object], float]] = []
    for number in range(14):
        values = space.suggest(number, finished, seed=1)
        assert values == space.suggest(number, finished, seed=1) != space.suggest(number, finished, seed=2)
        settings = override(Settings(), values)
        assert 1e-5 <= settings.train.learning_rate <= 1e-2 and settings.train.update_epochs in (1, 2, 3)
        assert settings.train.gamma in (0.98, 0.99) and settings.train.minibatch_rows in (16, 32, 48, 64)
        assert settings.env.mask_intrinsics == "own"
        finished.append((values, float(number)))
    assert len({json.dumps(values) for values, _ in finished}) > 10


def test_a_grid_is_every_combination_once_and_the_default_space_needs_no_server(tmp_path: Path) -> None:
    parameters = {"train.gamma": {"values": [0.98, 0.99]}, "train.update_epochs": {"values": [1, 2, 3]}}
    space = space_of(tmp_path, parameters, method="grid")
    tried = {tuple(space.suggest(number, (), seed=1).values()) for number in range(space.combinations or 0)}
    assert tried == {(gamma, epochs) for gamma in (0.98, 0.99) for epochs in (1, 2, 3)}
    path = ROOT / "sweep.yaml"
    space = read_search_space(read_sweep(path, Settings()), path)
    assert set(space.suggest(0, (), seed=1)) == set(space.parameters)


@pytest.mark.parametrize(
    ("parameters", "others", "parts"),
    [
        (RATES, {"method": "hyperopt"}, ("method is 'hyperopt'", "bayes, random, grid")),
        (RATES, {"metric": {"name": "lives/ticks"}}, ("`metric:`", "goal")),
        (RATES, {"early_terminate": {"type": "hyperband"}}, ("`early_terminate:`", "local sweep")),
        (RATES, {"method": "grid"}, ("train.learning_rate", "`values:`", "grid")),
        ({"train.gamma": {"min": 0.9, "max": 0.99, "distribution": "beta"}}, {}, ("train.gamma", "'beta'")),
        ({"train.gamma": {"min": 0.99, "max": 0.9}}, {}, ("train.gamma",)),
        ({"train.gamma": {"values": [0.9, 0.99], "probabilities": [0.1, 0.9]}}, {}, ("`probabilities:`",)),
        ({"reward.hp_coef": {"min": 0, "max": 1.0, "distribution": "log_uniform_values"}}, {}, ("reward.hp_coef",)),
    ],
)
def test_what_only_the_server_can_do_is_refused(
    tmp_path: Path, parameters: dict[str, object], others: dict[str, object], parts: tuple[str, ...]
) -> None:
    assert_refuses(("space.yaml", *parts), space_of, tmp_path, parameters, **others)


def test_a_trial_starts_with_its_values_and_goes_on_in_its_run(tmp_path: Path) -> None:
    commands = TrialCommands("train.py", ("--debug",), tmp_path / "policies", tmp_path / "runs", track=False)
    trial = Trial(0, "tuned_000", "running", {"train.gamma": 0.9})
    started = ["train.py", "--debug", "-n", "tuned_000", "--trial", '{"train.gamma":0.9}']
    assert commands.start(trial)[1:] == commands.resume(trial)[1:] == started
    (tmp_path / "runs" / "tuned_000").mkdir(parents=True)
    (tmp_path / "runs" / "tuned_000" / "settings.json").write_text("{}")
    continued = ["--resume", str(tmp_path / "runs" / "tuned_000")]
    assert commands.resume(trial)[2:] == [*continued, "--policies-dir", str(tmp_path / "policies"), "--no-track"]


def test_a_folder_of_something_else_and_damaged_trials_are_refused(tmp_path: Path) -> None:
    space = space_of(tmp_path, RATES)
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "notes.txt").write_text("mine")
    assert_refuses("something other than a sweep", SweepFolder, tmp_path / "sweep", space, "takeru", Settings())
    (tmp_path / "sweep" / "notes.txt").unlink()
    (tmp_path / "sweep" / ".sweep.json.a1b2c3d4.partial").touch()  # of a sweep that was killed as it began
    SweepFolder(tmp_path / "sweep", space, "takeru", Settings()).record(Trial(0, "sweep_000", "failed", {}))
    assert_refuses("another agent", SweepFolder, tmp_path / "sweep", space, "hybrid", Settings())
    for damage in ('{"number": 0}\n', "[\n", (tmp_path / "sweep" / "trials.jsonl").read_text() * 2):
        (tmp_path / "sweep" / "trials.jsonl").write_text(damage)
        assert_refuses(r"trials\.jsonl is damaged", SweepFolder, tmp_path / "sweep", space, "takeru", Settings())
