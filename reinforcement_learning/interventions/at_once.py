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
    found = {}
    heads = unedited.distribution.heads
    pairs = zip(unedited.distribution.log_probabilities, edited.distribution.log_probabilities, strict=True)
    for head, (before, after) in zip(heads, pairs, strict=True):
        before, after = before.double(), after.double()  # (B, options)
        found[f"kl/{head.name}"] = (before.exp() * (before - after)).sum(dim=1)
        if head.size <= _MOST_OPTIONS_NAMED:
            gains = after.exp() - before.exp()
            names = _OPTIONS.get(head.name, tuple(map(str, range(head.size))))
            found |= {f"gain/{head.name}/{name}": gains[:, place] for place, name in enumerate(names)}
    total = torch.stack([found[f"kl/{head.name}"] for head in heads]).sum(dim=0)
    return {"kl": total, **found, "value_change": (edited.value - unedited.value).double()}
