"""train.py as users run it, on the real game in a small world."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import train
from activation_store.reader import read_dump
from agent_zoo.checkpoint import load_checkpoint
from agent_zoo.checkpoint_files import OWN, SHIPPED
from agent_zoo.observation_masking import ObservationMask
from tests.command import (
    assert_refused,
    assert_refuses,
    printed_until,
    python,
    run_here,
    run_on_terminal,
    run_well,
    start,
)
from tests.shared import shared_folder

pytestmark = pytest.mark.usefixtures("without_curves")  # `trained` is another process, which draws them
WORLD = ("--debug", "--no-track", "--env.num-agents", "16", "--env.num-npcs", "16", "--env.num-maps", "2")
SMALL = (
    *WORLD, "--train.batch-size", "1024", "--train.minibatch-rows", "32", "--train.update-epochs", "1",
    "--train.total-agent-steps", "2048",
)  # fmt: skip
"""Two updates, in which lives end."""
ONCE = ("--train.num-checkpoints", "1")
"""One checkpoint after the untrained one."""
SMALLER = (*WORLD, *ONCE, "--train.batch-size", "256", "--train.minibatch-rows", "16")
ONE_UPDATE = (*SMALLER, "--train.total-agent-steps", "256")
TWO_UPDATES = (*SMALLER, "--train.total-agent-steps", "512")
MIRRORED = tuple(argument for argument in TWO_UPDATES if argument != "--no-track")
FOREVER = (*SMALLER, "--train.total-agent-steps", "10_000_000")


def folders(tmp_path: Path, maps: Path | None = None) -> tuple[object, ...]:
    """Options that put everything into a folder, but optionally take maps from elsewhere."""
    return (
        "--policies-dir", tmp_path / "policies", "--runs-dir", tmp_path / "runs",
        "--env.maps-dir", maps or tmp_path / "maps",
    )  # fmt: skip


def metrics_of(run_folder: Path) -> list[dict[str, float]]:
    """Metrics without those that depend on the clock."""
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.startswith("time/") and "per_second" not in key}
        for line in lines
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `train.py -n first` has run."""
    return shared_folder(tmp_path_factory, "trained", train_first)


def train_first(folder: Path) -> None:
    result = python("train.py", *SMALL, "-n", "first", *folders(folder))
    assert "first.safetensors" in result.stdout
    assert result.stderr == ""
    # Slow machines also print a line of progress every 30 seconds.
    updates = [line for line in result.stdout.splitlines() if "agent-steps" in line and "training:" not in line]
    assert len(updates) == 2 and all(len(line) < 300 for line in updates) and "\x1b" not in result.stdout
    for part in ("environment", "inference", "learning", "copying", "entropy", "ticks", "task", "died:", "a life:"):
        assert part in updates[-1], part


def test_leaves_a_policy_metrics_curves_settings_and_checkpoints(trained: Path) -> None:
    policy, info = load_checkpoint(trained / "policies" / "first.safetensors")
    assert info.agent == "neurips23_start_kit" and info.steps >= 2048
    metrics = metrics_of(trained / "runs" / "first")
    assert [line["update"] for line in metrics] == [1, 2] and metrics[-1]["agent_steps"] == info.steps
    assert metrics[-1]["lives/ticks"] > 1 and metrics[-1]["loss/entropy"] > 0
    settings = json.loads((trained / "runs" / "first" / "settings.json").read_text())
    assert settings["settings"]["train"]["batch_size"] == 1024
    steps = [load_checkpoint(path)[1].steps for path in sorted((trained / "runs/first/checkpoints").iterdir())]
    assert steps == [0, metrics[0]["agent_steps"], metrics[1]["agent_steps"]]
    assert (trained / "runs" / "first" / "curves.png").read_bytes().startswith(b"\x89PNG")
    untrained = load_checkpoint(sorted((trained / "runs/first/checkpoints").iterdir())[0])[0]
    assert any((a != b).any() for a, b in zip(untrained.parameters(), policy.parameters(), strict=True))


