"""The policy's choices: masked categorical distributions for a whole batch at once.

Most heads of most agents have a single legal option in most ticks: nobody to attack, nothing to sell. Such an option
has probability one, exactly zero log-probability and entropy, and no gradient, so it is stored rather than computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from agent_zoo.observation import ActionHead

ILLEGAL = -1e9  # finite, so that an illegal option contributes 0 and not NaN to the entropy and to gradients


@dataclass(frozen=True)
class Choices:
    """Q choices, each of one agent in one head, among at most K options."""

    agent: torch.Tensor  # index of the agent, (Q,) int64
    head: torch.Tensor  # index of the head, (Q,) int64
    logits: torch.Tensor
    """(Q, K) float; `ILLEGAL` for options that are not legal; each choice has at least one legal option."""
    option: torch.Tensor | None = None
    """The environment's number of each option, (Q, K) int64, -1 for none, the others in ascending order; None if column
    k is the environment's option k."""

    @cached_property
    def log_probabilities(self) -> torch.Tensor:
        """(Q, K)."""
        return torch.log_softmax(self.logits, dim=1)

    def widened(self, options: int) -> "Choices":
        """Return the same choices among at most `options` options; the last option stays in the last column."""
        added = options - self.logits.shape[1]
        if added == 0:
            return self
        assert self.option is not None
        logits, option = (
            torch.cat([table[:, :-1], table.new_full((len(table), added), empty), table[:, -1:]], dim=1)
            for table, empty in ((self.logits, ILLEGAL), (self.option, -1))
        )
        return Choices(self.agent, self.head, logits, option)

    def draw(self, uniforms: torch.Tensor) -> torch.Tensor:
        """Draw an option for each choice by inverting its cumulative distribution.

        Options are taken in the environment's order, so the draw depends only on the choice's own probabilities and
        uniform number, not on how rows are padded or batched.

        Args:
            uniforms: one number in [0, 1) for each choice, (Q,) float64.

        Returns:
            The environment's number of the option drawn, (Q,) int64. An option of probability 0 is never drawn.
        """
        probabilities = self.log_probabilities.double().exp()  # (Q, K); illegal options have exactly 0
        # Zeroing their sums excludes impossible options even if a parallel sum rounds unevenly. After division by the
        # largest sum, that of the last possible option is exactly 1, which exceeds every uniform number.
        sums = probabilities.cumsum(dim=1).masked_fill(probabilities == 0, 0)
        place = (sums / sums.amax(dim=1, keepdim=True) > uniforms.unsqueeze(1)).int().argmax(dim=1)
        return place if self.option is None else self.option.gather(1, place.unsqueeze(1)).squeeze(1)

    def log_probability(self, taken: torch.Tensor) -> torch.Tensor:
        """Log-probability of an option, by the environment's number, for each choice: (Q,) -> (Q,)."""
        place = taken if self.option is None else (self.option == taken.unsqueeze(1)).int().argmax(dim=1)
        return self.log_probabilities.gather(1, place.unsqueeze(1)).squeeze(1)

    def probability_of(self, option: int) -> torch.Tensor:
        """Probability of an option, by the environment's number, in each choice, (Q,); 0 where it is not legal."""
        probabilities = self.log_probabilities.exp()
        if self.option is None:
            return probabilities[:, option]
        return (probabilities * (self.option == option)).sum(dim=1)

    def uniform(self) -> "Choices":
        """Return the same choices with all legal options equally likely."""
        logits = torch.zeros_like(self.logits).masked_fill(self.logits < ILLEGAL / 2, ILLEGAL)
        return Choices(self.agent, self.head, logits, self.option)

    def entropy(self) -> torch.Tensor:
        """Entropy of each choice in nats, (Q,)."""
        return -(self.log_probabilities.exp() * self.log_probabilities).sum(dim=1)


