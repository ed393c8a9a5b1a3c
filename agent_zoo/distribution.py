"""The policy's choices: one masked categorical distribution a head, for a whole batch at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from agent_zoo.observation import ActionHead

_ILLEGAL = -1e9  # finite, so that an illegal option contributes 0 and not NaN to the entropy and to gradients


@dataclass(frozen=True)
class ActionDistribution:
    """Independent choices of H heads for B agents.

    Heads that point at table rows are as wide as the fullest table of the batch, plus the no-op, instead of as wide
    as the table could be: what is left out is illegal by construction.

    Attributes:
        heads: the layout's heads.
        logits: for each head (B, options in this batch) float.
        legal: for each head (B, options in this batch) bool; at least one option is legal.
    """

    heads: Sequence[ActionHead]
    logits: Sequence[torch.Tensor]
    legal: Sequence[torch.Tensor]

    @cached_property
    def log_probabilities(self) -> list[torch.Tensor]:
        """For each head, (B, options in this batch)."""
        masked = (scores.masked_fill(~legal, _ILLEGAL) for scores, legal in zip(self.logits, self.legal, strict=True))
        return [torch.log_softmax(scores, dim=-1) for scores in masked]

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Draw an option in each head, as the environment numbers them: (B, H) int64."""
        drawn = []
        for head, log_probability in zip(self.heads, self.log_probabilities, strict=True):
            # The largest of p / Exp(1) is a draw from p (the exponential form of the Gumbel-max trick).
            noise = torch.empty_like(log_probability).exponential_(generator=generator)
            option = (log_probability.exp() / noise).argmax(dim=-1)  # (B,)
            drawn.append(self._environment_option(head, option, log_probability.shape[1]))
        return torch.stack(drawn, dim=1)

    def log_probability(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probability of the options taken: actions (B, H) as the environment numbers them -> (B, H)."""
        columns = []
        for index, (head, log_probability) in enumerate(zip(self.heads, self.log_probabilities, strict=True)):
            option = self._batch_option(head, actions[:, index], log_probability.shape[1])
            columns.append(log_probability.gather(1, option.unsqueeze(1)).squeeze(1))
        return torch.stack(columns, dim=1)

    def entropy(self) -> torch.Tensor:
        """Entropy of each head in nats, (B, H)."""
        return torch.stack([-(each.exp() * each).sum(dim=-1) for each in self.log_probabilities], dim=1)

    @staticmethod
    def _environment_option(head: ActionHead, option: torch.Tensor, width: int) -> torch.Tensor:
        if head.candidates is None or head.noop is None:
            return option
        return torch.where(option == width - 1, head.noop, option)

    @staticmethod
    def _batch_option(head: ActionHead, option: torch.Tensor, width: int) -> torch.Tensor:
        if head.candidates is None or head.noop is None:
            return option
        return torch.where(option == head.noop, width - 1, option)