@pytest.mark.parametrize(
    ("agent", "layers", "cell"),
    [
        ("hybrid", 1, "lstm"),
        pytest.param("neurips23_start_kit", 0, "lstm", marks=pytest.mark.slow),
        pytest.param("yaofeng", 2, "lstm", marks=pytest.mark.slow),
        pytest.param("takeru", 0, "lstm", marks=pytest.mark.slow),
        pytest.param("hybrid", 2, "gru", marks=pytest.mark.slow),
    ],
)
def test_every_agent_trains_with_any_memory(trained: Path, tmp_path: Path, agent: str, layers: int, cell: str) -> None:
    how = ("-a", agent, "-n", "any", "--policy.lstm-layers", layers, "--policy.cell", cell, "--env.num-maps", 2)
    run_well("train.py", *TWO_UPDATES, *how, *folders(tmp_path, trained / "maps"))
    policy, info = load_checkpoint(tmp_path / "policies" / "any.safetensors")
    assert info.agent == agent and info.steps >= 512 and len(metrics_of(tmp_path / "runs" / "any")) == 2
    memory = {parameter for parameter, _ in policy.named_parameters() if not parameter.startswith("policy.")}
    assert memory == {
        f"{cell}.{kind}_{source}_l{layer}"
        for layer in range(layers)
        for kind in ("weight", "bias")
        for source in ("ih", "hh")
    }


@pytest.mark.slow
def test_a_codebook_is_learnt_and_recorded(trained: Path, tmp_path: Path) -> None:
    codes = ("-n", "codes", "--semantic.codes", 4, "--env.num-maps", 2)
    result = run_well("train.py", *TWO_UPDATES, *codes, *folders(tmp_path, trained / "maps"))
    assert "codes in use" in result.stdout and "codes: " in result.stdout.splitlines()[-1]
    record = ("-p", "codes", "--policies-dir", tmp_path / "policies", "-n", 1, "--max-steps", 5, "--layers", "all")
    maps = ("--maps-dir", trained / "maps", "--output", tmp_path / "dumps", "--map-seed", 0)
    run_well("extract_activations.py", "pve", *record, *maps)
    (dump,) = (tmp_path / "dumps").iterdir()
    records = read_dump(dump)
    plane, code = records.activations["semantic_plane"], records.activations["semantic_code"]
    assert plane.shape[1] == 2 and code.shape[1] == 4 and (code.sum(axis=1) == 1).all()
    codebook = load_checkpoint(tmp_path / "policies" / "codes.safetensors")[0].state_dict()["semantic.codebook"].numpy()
    distances = np.square(plane[:, None] - codebook).sum(axis=2)
    assert np.array_equal(distances.argmin(axis=1), code.argmax(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "same"),
    [
        *((("--rollout.vectorization", where), True) for where in ("serial", "multiprocessing", "ray")),
        (("--train.seed", 2, "--train.total-agent-steps", 1024), False),
    ],
)
def test_same_seed_same_metrics_wherever_worlds_play_another_seed_others(
    trained: Path, tmp_path: Path, options: tuple[object, ...], same: bool
) -> None:
    run_well("train.py", *SMALL, *ONCE, "-n", "again", *folders(tmp_path, trained / "maps"), *options)
    first, again = metrics_of(trained / "runs" / "first"), metrics_of(tmp_path / "runs" / "again")
    assert (again == first) if same else (again != first[:1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vectorization", "number", "code"),
    [
        ("serial", signal.SIGTERM, 143),  # SIGINT, without the mark: below
        ("serial", signal.SIGINT, 130),
        ("multiprocessing", signal.SIGTERM, 143),
        ("multiprocessing", signal.SIGINT, 130),
        ("ray", signal.SIGTERM, 143),
        ("ray", signal.SIGINT, 130),
    ],
)
def test_a_signal_leaves_a_policy_that_loads(
    trained: Path, tmp_path: Path, vectorization: str, number: int, code: int
) -> None:
    how = ("--rollout.vectorization", vectorization, "-n", "stopped")
    metrics = tmp_path / "runs" / "stopped" / "metrics.jsonl"
    with start("train.py", *FOREVER, *how, *folders(tmp_path, trained / "maps")) as process:
        assert process.stdout
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.01)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)  # Ctrl-C reaches the whole group
        output = process.stdout.read()
    assert process.returncode == code, output
    assert "Traceback" not in output
    _, info = load_checkpoint(tmp_path / "policies" / "stopped.safetensors")
    assert 256 <= info.steps < 10_000_000


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["a worker", "the run"])
def test_all_end_with_a_killed_worker_or_run_and_the_last_checkpoint_loads(
    trained: Path, tmp_path: Path, killed: str
) -> None:
    arguments = ("--rollout.vectorization", "multiprocessing", "--rollout.num-workers", "2", "-n", "bereft")
    with start("train.py", *FOREVER, *arguments, *folders(tmp_path, trained / "maps")) as process:
        printed_until(process, "agent-steps")
        workers = psutil.Process(process.pid).children()
        (workers[0] if killed == "a worker" else process).kill()
        output = process.communicate()[0]
    assert len(workers) == 2 and not psutil.wait_procs(workers, timeout=30)[1]
    checkpoints = tmp_path / "runs" / "bereft" / "checkpoints"
    assert load_checkpoint(max(checkpoints.iterdir()))[1].agent == "neurips23_start_kit"
    if killed == "a worker":
        assert process.returncode == 2 and str(checkpoints) in output
        assert "worker process 0 ended with exit code -9" in output and "Traceback" not in output


