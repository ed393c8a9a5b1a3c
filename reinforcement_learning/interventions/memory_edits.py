"""Edits of an agent's memory between ticks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from agent_zoo.memory import MemoryState
from user_error import UserError


class MemoryEdit(ABC):
    """Decides with which memory edited agents begin a tick."""

    @abstractmethod
    def begin(self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor) -> MemoryState:
        """Return the memory before a tick of B edited agents.

        Args:
            memory: that they would have, if nothing were done in this tick.
            age: ticks since the edit began for each of them, 0 in the first one, (B,) int64.
            slots: places of the agents, (B,) int64; the same for an agent's whole life.
        """


@dataclass(frozen=True)
class Clear(MemoryEdit):
    """Empties the memory before every K-th tick.

    Attributes:
        every: K, at least 1.
    """

    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UserError(f"--every must be at least 1, not {self.every}")

    def begin(self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor) -> MemoryState:
        """See `MemoryEdit.begin`."""
        cleared = MemoryState(memory.hidden.clone(), memory.cell.clone())
        cleared.clear((age % self.every == 0).nonzero().squeeze(1))
        return cleared


class Freeze(MemoryEdit):
    """Begins every tick with the memory that the agent had when the edit began."""

    def __init__(self) -> None:
        self._held: MemoryState | None = None

    def begin(self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor) -> MemoryState:
        """See `MemoryEdit.begin`."""
        self._held = _with_room(self._held, memory, slots)
        new = (age == 0).nonzero().squeeze(1)
        self._held.put(slots[new], memory.take(new))
        return self._held.take(slots)


class MovedAsFar(MemoryEdit):
    """Moves each memory as far as another edit would, in a random direction."""

    def __init__(self, original: MemoryEdit, seed: int):
        self.original = original
        self._seed = seed

    def begin(self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor) -> MemoryState:
        """See `MemoryEdit.begin`."""
        edited = self.original.begin(memory, age, slots)
        return MemoryState(self._moved(memory.hidden, edited.hidden), self._moved(memory.cell, edited.cell))

    def _moved(self, before: torch.Tensor, edited: torch.Tensor) -> torch.Tensor:
        layers, _, units = before.shape
        random = torch.Generator().manual_seed(self._seed)
        direction = torch.randn(layers, 1, units, generator=random, dtype=torch.float64)
        direction /= direction.norm(dim=2, keepdim=True)
        far = (edited - before).double().norm(dim=2, keepdim=True)  # (layers, B, 1)
        return (before + far * direction.to(before.device)).to(before.dtype)


class KeptMemory(MemoryEdit):
    """Changes nothing: a control of the machinery."""

    def begin(self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor) -> MemoryState:
        """See `MemoryEdit.begin`."""
        return memory


def _with_room(held: MemoryState | None, memory: MemoryState, slots: torch.Tensor) -> MemoryState:
    """Return a store of memories by slot that has room for these slots."""
    wanted = int(slots.max()) + 1 if len(slots) else 0
    have = held.hidden.shape[1] if held else 0
    if held is not None and have >= wanted:
        return held
    layers, units = memory.hidden.shape[0], memory.hidden.shape[2]
    bigger = MemoryState(
        memory.hidden.new_zeros(layers, wanted, units), memory.cell.new_zeros(memory.cell.shape[0], wanted, units)
    )
    if held is not None:
        bigger.hidden[:, :have], bigger.cell[:, :have] = held.hidden, held.cell
    return bigger
