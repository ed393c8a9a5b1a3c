"""A small real dump from which every tick can be computed again, with its policy, for sparse features."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from agent_zoo.capture import ALL_LAYERS
from agent_zoo.checkpoint import save_checkpoint
from common.files import sha256
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import untrained_twin, with_shadow_networks
from reinforcement_learning.play.extraction import RecordingPlan, extract
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import run_well
from tests.shared import shared_folder
from tests.tiny_policies import tiny_entrant, with_small_inputs

POLICY = "small"
START_KIT = "neurips23_start_kit"
UNITS = 16
LAYERS = ("encoder_output", "lstm_hidden", "lstm_cell", "action_decoder")
MORE = ("--untrained", "--erase", "self_food")
"""Further options of the run that tests share."""


@dataclass(frozen=True)
class RecordedFeatures:
    """A dump and the folder of its policy."""

    dump: Path
    policies: Path


def recorded_features(
    factory: pytest.TempPathFactory, world: EnvironmentSettings, task: TaskSettings, maps: Path, agent: str = START_KIT
) -> RecordedFeatures:
    """Record four episodes, once per test session and agent."""
    layers = 2 if agent == "yaofeng" else 1

    def build(folder: Path) -> None:
        entrant = tiny_entrant(world, task, maps, agent, seed=5, hidden_size=UNITS, lstm_layers=layers)
        path = folder / "policies" / f"{POLICY}.safetensors"
        if agent == START_KIT:
            with_small_inputs(entrant.policy)
        save_checkpoint(path, entrant.policy, entrant.info)
        entrant = replace(entrant, name=POLICY, sha256=sha256(path))
        plan = RecordingPlan(
            4, None, 4, LAYERS if layers == 1 else ALL_LAYERS, ("Market", "Task", "ActionTargets"), format="parquet"
        )
        watched = with_shadow_networks(entrant, (untrained_twin(entrant, plan.seed),))
        contest = Contest((watched,), world, task, maps, torch.device("cpu"))
        extract(contest, plan, [folder / "activation_data" / POLICY], Workers(1), lambda *_: None)

    folder = shared_folder(factory, f"recorded_features_{agent}", build)
    return RecordedFeatures(folder / "activation_data" / POLICY, folder / "policies")


def sparse_arguments(recorded: RecordedFeatures, output: Path, *more: object) -> list[object]:
    """Options of a quick run of train_sparse_autoencoder.py."""
    return [
        recorded.dump, "--width", "2x", "--k", 4, "--epochs", 2, "--kind", "topk,jumprelu", "--no-track",
        "--policies-dir", recorded.policies, "--output-dir", output, *more,
    ]  # fmt: skip


def shared_sparse_run(factory: pytest.TempPathFactory, recorded: RecordedFeatures) -> Path:
    """Return the folder of a finished run, made once per test session."""

    def train(output: Path) -> None:
        done = run_well("train_sparse_autoencoder.py", *sparse_arguments(recorded, output, *MORE))
        assert "topk_2x_k4" in done.stdout and "untrained_pca_k4" in done.stdout

    (folder,) = (path for path in shared_folder(factory, "sparse_features", train).iterdir() if path.is_dir())
    return folder
