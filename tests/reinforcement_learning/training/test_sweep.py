"""`train.py -m sweep` with Weights & Biases: what works without an account, with its own agent."""

import json
from pathlib import Path

import pytest
import yaml

from reinforcement_learning.settings import Settings
from reinforcement_learning.training.sweep import agent_environment, override, read_sweep, trial_command
from tests.command import ROOT, assert_refused, assert_refuses, environment, run, run_here
from tests.test_train import ONE_UPDATE, folders

OFFLINE = ("--wandb.mode", "offline")


def search_space(folder: Path, **parameters: object) -> Path:
    path = folder / "space.yaml"
    named = {name.replace("__", "."): space for name, space in parameters.items()}
    path.write_text(yaml.safe_dump({"method": "random", "parameters": named}))
    return path


@pytest.mark.slow
def test_the_agent_of_the_service_runs_a_trial_with_the_values_of_the_sweep(tmp_path: Path, monkeypatch) -> None:
    """The service sends a sweep's command and a trial's values; here they are passed to its agent directly."""
    from wandb.wandb_agent import Agent

    for name, value in {**environment(), **agent_environment(tmp_path), "WANDB_SWEEP_ID": "sweep1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH"):  # the agent sets them
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(ROOT)
    shared = [argument for argument in ONE_UPDATE if argument != "--no-track"]
    config = trial_command("train.py", [*shared, *OFFLINE, "-n", "tried", *map(str, folders(tmp_path))])
    agent = Agent(api=None, queue=None, sweep_id="sweep1")
    agent._sweep_command = config["command"]
    values = {"train.learning_rate": 0.002, "train.normalize_advantage": False, "train.update_epochs": 1}
    agent._command_run(
        {"run_id": "trial7", "program": config["program"], "args": {key: {"value": values[key]} for key in values}}
    )
    assert agent._run_processes["trial7"].wait(timeout=300) == 0
    run_folder = tmp_path / "runs" / "tried_trial7"
    train = json.loads((run_folder / "settings.json").read_text())["settings"]["train"]
    assert {f"train.{key}": train[key] for key in ("learning_rate", "normalize_advantage", "update_epochs")} == values
    assert json.loads((run_folder / "metrics.jsonl").read_text())["learning_rate"] == 0.002
    assert (tmp_path / "policies" / "tried_trial7.safetensors").exists()
    (mirror,) = (run_folder / "wandb").glob("offline-run-*-trial7/run-trial7.wandb")
    assert b"sweep1" in mirror.read_bytes()


def test_our_own_search_space_is_good_and_stops_only_at_the_login(tmp_path: Path) -> None:
    assert_refused(run("train.py", "-m", "sweep", *folders(tmp_path)), "Weights & Biases cannot be used", "wandb login")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("parameters", "parts"),
    [
        ({"train__learning_rat": {"value": 1e-4}}, ("unknown setting train.learning_rat", "learning_rate")),
        ({"learning_rate": {"value": 1e-4}}, ("unknown setting learning_rate", "train.learning_rate")),
        ({"train__gamma": {"min": 0.9, "max": 1.5}}, ("train.gamma = 1.5", "less than or equal to 1")),
        ({"train__batch_size": {"values": [4096, "many"]}}, ("train.batch_size = 'many'",)),
        ({"train": {"parameters": {"gamma": {"value": 1}}}}, ("train holds parameters", "full name")),
        ({"train__gamma": {"distribution": "log_uniform", "min": -3, "max": -1}}, ("log_uniform_values",)),
        ({"train__gamma": {"distribution": "normal", "mu": 0, "sigma": 1}}, ("must hold `values:`",)),
        ({}, ("needs `parameters:`",)),
    ],
)
def test_a_search_space_that_cannot_work_is_refused_before_the_sweep_starts(
    tmp_path: Path, parameters: dict[str, object], parts: tuple[str, ...]
) -> None:
    path = search_space(tmp_path, **parameters)
    assert_refuses((str(path), *parts), read_sweep, path, Settings())


def test_small_numbers_may_be_written_as_people_write_them(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("""method: random
parameters:
  train.learning_rate: {min: 1e-5, max: 1e-3}
  train.batch_size: {min: 1e3, max: 1e4}
  train.pool_kernel: {values: ["0", "0,0,0,1"]}
""")
    read = read_sweep(path, Settings())["parameters"]
    assert read["train.learning_rate"] == {"min": 1e-5, "max": 1e-3}
    assert all(type(limit) is int for limit in read["train.batch_size"].values()), "trials have whole numbers"
    assert read["train.pool_kernel"] == {"values": ["0", "0,0,0,1"]}


def test_overriding_leaves_everything_else() -> None:
    settings = override(Settings(), {"train.gamma": 0.5, "env.num_agents": 7})
    assert (settings.train.gamma, settings.env.num_agents) == (0.5, 7)
    assert override(settings, {"train.gamma": 0.99, "env.num_agents": 128}) == Settings()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-m", "sweep", "--no-track", "--sweep-id", "a/b/c"), ("--sweep-id a/b/c", "--no-track", "-n")),
        (("-m", "sweep", *OFFLINE, "--sweep-id", "a/b/c"), ("--sweep-id a/b/c", "--wandb.mode offline")),
        (("-m", "sweep", "--sweep-runs", "0"), ("--sweep-runs 0", "at least 1")),
        (("-m", "sweep", "--sweep-config", "nowhere.yaml"), ("nowhere.yaml does not exist", "--sweep-config")),
        (("--trial", "{"), ("--trial", "not valid JSON")),
        (("--trial", '{"train.gamma": 2}'), ("train.gamma = 2", "less than or equal to 1")),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert_refused(run_here("train.py", *folders(tmp_path), *arguments), *parts)
    assert list(tmp_path.iterdir()) == []
