"""A small real dump of everything that a policy saw and computed, beside its checkpoint."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from activation_store.recording import SEEN_FIELDS
from agent_zoo.capture import ALL_LAYERS
from agent_zoo.checkpoint import save_checkpoint
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import load_entrant
from reinforcement_learning.play.extraction import RecordingPlan, extract
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.shared import shared_folder
from tests.tiny_policies import tiny_entrant

NAME = "small"


@dataclass(frozen=True)
class RecordedPolicy:
    """A dump and the folder of its policy."""

    dump: Path
    policies: Path

    @property
    def checkpoint(self) -> Path:
        return self.policies / f"{NAME}.safetensors"

    @property
    def arguments(self) -> tuple[object, ...]:
        """What scripts that study a dump are given."""
        return self.dump, "--policies-dir", self.policies


def record_policy(
    folder: Path,
    world: EnvironmentSettings,
    task: TaskSettings,
    maps: Path,
    *,
    layers: int = 1,
    episodes: int = 2,
    fields: tuple[str, ...] = SEEN_FIELDS,
) -> RecordedPolicy:
    """Record an untrained policy from its checkpoint file."""
    env = replace(world, spawn_immunity=0, num_npcs=48)
    made = tiny_entrant(env, task, maps, seed=5, lstm_layers=layers)
    result = RecordedPolicy(folder / NAME, folder / "policies")
    result.policies.mkdir()
    save_checkpoint(result.checkpoint, made.policy, made.info)
    plan = RecordingPlan(episodes, None, 4, ALL_LAYERS, fields, format="parquet")
    contest = Contest((load_entrant(result.checkpoint),), env, task, maps, torch.device("cpu"))
    extract(contest, plan, [result.dump], Workers(1), lambda *_: None)
    return result


def shared_recorded_policy(
    factory: pytest.TempPathFactory, world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> RecordedPolicy:
    """The same, made once per test session."""
    folder = shared_folder(factory, "recorded_policy", lambda path: record_policy(path, world, task, maps))
    return RecordedPolicy(folder / NAME, folder / "policies")
