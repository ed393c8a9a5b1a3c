"""Transplants: edited agents begin a tick with the memory of another agent."""

from dataclasses import dataclass

import torch

from agent_zoo.donor_rule import DonorRule
from agent_zoo.memory import MemoryState
from agent_zoo.memory_edits import MemoryEdit, MovedAsFar


@dataclass(frozen=True)
class Transplant:
    """An edit of the memory that becomes a `MemoryEdit` in each tick, when the donors' memories are known.

    Attributes:
        donor: how donors are drawn.
        every: edited ticks from one transplant to the next, at least 1.
        seed: None, or for a control the seed of the random direction in which the memory is moved as far instead.
    """

    donor: DonorRule
    every: int
    seed: int | None = None

    def taking(self, donors: MemoryState) -> MemoryEdit:
        """Return the edit of E agents, given the memories of their donors before this tick."""
        edit = Received(donors, self.every)
        return edit if self.seed is None else MovedAsFar(edit, self.seed)


@dataclass(frozen=True, eq=False)
class Received(MemoryEdit):
    """Begins every K-th tick with given memories.

    Attributes:
        memory: of B agents.
        every: K.
    """

    memory: MemoryState
    every: int

    def begin(self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor) -> MemoryState:
        """See `MemoryEdit.begin`."""
        now = (age % self.every == 0).to(memory.hidden.device)[None, :, None]  # (1, B, 1)
        return MemoryState(
            torch.where(now, self.memory.hidden, memory.hidden), torch.where(now, self.memory.cell, memory.cell)
        )
