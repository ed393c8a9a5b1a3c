"""What edited agents would do if nobody had ever edited them.

An edit of one tick is still in the memory of the next ones. So an agent's own memory, even before this tick's edit, is
not that of an unedited agent. A shadow is: it reads every observation of its agent, and no edit ever reaches it.
"""

from collections.abc import Sequence

import numpy as np
import torch

from activation_store.directions import Direction
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.memory import MemoryState
from reinforcement_learning.interventions.at_once import Outputs, at_once
from reinforcement_learning.play.stepper import Decision


class Shadows:
    """The shadows of one group of episodes.

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
            unedited: their memories before the tick and its edit.
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
            edited: what they do.
            directions: as in `at_once`.

        Returns:
            As `at_once`; exactly 0 for agents that nothing has changed so far.
        """
        mine = np.flatnonzero(self._begun[slots])
        numbers = at_once(edited, edited, directions) if len(mine) < len(slots) else {}
        if len(mine):
            shadows = self._outputs.take(torch.from_numpy(np.searchsorted(self._slots, slots[mine])))
            rows = torch.from_numpy(mine)
            found = at_once(shadows, edited.take(rows), directions)
            numbers = {name: values.index_copy(0, rows, found[name]) for name, values in numbers.items()} or found
        return numbers


def differ(one: MemoryState, other: MemoryState) -> torch.Tensor:
    """Return whether two memories of each of B agents differ at all, (B,) bool."""
    return (one.hidden != other.hidden).any(2).any(0) | (one.cell != other.cell).any(2).any(0)
