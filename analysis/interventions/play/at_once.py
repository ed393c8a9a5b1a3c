"""What an edit does at once: to the distribution over actions, the value and the states of the policy's layers.

It is compared with the same agent without this tick's edit (in play), with what the agent would do if nobody had ever
edited it (in total), and with what random edits would do in the very same states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from activation_store.directions import Direction, planned_displacement
from activation_store.interventions import Comparison, Outcome
from activation_store.schema import OPTIONS
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ActionDistribution
from analysis.interventions.edits.donor_rule import DonorRule, Donors
from reinforcement_learning.play.stepper import Decision

_MOST_OPTIONS_NAMED = 5


@dataclass(frozen=True)
class Outputs:
    """A policy's outputs for B agents.

    Attributes:
        value: (B,).
        states: of some layers, (B, units) each.
    """

    distribution: ActionDistribution
    value: torch.Tensor
    states: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def take(self, agents: torch.Tensor) -> "Outputs":
        """Return the outputs for the given agents, (A,) int64 without repetitions, in their order."""
        states = {layer: state[agents] for layer, state in self.states.items()}
        return Outputs(self.distribution.take(agents), self.value[agents], states)


def at_once(
    unedited: Outputs, edited: Outputs, against: Comparison, directions: Sequence[Direction] = ()
) -> dict[str, torch.Tensor]:
    """Compare two outputs for the same observations of B agents.

    Args:
        directions: whose read-outs are compared; both outputs need the states of their layers.

    Returns:
        By the name of the outcome, (B,) float64 each: `kl` of each head, the Kullback-Leibler divergence of the edited
        from the unedited distribution in nats, and their sum, since heads are independent; `value_change`; for heads of
        at most five options the `gain` of each, the change of its probability; and by how many of its standard
        deviations a read-out has `moved`. Planned displacements, the read-outs of `train_probes.py --targets future`,
        are reported in tiles as well, as `planned`.
    """
    before, after, heads = unedited.distribution, edited.distribution, unedited.distribution.heads
    divergence = before.divergence(after)  # (B, H)
    changes = {Outcome("kl"): divergence.sum(dim=1)}
    changes |= {Outcome("kl", head.name): divergence[:, place] for place, head in enumerate(heads)}
    for place, head in enumerate(heads):
        if head.size <= _MOST_OPTIONS_NAMED:
            gains = after.log_probabilities_of(place).double().exp() - before.log_probabilities_of(place).double().exp()
            names = OPTIONS.get(head.name, tuple(map(str, range(head.size))))
            changes |= {
                Outcome("gain", f"{head.name}/{name.title()}"): gains[:, option] for option, name in enumerate(names)
            }
    changes[Outcome("value_change")] = (edited.value - unedited.value).double()
    for direction in directions:
        weight = torch.from_numpy(direction.weight).double()
        change = (edited.states[direction.layer] - unedited.states[direction.layer]).double() @ weight  # (B,)
        changes[Outcome("moved", direction.name)] = change / (direction.spread or 1.0)
        if planned_displacement(direction.name):
            changes[Outcome("planned", direction.name)] = change
    return {replace(outcome, against=against).name: values for outcome, values in changes.items()}


class Shadows:
    """What edited agents would do if nobody had ever edited them, in one group of episodes.

    An edit of one tick is still in the memory of the next ones. So an agent's own memory, even before this tick's edit,
    is not that of an unedited agent. A shadow is: it reads every observation of its agent, and no edit ever reaches it.
    An agent has one from the tick in which an edit first changes it to the end of its life. Before, it is its own.
    """

    def __init__(self, policy: RecurrentPolicy, slots: int, layers: Sequence[str]):
        """Prepare for agents in so many slots; `layers` are those whose states are compared."""
        self._policy, self._layers = policy, layers
        self._memory = policy.initial_state(slots)
        self._begun = np.zeros(slots, dtype=bool)
        self._slots = np.zeros(0, dtype=np.int64)  # of the shadows that have read this tick
        self._outputs: Outputs

    def begin(self, slots: np.ndarray, unedited: MemoryState, changed: torch.Tensor) -> None:
        """Begin the shadows of agents that are changed for the first time.

        Args:
            slots: of E agents that are edited in this tick, (E,) int64.
            changed: whether the edit changes anything of them, (E,) bool.
        """
        new = torch.from_numpy(~self._begun[slots]) & changed.cpu()
        device = self._memory.hidden.device
        self._memory.put(torch.from_numpy(slots)[new].to(device), unedited.take(new.to(device)))
        self._begun[slots[new.numpy()]] = True

    @torch.no_grad()
    def read(self, decision: Decision) -> None:
        """Let all shadows read the observations of a tick; `decision` is that of their agents."""
        self._begun &= decision.acting  # other slots have lost their memory
        rows = np.flatnonzero(self._begun[decision.present])
        self._slots = decision.present[rows]
        if not len(rows):
            return
        device = self._memory.hidden.device
        places = torch.from_numpy(self._slots).to(device)
        seen = decision.observation.take(torch.from_numpy(rows)).to(device)
        with capture(self._policy, self._layers) as states:
            distribution, value, after = self._policy(seen, self._memory.take(places))
        self._memory.put(places, after)
        self._outputs = Outputs(distribution, value.cpu(), states)

    def compare(self, slots: np.ndarray, edited: Outputs, directions: Sequence[Direction]) -> dict[str, torch.Tensor]:
        """Compare what E agents do in this tick with what their shadows do.

        Args:
            slots: of the agents, ascending, (E,) int64.
            directions: as in `at_once`.

        Returns:
            As `at_once`; exactly 0 for agents that nothing has changed so far.
        """
        mine = np.flatnonzero(self._begun[slots])
        numbers = at_once(edited, edited, "total", directions) if len(mine) < len(slots) else {}
        if len(mine):
            shadows = self._outputs.take(torch.from_numpy(np.searchsorted(self._slots, slots[mine])))
            rows = torch.from_numpy(mine)
            changes = at_once(shadows, edited.take(rows), "total", directions)
            numbers = {name: values.index_copy(0, rows, changes[name]) for name, values in numbers.items()} or changes
        return numbers


def differ(one: MemoryState, other: MemoryState) -> torch.Tensor:
    """Return whether two memories of each of B agents differ at all, (B,) bool."""
    return (one.hidden != other.hidden).any(2).any(0) | (one.cell != other.cell).any(2).any(0)


def donors_behind(count: int, donors: Mapping[DonorRule, Donors]) -> tuple[torch.Tensor, dict[DonorRule, Donors]]:
    """Line donors up behind E edited agents.

    Returns:
        Rows of all donors among the acting agents, (D,), and the donors with their rows among E + D agents instead.
    """
    lined_up, rows = {}, [torch.zeros(0, dtype=torch.int64)]
    behind = count
    for rule, donor in donors.items():
        rows.append(donor.rows)
        lined_up[rule] = replace(donor, rows=torch.arange(behind, behind + len(donor.rows)))
        behind += len(donor.rows)
    return torch.cat(rows), lined_up
