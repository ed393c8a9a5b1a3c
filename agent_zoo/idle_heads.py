"""Choices that the game ignores because of another choice of the same tick, and what is left without them.

A price matters only if something is sold or given, a style of attack only if somebody is attacked, a recipient only if
something is given.
"""

from collections.abc import Sequence

import torch

from agent_zoo.network_parts.distribution import ActionDistribution
from agent_zoo.observation import ActionHead

DECIDED_BY = {
    "Attack.Style": "Attack.Target",
    "Give.Target": "Give.InventoryItem",
    "GiveGold.Price": "GiveGold.Target",
    "Sell.Price": "Sell.InventoryItem",
}
"""Heads, and the head whose no-op makes the game ignore them."""


def log_probability(distribution: ActionDistribution, actions: torch.Tensor, ignore_idle: bool) -> torch.Tensor:
    """Return the log-probability of the options taken, summed over heads, (B,).

    Args:
        actions: the environment's numbers of the options taken, (B, H) int64.
    """
    by_head = distribution.log_probability(actions)  # (B, H)
    if ignore_idle:
        by_head = by_head * counted(distribution.heads, actions)
    return by_head.sum(dim=1)


def entropy(distribution: ActionDistribution, ignore_idle: bool) -> torch.Tensor:
    """Return the entropy in nats, summed over heads, (B,).

    Args:
        ignore_idle: weight a head by the probability that the game does not ignore it. No gradient passes through these
            weights, so that nothing is sold for the sake of choosing a price.
    """
    by_head = distribution.entropy()  # (B, H)
    if not ignore_idle:
        return by_head.sum(dim=1)
    weights = torch.ones_like(by_head)
    for head, by in _pairs(distribution.heads):
        noop = distribution.heads[by].noop
        assert noop is not None
        weights[:, head] = 1 - distribution.probability_of(by, noop).detach()
    return (by_head * weights).sum(dim=1)


def counted(heads: Sequence[ActionHead], actions: torch.Tensor) -> torch.Tensor:
    """Return which options taken the game does not ignore because of another head, (B, H) bool.

    Args:
        actions: the environment's numbers of the options taken, (B, H) int64.
    """
    matters = torch.ones_like(actions, dtype=torch.bool)
    for head, by in _pairs(heads):
        matters[:, head] = actions[:, by] != heads[by].noop
    return matters


def _pairs(heads: Sequence[ActionHead]) -> list[tuple[int, int]]:
    """Return the index of each head that another can make idle, and that of the other."""
    place = {head.name: index for index, head in enumerate(heads)}
    return [(place[head], place[by]) for head, by in DECIDED_BY.items() if head in place and by in place]
