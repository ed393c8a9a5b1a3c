"""A small real dump for probes: all layers, an untrained twin, and a policy with a masked observation."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import untrained_twin, with_shadow_networks
from reinforcement_learning.play.extraction import RecordingPlan, extract
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.shared import shared_folder
from tests.tiny_policies import tiny_entrant

LAYERS = ("encoder_output", "lstm_hidden", "lstm_cell", "action_decoder")


def record_for_probes(
    folder: Path, world: EnvironmentSettings, task: TaskSettings, maps: Path, *, episodes: int = 4, steps: int = 0,
) -> Path:  # fmt: skip
    """Record a policy with this claimed training length, in a world that hides vitals, tick and position."""
    env = replace(world, mask_intrinsics="strict", relative_position=True, spawn_immunity=0)
    entrant = tiny_entrant(env, task, maps, seed=steps)
    entrant = replace(entrant, name=f"tiny_{steps:010d}", info=replace(entrant.info, steps=steps))
    watched = with_shadow_networks(entrant, (untrained_twin(entrant, seed=9),))
    plan = RecordingPlan(episodes, None, 4, LAYERS, format="parquet")
    extract(Contest((watched,), env, task, maps, torch.device("cpu")), plan, [folder], Workers(1), lambda *_: None)
    return folder


def shared_probe_dump(
    factory: pytest.TempPathFactory, world: EnvironmentSettings, task: TaskSettings, maps: Path, steps: int = 0
) -> Path:
    """The same with defaults, made once per test session."""
    name = f"tiny_{steps:010d}"
    folder = shared_folder(factory, name, lambda path: record_for_probes(path / name, world, task, maps, steps=steps))
    return folder / name
