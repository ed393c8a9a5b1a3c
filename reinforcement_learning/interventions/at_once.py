"""What an edit does at once: to the distribution over actions and the value, in the same state."""

from dataclasses import dataclass

import torch

from agent_zoo.distribution import ActionDistribution

_MOST_OPTIONS_NAMED = 5
_OPTIONS = {
    "Move.Direction": ("North", "South", "East", "West", "Stay"),
    "Attack.Style": ("Melee", "Range", "Mage"),
}


@dataclass(frozen=True)
class Outputs:
    """A policy's outputs for B agents.

    Attributes:
        distribution: over their actions.
        value: (B,).
    """

    distribution: ActionDistribution
    value: torch.Tensor


def at_once(unedited: Outputs, edited: Outputs) -> dict[str, torch.Tensor]:
    """Compare two outputs for the same B agents in the same state.

    Returns:
        By name, (B,) float64 each: `kl/HEAD`, the Kullback-Leibler divergence of the edited from the unedited
        distribution in nats, `kl`, their sum, since heads are independent; `value_change`; and for heads of at most
        five options `gain/HEAD/OPTION`, the change of its probability.
    """
    before, after, heads = unedited.distribution, edited.distribution, unedited.distribution.heads
    divergence = before.divergence(after)  # (B, H)
    found = {"kl": divergence.sum(dim=1)} | {
        f"kl/{head.name}": divergence[:, place] for place, head in enumerate(heads)
    }
    for place, head in enumerate(heads):
        if head.size <= _MOST_OPTIONS_NAMED:
            gains = after.log_probabilities_of(place).double().exp() - before.log_probabilities_of(place).double().exp()
            names = _OPTIONS.get(head.name, tuple(map(str, range(head.size))))
            found |= {f"gain/{head.name}/{name}": gains[:, option] for option, name in enumerate(names)}
    return found | {"value_change": (edited.value - unedited.value).double()}