KILLED = """
import os, signal
import train
from common import command_line
from reinforcement_learning.training.run_folder import TrainingFolder

append, updates = TrainingFolder.append_metrics, []

def append_and_die(self, metrics):
    append(self, metrics)
    updates.append(metrics)
    if len(updates) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

TrainingFolder.append_metrics = append_and_die
command_line.run(train.main)
"""
"""Trains, and is killed as the second update is written down."""


@pytest.mark.slow
def test_a_killed_run_goes_on_exactly(trained: Path, tmp_path: Path) -> None:
    five_updates = (*SMALLER, "--train.total-agent-steps", "1280", *folders(tmp_path, trained / "maps"))
    run_well("train.py", *five_updates, "-n", "unbroken")
    python("-c", KILLED, *five_updates, "-n", "killed", code=-signal.SIGKILL)
    assert len(metrics_of(tmp_path / "runs" / "killed")) == 2
    run_well("train.py", "--resume", tmp_path / "runs" / "killed", "--no-track")
    assert metrics_of(tmp_path / "runs" / "killed") == metrics_of(tmp_path / "runs" / "unbroken")
    killed, unbroken = (tmp_path / "policies" / f"{name}.safetensors" for name in ("killed", "unbroken"))
    assert killed.read_bytes() == unbroken.read_bytes()
    for row in map(json.loads, (tmp_path / "runs" / "killed" / "metrics.jsonl").read_text().splitlines()):
        assert sum(value for name, value in row.items() if name.startswith("time/")) <= 1, "what resuming took"


def test_resuming_as_another_run_from_a_policy_or_from_no_run_is_refused_and_changes_nothing(
    trained: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(trained / "runs" / "first", tmp_path / "first"))
    for arguments, parts in (
        (("--train.seed", "5"), ("train.seed was 1 and cannot become 5", "train.device")),
        (("-n", "other"), ("leave out --name",)),
        (("-a", "takeru"), ("leave out --agent",)),
        (("--no-recurrence",), ("leave out --no-recurrence",)),
    ):
        assert_refused(run_here("train.py", "--resume", folder, "--no-track", *arguments), *parts)
    shutil.copy(trained / "policies" / "first.safetensors", folder / "training_state.safetensors")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = run_here("train.py", "--resume", folder, "--no-track")
    assert_refused(result, str(folder / "training_state.safetensors"), "is a policy", "a training state is needed")
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert_refused(run_here("train.py", "--resume", tmp_path), "holds no run to resume", "settings.json")


