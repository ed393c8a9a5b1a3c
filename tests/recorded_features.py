"""A small real dump from which every tick can be computed again, with its policy, for sparse features."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from activation_store.files import sha256
from agent_zoo.checkpoint import save_checkpoint
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.play.extraction import Plan, extract
from reinforcement_learning.play.shadow_networks import untrained_twin, with_shadow_networks
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, PolicySettings, Settings, TaskSettings
from tests.conftest import AGENT
from tests.recorded_probes import LAYERS
from tests.shared import shared_folder

POLICY = "small"
UNITS = 16


@dataclass(frozen=True)
class RecordedFeatures:
    """A dump and the folder of its policy."""

    dump: Path
    policies: Path


def recorded_features(
    factory: pytest.TempPathFactory, world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> RecordedFeatures:
    """Record four episodes, once per test session."""

    def build(folder: Path) -> None:
        from dataclasses import replace

        settings = Settings(env=world, task=task, policy=PolicySettings(hidden_size=UNITS))
        entrant = untrained_entrant(AGENT, settings, maps, seed=5)
        path = folder / "policies" / f"{POLICY}.safetensors"
        save_checkpoint(path, entrant.policy, entrant.info)
        entrant = replace(entrant, name=POLICY, sha256=sha256(path))
        watched = with_shadow_networks(entrant, (untrained_twin(entrant, seed=9),))
        plan = Plan(4, None, 4, LAYERS, ("Market", "Task", "ActionTargets"), format="parquet")
        contest = Contest((watched,), world, task, maps, torch.device("cpu"))
        extract(contest, plan, [folder / "activation_data" / POLICY], Workers(1), lambda *_: None)

    folder = shared_folder(factory, "recorded_features", build)
    return RecordedFeatures(folder / "activation_data" / POLICY, folder / "policies")
