"""Auxiliary losses of PPO: none, or one of weight zero, changes nothing; others affect learning and are reported."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from agent_zoo.base import SegmentOutputs
from reinforcement_learning.training.ppo import AuxiliaryLoss, Minibatch, NamedLoss, update
from reinforcement_learning.training.rollout import Rollout
from tests.command import assert_refuses
from tests.reinforcement_learning.training import test_ppo
from tests.reinforcement_learning.training.test_data_parallel import part_of
from tests.reinforcement_learning.training.test_ppo import policy, same_weights  # noqa: F401

SETTINGS = replace(test_ppo.SETTINGS, batch_size=1024, learning_rate=3e-3)
whole_rollout = test_ppo.rollout


@pytest.fixture(scope="module")
def rollout(whole_rollout: Rollout) -> Rollout:
    return part_of(whole_rollout, 0)


def calm(weight: float, name: str = "calm") -> AuxiliaryLoss:
    """Small hidden states."""
    return lambda outputs, *_: NamedLoss(name, outputs.hidden.square().mean(), weight)


def learned(policy, rollout: Rollout, auxiliary: list[AuxiliaryLoss], further: nn.Module | None = None):  # noqa: F811
    learner = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(learner.parameters(), lr=SETTINGS.learning_rate)
    if further:
        optimizer.add_param_group({"params": list(further.parameters())})
    generator = torch.Generator().manual_seed(1)
    return learner, update(learner, optimizer, rollout, SETTINGS, generator, lambda: None, auxiliary=auxiliary)


def test_a_loss_without_weight_changes_no_bit_and_one_with_weight_is_minimised(policy, rollout) -> None:  # noqa: F811
    alone = learned(policy, rollout, [])
    learner, losses = learned(policy, rollout, [calm(0.0)])
    assert same_weights(learner, alone[0]) and not same_weights(learner, policy)
    assert losses.pop("calm") > 0
    assert losses == alone[1]
    learner, losses = learned(policy, rollout, [calm(10.0), calm(0.0, "again")])
    assert not same_weights(learner, alone[0])
    assert losses["calm"] == losses["again"], "the metric is the loss before its weight"
    assert restlessness(learner, rollout) < 0.8 * restlessness(alone[0], rollout)


@torch.no_grad()
def restlessness(policy, rollout: Rollout) -> float:  # noqa: F811
    outputs = policy.forward_segments(rollout.observation.take(rollout.order), rollout.lengths, rollout.state)
    return float(outputs.hidden.square().mean())


class ValuesFromEncoder(nn.Module):
    """Predicts the critic's value from the encoder's output: a loss with its own weights."""

    def __init__(self, units: int):
        super().__init__()
        self.linear = nn.Linear(units, 1)

    def forward(self, outputs: SegmentOutputs, rollout: Rollout, minibatch: Minibatch) -> NamedLoss:
        target = rollout.value[minibatch.rows]
        return NamedLoss("values", (self.linear(outputs.encoder_output).squeeze(1) - target).square().mean())


def test_a_loss_may_learn_too_and_what_cannot_be_learnt_from_is_refused(policy, rollout) -> None:  # noqa: F811
    torch.manual_seed(0)
    predictor = ValuesFromEncoder(policy.policy.hidden_size)
    before = predictor.linear.weight.clone()
    first = learned(policy, rollout, [predictor], predictor)[1]["values"]
    second = learned(policy, rollout, [predictor], predictor)[1]["values"]
    assert not torch.equal(before, predictor.linear.weight) and second < first
    for names in (["policy"], ["gradient_norm"], ["calm", "calm"]):
        with pytest.raises(ValueError, match=f"two losses are named {names[0]}"):
            learned(policy, rollout, [calm(1.0, name) for name in names])
    assert_refuses(r"not a finite number.*'calm'", learned, policy, rollout, [calm(float("nan"))])
