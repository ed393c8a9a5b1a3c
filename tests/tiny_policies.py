"""Checkpoints of small untrained networks, and options of the small world that they fit."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import save_checkpoint
from agent_zoo.network_parts.layers import entity_features
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import Entrant, untrained_entrant
from reinforcement_learning.settings import (
    EnvironmentSettings,
    PolicySettings,
    SemanticSettings,
    Settings,
    TaskSettings,
)

AGENTS = {"kit": ("neurips23_start_kit", 1), "yao": ("yaofeng", 2), "take": ("takeru", 0)}


def save_policies(
    folder: Path, env: EnvironmentSettings, task: TaskSettings, maps: Path,
    agents: Mapping[str, tuple[str, int]] = AGENTS,
) -> Path:  # fmt: skip
    """Save one checkpoint for each name -> (agent, layers of its LSTM)."""
    for seed, (name, (agent, layers)) in enumerate(agents.items()):
        settings = Settings(
            env=replace(env, resilient_population=0.2, early_stop_agents=2), task=task,
            policy=PolicySettings(32, layers),
        )  # fmt: skip
        entrant = untrained_entrant(agent, settings, maps, seed)
        save_checkpoint(folder / f"{name}.safetensors", entrant.policy, entrant.info)
    return folder


def tiny_entrant(
    env: EnvironmentSettings, task: TaskSettings, maps: Path, agent: str = AGENTS["kit"][0], seed: int = 0,
    codes: int = 0, **policy: Any,
) -> Entrant:  # fmt: skip
    """An untrained policy with 16 hidden units and one LSTM layer, unless `policy` says otherwise."""
    settings = Settings(
        env=env, task=task, policy=PolicySettings(**{"hidden_size": 16, **policy}), semantic=SemanticSettings(codes)
    )
    return untrained_entrant(agent, settings, maps, seed)


def tiny_contest(env: EnvironmentSettings, task: TaskSettings, maps: Path, *of: Any, **policy: Any) -> Contest:
    """That policy alone in its world."""
    return Contest((tiny_entrant(env, task, maps, *of, **policy),), env, task, maps, torch.device("cpu"))


@torch.no_grad()
def with_small_inputs(policy: RecurrentPolicy) -> RecurrentPolicy:
    """Divide the start kit's weights by the usual size of what they read, in place, and treble those of the projection.

    It reads numbers of hundreds as they are, so that the memory of an untrained one is full at once, and nothing that
    is done to it shows.
    """
    encoder: Any = policy.policy
    encoder.projection.weight *= 3
    usual = entity_features(encoder.layout).scale  # of all columns but one
    for layer in (encoder.self_encoder, encoder.entity_encoder):
        layer.weight[:, -len(usual) :] /= usual
    return policy


def world_options(env: EnvironmentSettings) -> list[object]:
    """Options with which a script plays in this world."""
    names = ("num_agents", "num_npcs", "map_size", "num_maps", "map_seed", "horizon", "maps_dir")
    return [part for name in names for part in (f"--env.{name.replace('_', '-')}", getattr(env, name))]