@dataclass(frozen=True)
class ActionDistribution:
    """Independent distributions over the options of H heads for B agents."""

    heads: Sequence[ActionHead]
    only: torch.Tensor
    """The environment's number of the only legal option, for agents without a choice in a head; (B, H) int64."""
    choices: Sequence[Choices]  # all agents and heads with more than one legal option

    def take(self, agents: torch.Tensor) -> "ActionDistribution":
        """Return the distributions of the given agents, (A,) int64 without repetitions, in their order."""
        place = self.only.new_full((len(self.only),), -1).index_copy(
            0, agents, torch.arange(len(agents), device=self.only.device)
        )
        taken = []
        for choices in self.choices:
            (kept,) = (place[choices.agent] >= 0).nonzero(as_tuple=True)
            option = None if choices.option is None else choices.option[kept]
            taken.append(Choices(place[choices.agent[kept]], choices.head[kept], choices.logits[kept], option))
        return ActionDistribution(self.heads, self.only[agents], taken)

    @property
    def log_probabilities(self) -> list[torch.Tensor]:
        """For each head (B, size) float, over all of the environment's options; about `ILLEGAL` for illegal ones."""
        return [self.log_probabilities_of(index) for index in range(len(self.heads))]

    def sample(self, uniforms: torch.Tensor) -> torch.Tensor:
        """Draw an option in each head.

        Args:
            uniforms: a number in [0, 1) for each agent and head, (B, H) float64; ignored where an agent has no choice.

        Returns:
            The environment's numbers of the options, (B, H) int64.
        """
        drawn = self.only.clone()
        for choices in self.choices:
            drawn[choices.agent, choices.head] = choices.draw(uniforms[choices.agent, choices.head])
        return drawn

    def uniform(self) -> "ActionDistribution":
        """Return the distributions of agents that choose among the legal options of each head at random."""
        return ActionDistribution(self.heads, self.only, [choices.uniform() for choices in self.choices])

    def log_probability(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probability of the options taken, given by the environment's numbers: (B, H) -> (B, H)."""
        return self._over_heads(lambda choices: choices.log_probability(actions[choices.agent, choices.head]))

    def entropy(self) -> torch.Tensor:
        """Entropy of each head in nats, (B, H)."""
        return self._over_heads(Choices.entropy)

    def probability_of(self, head: int, option: int) -> torch.Tensor:
        """Probability of an option, by the environment's number, in the head with the given index, (B,)."""
        probability = (self.only[:, head] == option).to(self.choices[0].logits.dtype)
        for choices in self.choices:
            (mine,) = (choices.head == head).nonzero(as_tuple=True)
            if len(mine):
                probability = probability.index_put((choices.agent[mine],), choices.probability_of(option)[mine])
        return probability

    def _over_heads(self, number: Callable[[Choices], torch.Tensor]) -> torch.Tensor:
        """Spread one number per choice over agents and heads, zero where there is no choice: (B, H)."""
        agent = torch.cat([choices.agent for choices in self.choices])
        head = torch.cat([choices.head for choices in self.choices])
        numbers = torch.cat([number(choices) for choices in self.choices])
        return numbers.new_zeros(self.only.shape).index_put((agent, head), numbers)

    def divergence(self, other: "ActionDistribution") -> torch.Tensor:
        """Kullback-Leibler divergence KL(self || other) of each head in nats, (B, H) float64.

        Args:
            other: distributions for the same B observations, so that the same options are legal.
        """
        total = torch.zeros(self.only.shape, dtype=torch.float64, device=self.only.device)
        for mine, others in zip(self.choices, other.choices, strict=True):
            width = max(mine.logits.shape[1], others.logits.shape[1])
            before, after = (side.widened(width).log_probabilities.double() for side in (mine, others))
            total[mine.agent, mine.head] = (before.exp() * (before - after)).sum(dim=1)
        return total

    def log_probabilities_of(self, head: int) -> torch.Tensor:
        """Log-probabilities of one head, given by its index: (B, size), as in `log_probabilities`."""
        table = self.choices[0].logits.new_full((len(self.only), self.heads[head].size), ILLEGAL)
        table = table.scatter(1, self.only[:, [head]], 0)
        for choices in self.choices:
            (mine,) = (choices.head == head).nonzero(as_tuple=True)
            table = table.index_fill(0, choices.agent[mine], ILLEGAL)
            if choices.option is not None:
                question, place = ((choices.head == head).unsqueeze(1) & (choices.option >= 0)).nonzero(as_tuple=True)
                where = (choices.agent[question], choices.option[question, place])
                table = table.index_put(where, choices.log_probabilities[question, place])
            elif len(mine):
                table = table.index_copy(0, choices.agent[mine], choices.log_probabilities[mine])
        return table


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
    place = {head.name: index for index, head in enumerate(heads)}
    return [(place[head], place[by]) for head, by in DECIDED_BY.items() if head in place and by in place]
