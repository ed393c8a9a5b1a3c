"""What an edit does at once: to the distribution over actions, the value and the states of the policy's layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from activation_store.directions import Direction
from activation_store.interventions import PLANNED
from activation_store.planned_displacement import planned_displacement
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
        states: of some layers, (B, units) each.
    """

    distribution: ActionDistribution
    value: torch.Tensor
    states: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def take(self, agents: torch.Tensor) -> "Outputs":
        """Return the outputs for the given agents, (A,) int64 without repetitions, in their order."""
        states = {layer: each[agents] for layer, each in self.states.items()}
        return Outputs(self.distribution.take(agents), self.value[agents], states)


def at_once(unedited: Outputs, edited: Outputs, directions: Sequence[Direction] = ()) -> dict[str, torch.Tensor]:
    """Compare two outputs for the same observations of B agents.

    Args:
        unedited: without the edit.
        edited: with it.
        directions: whose read-outs are compared; both outputs need the states of their layers.

    Returns:
        By name, (B,) float64 each: `kl/HEAD`, the Kullback-Leibler divergence of the edited from the unedited
        distribution in nats, `kl`, their sum, since heads are independent; `value_change`; for heads of at most five
        options `gain/HEAD/OPTION`, the change of its probability; and `moved/DIRECTION`, the change of a read-out in
        its standard deviations. Planned displacements, the read-outs of `train_probes.py --targets future`, are
        reported in tiles as well, as `planned/DIRECTION`.
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
    found["value_change"] = (edited.value - unedited.value).double()
    for each in directions:
        weight = torch.from_numpy(each.weight).double()
        change = (edited.states[each.layer] - unedited.states[each.layer]).double() @ weight  # (B,)
        found[f"moved/{each.name}"] = change / (each.spread or 1.0)
        if planned_displacement(each.name):
            found[f"{PLANNED}{each.name}"] = change
    return found
