"""PPO updates learn, also from auxiliary losses, are reproducible, and stop before a number that is not finite."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from agent_zoo.base import SegmentOutputs
from common.user_error import UserError
from reinforcement_learning.game.vectorization import first_episodes
from reinforcement_learning.play.entrants import untrained_entrant
from reinforcement_learning.settings import Settings, TrainSettings
from reinforcement_learning.training import ppo
from reinforcement_learning.training.ppo import AuxiliaryLoss, Minibatch, NamedLoss, minibatches, update
from reinforcement_learning.training.rollout import Rollout, RolloutCollector
from tests.command import assert_refuses
from tests.conftest import AGENT
from tests.reinforcement_learning.training.test_data_parallel import part_of
from tests.watched import stepper

SETTINGS = TrainSettings(batch_size=4096, minibatch_rows=64, bptt_horizon=8, update_epochs=2, learning_rate=1e-3)


@pytest.fixture(scope="module")
def policy(small_world, task, maps):
    return untrained_entrant(AGENT, Settings(env=small_world, task=task), maps, seed=0).policy


@pytest.fixture(scope="module")
def rollout(policy, small_world, task, maps) -> Rollout:
    player = stepper(policy, small_world, task, maps, first_episodes(0, 4))
    collector = RolloutCollector([player], SETTINGS.bptt_horizon, 0.99, 0.95)
    return collector.collect(SETTINGS.batch_size, on_tick=lambda _: None)


def updated(policy, rollout: Rollout, settings: TrainSettings = SETTINGS):
    """Return a copy of the policy after one update, and the losses."""
    learner = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(learner.parameters(), lr=settings.learning_rate)
    losses = update(learner, optimizer, rollout, settings, torch.Generator().manual_seed(1), on_minibatch=lambda: None)
    return learner, losses


def same_weights(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_minibatches_deal_every_decision_once_and_keep_segments_whole(rollout: Rollout) -> None:
    dealt = list(minibatches(rollout, SETTINGS, torch.Generator().manual_seed(0)))
    assert len(dealt) == SETTINGS.batch_size // (SETTINGS.minibatch_rows * SETTINGS.bptt_horizon)
    assert torch.equal(torch.cat([item.rows for item in dealt]).sort().values, torch.arange(len(rollout)))
    for minibatch in dealt:
        assert (minibatch.lengths[1:] <= minibatch.lengths[:-1]).all()
        assert torch.equal(minibatch.lengths, rollout.lengths[minibatch.segments])
        tick = rollout.observation.tick[minibatch.rows]
        first = torch.cumsum(minibatch.lengths, 0) - minibatch.lengths
        expected = torch.cat(
            [tick[f] + torch.arange(n) for f, n in zip(first.tolist(), minibatch.lengths.tolist(), strict=True)]
        )
        assert torch.equal(tick.long(), expected)


def test_first_minibatch_has_ratio_one_and_no_pass_follows_one_that_went_too_far(policy, rollout: Rollout) -> None:
    """Before the first step the policy is unchanged: nothing is clipped and the divergence is zero."""
    one_step = replace(SETTINGS, update_epochs=1, minibatch_rows=512, learning_rate=1e-9)
    _, losses = updated(policy, rollout, one_step)
    assert losses["clip_fraction"] == 0
    assert abs(losses["approximate_kl"]) < 1e-6
    # With a target that any step exceeds, several passes are one; with one that none reaches, all are made.
    one, several, all_of_them = (
        updated(policy, rollout, replace(SETTINGS, minibatch_rows=256, update_epochs=epochs, target_kl=target))[0]
        for epochs, target in ((1, None), (2, 1e-9), (2, 1e9))
    )
    assert same_weights(one, several)
    assert not same_weights(one, all_of_them)


def test_value_estimates_are_clipped_unless_told_not_to() -> None:
    value, old, returns = torch.tensor([0.5, 0.02]), torch.tensor([0.0, 0.0]), torch.tensor([0.5, 0.5])
    clipped = ppo._value_errors(value, old, returns, replace(SETTINGS, value_clip=0.1))
    torch.testing.assert_close(clipped, torch.tensor([0.16, 0.2304]))
    free = ppo._value_errors(value, old, returns, replace(SETTINGS, value_clip=0.1, clip_value=False))
    torch.testing.assert_close(free, torch.tensor([0.0, 0.2304]))


def test_advantageous_actions_become_likelier(policy, rollout: Rollout) -> None:
    index = [head.name for head in policy.policy.layout.heads].index("Move.Direction")
    paid = replace(rollout, advantage=torch.where(rollout.action[:, index] == 0, 1.0, -1.0))
    trained, _ = updated(policy, paid)
    observation = rollout.observation.take(torch.arange(500))
    with torch.no_grad():
        before, after = (
            case(observation, case.initial_state(500))[0].log_probabilities[index].exp()[:, 0].mean()
            for case in (policy, trained)
        )
    assert after > before + 0.02


def test_no_gradient_depends_on_the_order_of_threads(policy, rollout: Rollout) -> None:
    """Gradients of bracket indexing are summed atomically in the order of threads, so it must not be used.

    The differences are rare, in the last bit and on busy machines: repeating an update would not show them.
    """
    some = next(minibatches(rollout, SETTINGS, torch.Generator()))
    observation, state = rollout.observation.take(some.rows), rollout.state.take(some.segments)
    outputs = policy.forward_segments(observation, some.lengths, state)
    log_probability = outputs.distribution.log_probability(rollout.action[some.rows])
    loss = log_probability.sum() + outputs.distribution.entropy().sum() + outputs.value.sum()
    operations, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in operations:
            operations.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    names = {type(node).__name__ for node in operations}
    assert "IndexSelectBackward0" in names
    assert "IndexBackward0" not in names


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_it_reaches_the_weights(policy, rollout: Rollout, poison: float) -> None:
    advantage = rollout.advantage.clone()
    advantage[-1] = poison
    learner = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    settings = replace(SETTINGS, minibatch_rows=512)
    with pytest.raises(UserError, match=r"not a finite number.*last checkpoint is good"):
        update(
            learner, optimizer, replace(rollout, advantage=advantage), settings, torch.Generator(),
            on_minibatch=lambda: None,
        )  # fmt: skip
    assert same_weights(learner, policy)


AUXILIARY = replace(SETTINGS, batch_size=1024, learning_rate=3e-3)


@pytest.fixture(scope="module")
def part(rollout: Rollout) -> Rollout:
    return part_of(rollout, 0)


def calm(weight: float, name: str = "calm") -> AuxiliaryLoss:
    """Small hidden states."""
    return lambda outputs, *_: NamedLoss(name, outputs.hidden.square().mean(), weight)


def learned(policy, part: Rollout, auxiliary: list[AuxiliaryLoss], further: nn.Module | None = None):
    learner = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(learner.parameters(), lr=AUXILIARY.learning_rate)
    if further:
        optimizer.add_param_group({"params": list(further.parameters())})
    generator = torch.Generator().manual_seed(1)
    return learner, update(learner, optimizer, part, AUXILIARY, generator, lambda: None, auxiliary=auxiliary)


def test_a_loss_without_weight_changes_no_bit_and_one_with_weight_is_minimised(policy, part) -> None:
    alone = learned(policy, part, [])
    learner, losses = learned(policy, part, [calm(0.0)])
    assert same_weights(learner, alone[0]) and not same_weights(learner, policy)
    assert losses.pop("calm") > 0
    assert losses == alone[1]
    learner, losses = learned(policy, part, [calm(10.0), calm(0.0, "again")])
    assert not same_weights(learner, alone[0])
    assert losses["calm"] == losses["again"], "the metric is the loss before its weight"
    assert restlessness(learner, part) < 0.8 * restlessness(alone[0], part)


@torch.no_grad()
def restlessness(policy, part: Rollout) -> float:
    outputs = policy.forward_segments(part.observation.take(part.order), part.lengths, part.state)
    return float(outputs.hidden.square().mean())


class ValuesFromEncoder(nn.Module):
    """Predicts the critic's value from the encoder's output: a loss with its own weights."""

    def __init__(self, units: int):
        super().__init__()
        self.linear = nn.Linear(units, 1)

    def forward(self, outputs: SegmentOutputs, part: Rollout, minibatch: Minibatch) -> NamedLoss:
        target = part.value[minibatch.rows]
        return NamedLoss("values", (self.linear(outputs.encoder_output).squeeze(1) - target).square().mean())


def test_a_loss_may_learn_too_and_what_cannot_be_learnt_from_is_refused(policy, part) -> None:
    torch.manual_seed(0)
    predictor = ValuesFromEncoder(policy.policy.hidden_size)
    before = predictor.linear.weight.clone()
    first = learned(policy, part, [predictor], predictor)[1]["values"]
    second = learned(policy, part, [predictor], predictor)[1]["values"]
    assert not torch.equal(before, predictor.linear.weight) and second < first
    for names in (["policy"], ["gradient_norm"], ["calm", "calm"]):
        with pytest.raises(ValueError, match=f"two losses are named {names[0]}"):
            learned(policy, part, [calm(1.0, name) for name in names])
    assert_refuses(r"not a finite number.*'calm'", learned, policy, part, [calm(float("nan"))])
