"""A policy built by hand: one unit of its hidden state drives the move to the north, and nothing else does."""

from dataclasses import replace
from pathlib import Path

import torch

from reinforcement_learning.play.contest import Contest
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.tiny_policies import tiny_entrant

UNITS, DRIVER = 16, 3


def driven_contest(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> Contest:
    """The policy alone in a small world, for 28 ticks."""
    env = replace(small_world, spawn_immunity=0, horizon=28)
    entrant = tiny_entrant(env, task, maps, hidden_size=UNITS)
    with torch.no_grad():
        for head in entrant.policy.policy.action_decoder.heads.values():
            head.weight.zero_()
            head.bias.zero_()
        north = next(each for key, each in entrant.policy.policy.action_decoder.heads.items() if "Move" in key)
        north.weight[0, DRIVER] = 5
    return Contest((entrant,), env, task, maps, torch.device("cpu"))
