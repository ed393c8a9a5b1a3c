"""A policy built by hand, in which one unit of its hidden state drives the move to the north and nothing else does."""

from dataclasses import replace
from pathlib import Path

import torch

from activation_store.interventions import LivesTable
from agent_zoo.base import RecurrentPolicy
from analysis.interventions.play.edited_play import PlayedGroup, play_arm
from analysis.interventions.play.experiment import ArmPlan
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.tiny_policies import tiny_entrant

UNITS, DRIVER = 16, 3


@torch.no_grad()
def drive(policy: RecurrentPolicy, weight: float, **units: int) -> None:
    """Let units drive the first options of the heads with these names in theirs, and nothing drive other options."""
    heads = policy.policy.action_decoder.heads
    for head in heads.values():
        head.weight.zero_()
        head.bias.zero_()
    for action, unit in units.items():
        (head,) = (head for name, head in heads.items() if action in name)
        head.weight[0, unit] = weight


@torch.no_grad()
def emptied_gates(policy: RecurrentPolicy) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Set all weights of an LSTM to 0, and return those of inputs, of hidden states, and the biases, to be written to.

    By gate, in the order input, forget, cell, output, and by unit, as in `nn.LSTM`: (4, UNITS, inputs), (4, UNITS,
    UNITS), (4, UNITS).
    """
    for weights in policy.lstm.parameters():
        weights.zero_()
    inputs, hidden, bias, _ = (part.detach().unflatten(0, (4, UNITS)) for part in policy.lstm.all_weights[0])
    return inputs, hidden, bias


def driven_contest(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> Contest:
    """The policy alone in a small world, for 18 ticks."""
    env = replace(small_world, spawn_immunity=0, horizon=18)
    entrant = tiny_entrant(env, task, maps, hidden_size=UNITS)
    drive(entrant.policy, 5, Move=DRIVER)
    return Contest((entrant,), env, task, maps, torch.device("cpu"))


def played(pool: PolicyPool, group: Group, plan: ArmPlan) -> PlayedGroup:
    """What a group of episodes of an arm leaves, none of which is recorded."""
    (result,) = play_arm(pool, group, plan)
    assert isinstance(result, PlayedGroup)
    return result


def lives_of(pool: PolicyPool, group: Group, plan: ArmPlan) -> LivesTable:
    return LivesTable.of_rows(played(pool, group, plan).rows)