@pytest.fixture(scope="module")
def reflexes(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a policy without a memory was trained with some other options."""
    folder = tmp_path_factory.mktemp("reflexes")
    how = ("--no-recurrence", "--env.mask_intrinsics", "strict", "--reward.hp-coef", 2, "--reward.bonus-coef", 0)
    often = ("--train.checkpoint-interval", 1, "--train.no-clip-value", "--train.target-kl", 1e-9)
    run_well("train.py", *TWO_UPDATES, *how, *often, "-n", "reflex", *folders(folder, trained / "maps"))
    return folder


def test_a_policy_without_recurrence_remembers_what_was_withheld_and_paid_for_and_nothing_else(reflexes: Path) -> None:
    policy, info = load_checkpoint(reflexes / "policies" / "reflex.safetensors")
    assert info.recurrent_arguments == {"layers": 0}
    assert not [name for name, _ in policy.named_parameters() if "lstm" in name]
    assert policy.mask == ObservationMask.of({"mask_intrinsics": "strict"}) != ObservationMask()
    coefficients = {"task_coef": 1, "bonus_coef": 0, "hp_coef": 2, "drive_coef": 0}
    assert info.reward == coefficients | {"heal": 0.03, "explore": 0.01, "as_published": True}
    kept = sorted((reflexes / "runs/reflex/checkpoints").iterdir())
    steps = [line["agent_steps"] for line in metrics_of(reflexes / "runs/reflex")]
    assert [load_checkpoint(path)[1].steps for path in kept] == [0, *steps] and len(steps) == 2, "one after each update"


@pytest.mark.slow
def test_other_weights_another_optimizer_and_fewer_choices(trained: Path, tmp_path: Path) -> None:
    options = ("--train.initialization", "orthogonal", "--train.optimizer", "muon", "--train.ignore-idle-heads")
    run_well("train.py", *SMALL, *ONCE, "-n", "other", *folders(tmp_path, trained / "maps"), *options)
    run_folder = tmp_path / "runs" / "other"
    untrained, last = sorted((run_folder / "checkpoints").iterdir())
    head = load_checkpoint(untrained)[0].policy.action_decoder.heads["Sell_Price"].weight
    side = min(head.shape)
    square = head @ head.T if len(head) == side else head.T @ head
    torch.testing.assert_close(square, 1e-4 * torch.eye(side), atol=1e-7, rtol=0)
    assert not torch.equal(head, load_checkpoint(last)[0].policy.action_decoder.heads["Sell_Price"].weight)
    usual, fewer = metrics_of(trained / "runs" / "first"), metrics_of(run_folder)
    assert 0 < fewer[0]["loss/entropy"] < usual[0]["loss/entropy"], "idle choices have entropy too"


def test_refuses_a_name_that_is_taken(trained: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(trained, tmp_path / "trained"))
    command = ("train.py", *SMALL, "-n", "first", *folders(again))
    assert_refused(run_here(*command), "first.safetensors already exists", "-n")
    (again / "policies" / "first.safetensors").unlink()
    assert_refused(run_here(*command), "already holds a run", "-n")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-a", "nobody"), ("no agent 'nobody'", "neurips23_start_kit")),
        (("--config", "nowhere.yaml"), ("nowhere.yaml does not exist",)),
        (("--train.gamma", "2"), ("train.gamma = 2.0", "less than or equal to 1")),
        (("--train.batch-size", "1000"), ("1000", "1024")),
        (("-n", "../escape"), ("cannot name a file",)),
        (("--reward.spare-dangerous-npc",), ("did you mean --reward.spare-dangerous-npcs? --help",)),
        (("--rollout.num-envs", "1000000000"), ("rollout.num_envs = 1000000000", "less than or equal to 4096")),
        (("--env.view-radius", "0"), ("env.view_radius = 0", "greater than or equal to 1")),
        (("--train.device", "cuda"), ("torch finds no GPU",)),
        (("--rollout.ray-address", "somewhere"), ("rollout.ray_address = 'somewhere'", "local, auto or HOST:PORT")),
        (("--processes", "3"), ("train.batch_size 32768", "train.processes 3")),
        (("--processes", "0"), ("train.processes = 0",)),
        (("--processes", "2", "--rollout.num-envs", "3"), ("rollout.num_envs 3", "train.processes 2")),
        (("--processes", "2", "--syllabus"), ("--syllabus", "--processes 2")),
        (("--resume",), ("--resume",)),  # this and the others are read first
        (("-m", "nothing"), ("nothing",)),
        (("--config",), ("--config",)),
        (("-m", "sweep", "--sweep-runs", "x"), ("--sweep-runs",)),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert_refused(run_here("train.py", "--no-track", *folders(tmp_path), *arguments), *parts)
    assert list(tmp_path.iterdir()) == [], "something was left behind"


@pytest.mark.slow
def test_metrics_are_mirrored_to_wandb_files_when_offline(trained: Path, tmp_path: Path) -> None:
    how = ("--wandb.mode", "offline", "-n", "mirrored")
    python("train.py", *MIRRORED, *how, *folders(tmp_path, trained / "maps"))
    (mirror,) = (tmp_path / "runs" / "mirrored" / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"mirrored.safetensors" in mirror.read_bytes(), "the policy is an artifact of the run"
    assert len(metrics_of(tmp_path / "runs" / "mirrored")) == 2


@pytest.mark.slow
def test_training_goes_on_without_a_mirror_that_died(tmp_path: Path) -> None:
    with start("train.py", *MIRRORED, "--wandb.mode", "offline", "-n", "alone", *folders(tmp_path)) as process:
        printed_until(process, "agent-steps")
        (service,) = (item for item in psutil.Process(process.pid).children() if item.name() == "wandb-core")
        service.kill()
        output = process.stdout.read()
    assert process.returncode == 0, output
    assert output.count("Weights & Biases failed") == 1 and "metrics.jsonl" in output
    assert len(metrics_of(tmp_path / "runs" / "alone")) == 2
    assert load_checkpoint(tmp_path / "policies" / "alone.safetensors")[1].steps >= 512


def test_trainings_do_not_go_among_the_shipped_policies_and_one_resumed_in_its_folder_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reflexes: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["--debug"], ["-m", "sweep"]):
        assert train.parse(arguments).policies_dir == OWN
    assert train.parse(["-m", "replay"]).policies_dir == SHIPPED
    SHIPPED.mkdir()
    (SHIPPED / "taken.safetensors").touch()
    assert_refuses("policies/taken.safetensors already exists", train.choose_name, train.parse(["-n", "taken"]))
    assert train.parse(["--env.mask-intrinsics"]).settings.env.mask_intrinsics == "own"
    monkeypatch.chdir(reflexes / "runs" / "reflex")
    assert train.parse(["--resume", "."]).name == "reflex"


def test_a_run_that_the_mirror_refuses_leaves_its_name_free(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line advises --no-track, and the same command with it must be able to make the run's folder."""

    def no_network(**_: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("wandb.login", lambda **_: True)
    monkeypatch.setattr("wandb.init", no_network)
    result = run_here("train.py", *MIRRORED, "-n", "mirrored", *folders(tmp_path, trained / "maps"))
    assert result.returncode == 2 and "no route to host" in result.stderr.splitlines()[-1]
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("option", ["--policies-dir", "--runs-dir", "--env.maps-dir"])
def test_a_folder_that_cannot_be_made_is_named_before_training(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    result = run_here("train.py", *SMALL, *folders(tmp_path), option, tmp_path / "file" / "inside")
    assert_refused(result, "file/inside cannot be made")
    assert not (tmp_path / "runs" / "first").exists()


def test_help_shows_every_default() -> None:
    result = run_well("train.py", "--help")
    for text in ("--train.learning-rate", "0.00015", "--env.num-agents", "128", "-a STR", "--no-track"):
        assert text in result.stdout
    # A flag that is on by default is shown in both forms, so that its text is not misread.
    for flag in ("track", "recurrence", "train.anneal-learning-rate", "train.normalize-advantage"):
        section, _, name = flag.rpartition(".")
        off = f"--{section}.no-{name}" if section else f"--no-{name}"
        assert f"--{flag}, {off}" in result.stdout


SHOWN = (
    "of 1,024 agent-steps", "so far", "left", "agent-steps/s", "environment", "inference", "learning", "copying",
    "losses", "entropy", "ticks", "reward", "task progress", "deaths", "events a life",
)  # fmt: skip
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.mark.slow
def test_the_live_panel_shows_everything_and_leaves_the_terminal_in_order(maps: Path, tmp_path: Path) -> None:
    one_update = (*SMALL, *ONCE, "--train.total-agent-steps", "1024")
    code, sent = run_on_terminal(80, "train.py", *one_update, "-n", "seen", *folders(tmp_path, maps.parent))
    assert code == 0, sent
    lines = CONTROL.sub("", sent[sent.rfind("\x1b[1A") :]).splitlines()  # what was drawn last
    panel = [line for line in lines if line[:1] in "╭│╰"]
    text = " ".join(" ".join(line.strip("│ ") for line in panel).split())
    for part in SHOWN:
        assert part in text, part
    assert {len(line) for line in panel} == {80}
    assert "update 1" in panel[0] and "seen.safetensors" in lines[-2]
    assert_in_order(sent)


def test_ctrl_c_leaves_the_terminal_in_order(maps: Path, tmp_path: Path) -> None:
    command = ("train.py", *FOREVER, "-n", "stopped", *folders(tmp_path, maps.parent))
    code, sent = run_on_terminal(80, *command, interrupt_at="first update")
    assert code == 130, sent
    assert "stopped before the first update: nothing is kept" in sent and "Traceback" not in sent
    assert_in_order(sent)
    assert not list(tmp_path.rglob("stopped*")), "the name cannot be used again"


def assert_in_order(sent: str) -> None:
    """The cursor is visible again, colours are reset, and the prompt is on its own line."""
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h") > 0
    colours = re.findall(r"\x1b\[[0-9;]*m", sent)
    assert colours and colours[-1] == "\x1b[0m"
    assert sent.endswith("\n")
