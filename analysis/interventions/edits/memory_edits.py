"""Edits of an agent's memory between ticks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from agent_zoo.memory import MemoryState
from analysis.interventions.edits.donor_rule import DonorRule


class MemoryEdit:
    """Decides with which memory edited agents begin a tick; by itself, it changes nothing."""

    donor: DonorRule | None = None  # how donors are drawn, if the edit takes something from their memories

    def begin(
        self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor, donors: MemoryState | None = None
    ) -> MemoryState:
        """Return the memory before a tick of B edited agents.

        Args:
            memory: that they would have, if nothing were done in this tick.
            age: ticks since the edit began for each of them, 0 in the first one, (B,) int64.
            slots: places of the agents, (B,) int64; the same for an agent's whole life.
            donors: memories of the agents' donors before the tick, if `donor` says that they have any.
        """
        return memory


@dataclass(frozen=True)
class Clear(MemoryEdit):
    """Empties the memory before every K-th tick."""

    every: int  # K, at least 1

    def begin(
        self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor, donors: MemoryState | None = None
    ) -> MemoryState:
        """See `MemoryEdit.begin`."""
        cleared = _of_both(torch.clone, memory)
        cleared.clear((age % self.every == 0).nonzero().squeeze(1))
        return cleared


class Freeze(MemoryEdit):
    """Begins every tick with the memory that the agent had when the edit began."""

    def __init__(self) -> None:
        self._held: MemoryState | None = None

    def begin(
        self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor, donors: MemoryState | None = None
    ) -> MemoryState:
        """See `MemoryEdit.begin`."""
        self._held = _with_room(self._held, memory, slots)
        new = (age == 0).nonzero().squeeze(1)
        self._held.put(slots[new], memory.take(new))
        return self._held.take(slots)


@dataclass(frozen=True)
class MovedAsFar(MemoryEdit):
    """Moves each memory as far as another edit would, in a random direction.

    A memory keeps what was moved, so moves would add up from tick to tick. Each one therefore starts where the memory
    has no part along the direction.
    """

    original: MemoryEdit
    seed: int

    @property
    def donor(self) -> DonorRule | None:  # type: ignore[override]
        """See `MemoryEdit`."""
        return self.original.donor

    def begin(
        self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor, donors: MemoryState | None = None
    ) -> MemoryState:
        """See `MemoryEdit.begin`."""
        along = _of_both(self._direction, memory)
        start = _of_both(_without, memory, along)
        return _of_both(_moved, memory, start, self.original.begin(start, age, slots, donors), along)

    def _direction(self, memory: torch.Tensor) -> torch.Tensor:
        """A direction of length 1 for each layer, (layers, 1, units) float64."""
        random = torch.Generator().manual_seed(self.seed)
        direction = torch.randn(len(memory), 1, memory.shape[2], generator=random, dtype=torch.float64)
        return (direction / direction.norm(dim=2, keepdim=True)).to(memory.device)


@dataclass(frozen=True)
class Transplant(MemoryEdit):
    """Begins every K-th tick with the memory of another agent."""

    donor: DonorRule = field()  # not the default of every edit, None
    every: int  # K, at least 1

    def begin(
        self, memory: MemoryState, age: torch.Tensor, slots: torch.Tensor, donors: MemoryState | None = None
    ) -> MemoryState:
        """See `MemoryEdit.begin`."""
        assert donors is not None
        now = (age % self.every == 0).to(memory.hidden.device)[None, :, None]  # (1, B, 1)
        return _of_both(lambda donor, own: torch.where(now, donor, own), donors, memory)


class KeptMemory(MemoryEdit):
    """Changes nothing: a control of the machinery."""


def _with_room(held: MemoryState | None, memory: MemoryState, slots: torch.Tensor) -> MemoryState:
    """Return a store of memories by slot that has room for these slots."""
    wanted = int(slots.max()) + 1 if len(slots) else 0
    have = held.hidden.shape[1] if held else 0
    if held is not None and have >= wanted:
        return held
    bigger = _of_both(lambda states: states.new_zeros(len(states), wanted, states.shape[2]), memory)
    if held is not None:
        bigger.hidden[:, :have], bigger.cell[:, :have] = held.hidden, held.cell
    return bigger


def _of_both(function: Callable[..., torch.Tensor], *memories: MemoryState) -> MemoryState:
    """Return the memory of what a function makes of hidden states, and of cells, (layers, B, units)."""
    return MemoryState(
        function(*(memory.hidden for memory in memories)), function(*(memory.cell for memory in memories))
    )


def _without(memory: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Take the part along a direction out of memories, (layers, B, units)."""
    wide = memory.double()
    return (wide - (wide * direction).sum(dim=2, keepdim=True) * direction).to(memory.dtype)


def _moved(memory: torch.Tensor, start: torch.Tensor, edited: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Move memories from `start` as far as `edited` is from it; those that are not edited stay as they are."""
    far = (edited - start).double().norm(dim=2, keepdim=True)  # (layers, B, 1)
    return torch.where(far > 0, start + far * direction, memory).to(memory.dtype)


def memory_states(memory: MemoryState) -> Mapping[str, torch.Tensor]:
    """Return the states of each layer of a memory by name, (B, units) each."""
    return {
        name: states[number]
        for kind, states in ((LSTM_HIDDEN, memory.hidden), (LSTM_CELL, memory.cell))
        for number, name in enumerate(memory_names(kind, len(states)))
    }
