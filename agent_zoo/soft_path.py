"""A policy's tick for observations known in probabilities, which gradients flow through from actions to observation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch.nn import functional

from activation_store.layers import ENCODER_OUTPUT
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.layers import ActionDecoder
from agent_zoo.network_parts.soft_observation import SoftCandidates, SoftObservation, log_legality
from common.user_error import UserError


@runtime_checkable
class ReadsProbabilities(Protocol):
    """A policy that can encode observations known in probabilities."""

    def encode_soft(self, observation: SoftObservation) -> tuple[torch.Tensor, SoftCandidates]:
        """Return the encoder's output, (B, hidden), and what the action heads choose among."""


@dataclass(frozen=True)
class SoftChoices:
    """What a policy makes of B observations known in probabilities."""

    log_probabilities: Mapping[str, torch.Tensor]  # head -> (B, options); options as in `SoftObservation.legal`
    value: torch.Tensor  # (B,)


def check_reads_probabilities(policy: RecurrentPolicy, agent: str) -> None:
    """Refuse a policy that cannot read observations known in probabilities."""
    if not isinstance(policy.policy, ReadsProbabilities):
        raise UserError(
            f"this network of the agent {agent} has no `encode_soft`, so it cannot read the probabilities that a world "
            "model predicts: give a policy of another agent in agent_zoo/, or add `encode_soft` to the agent's Policy"
        )


def soft_tick(
    policy: RecurrentPolicy, observation: SoftObservation, state: MemoryState
) -> tuple[SoftChoices, MemoryState]:
    """Play one tick of B agents and return their choices and the memory afterwards.

    Hooks see the same layers as in `RecurrentPolicy.forward`. On probabilities of 0 and 1 the results are those of
    `forward` but for rounding.
    """
    assert isinstance(policy.policy, ReadsProbabilities)
    encoded, candidates = policy.policy.encode_soft(observation)
    hidden, after = policy.remember(policy.through(ENCODER_OUTPUT, encoded), state)
    read = policy.read(hidden)
    scores = soft_scores(policy.policy.action_decoder, read, candidates, observation.legal)
    return SoftChoices(scores, policy.policy.critic(read).squeeze(-1)), after


def soft_scores(
    decoder: ActionDecoder, read: torch.Tensor, candidates: SoftCandidates, legal: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the log-probability of every option, head -> (B, options).

    The weight of an option among the others is multiplied by the probability that it is legal.

    Args:
        read: its input, (B, hidden).
    """
    by_head = {}
    for head in decoder.layout.heads:
        if head.candidates:
            rows, noop = decoder.row_scores(head, read, candidates[head.candidates])
            scores = torch.cat([rows, noop.unsqueeze(1)], dim=1)
        else:
            scores = decoder.own_scores(head, read)
        by_head[head.name] = functional.log_softmax(scores + log_legality(legal[head.name]), dim=1)
    return by_head


def straight_through(log_probabilities: torch.Tensor, option: torch.Tensor) -> torch.Tensor:
    """One-hot vectors of chosen options, (B,) int64 to (B, options), with the gradients of the probabilities.

    Bengio, Leonard and Courville 2013, arXiv:1308.3432.
    """
    probabilities = log_probabilities.exp()
    hard = functional.one_hot(option, probabilities.shape[1]).to(probabilities.dtype)
    return hard + probabilities - probabilities.detach()
