"""Edits of the policy inside a world model, in every tick of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from agent_zoo.donor_rule import DonorRule
from agent_zoo.hooks import Hook
from agent_zoo.memory import MemoryState
from agent_zoo.memory_edits import MemoryEdit, Transplant
from agent_zoo.state_edits import Interchange, StateEdit


class TickEdits(Protocol):
    """Edits the policy in every tick."""

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor) -> MemoryState:
        """Return the memory with which B agents begin a tick, numbered from 0; called before `hooks`.

        Args:
            memory: that they would have.
            tick: from 0.
            own: their own rows as the policy sees them in the tick, (B, columns), as `SoftScene.own`.
        """

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """Return the hooks of a tick, given the memory with which it begins."""


@dataclass(frozen=True)
class Given:
    """What B agents get from their donors in a tick; nothing without donors.

    Attributes:
        memories: with which the donors begin the tick, by rule.
        states: of the donors, by rule and layer, (B, units) each.
    """

    memories: Mapping[DonorRule, MemoryState] = field(default_factory=dict)
    states: Mapping[tuple[DonorRule, str], torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Edits:
    """What is done to the policy in every tick.

    Attributes:
        name: such as steer-ic_3-dose+2.
        described: each edit as it is written to a dump's metadata.
        states: edits of layers, in their order.
        memories: edits of the memory with which a tick begins, in their order.
    """

    name: str
    described: tuple[dict[str, Any], ...]
    states: tuple[StateEdit | Interchange, ...] = ()
    memories: tuple[MemoryEdit | Transplant, ...] = ()

    @property
    def rules(self) -> tuple[DonorRule, ...]:
        """How donors are drawn; none if the edits need none. Edits with donors are made by `donors.EditsWithDonors`."""
        return tuple(
            dict.fromkeys(
                each.donor for each in (*self.memories, *self.states) if isinstance(each, Transplant | Interchange)
            )
        )

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose states are edited."""
        return tuple(dict.fromkeys(each.layer for each in self.states))

    def begin(self, memory: MemoryState, tick: int, own: torch.Tensor | None = None) -> MemoryState:
        """Return the memory with which B agents begin a tick, numbered from 0."""
        agents = torch.arange(memory.hidden.shape[1])
        return self.begun(memory, torch.full_like(agents, tick), agents, Given())

    def hooks(self, before: MemoryState) -> dict[str, Hook]:
        """Return the hooks of a tick, given the memory with which it begins."""
        return {layer: self._hook(layer, before) for layer in self.layers}

    def begun(self, memory: MemoryState, age: torch.Tensor, agents: torch.Tensor, given: Given) -> MemoryState:
        """Return the memory with which B agents begin a tick.

        Args:
            memory: that they would have.
            age: in how many ticks each was edited before, (B,) int64.
            agents: their numbers, (B,) int64.
            given: by their donors.
        """
        for each in self.memories:
            if isinstance(each, Transplant):
                each = each.taking(given.memories[each.donor])
            memory = each.begin(memory, age, agents)
        return memory

    def made(self, layer: str, before: MemoryState, states: torch.Tensor, given: Given) -> torch.Tensor:
        """Return the edited states of a layer.

        Args:
            layer: its name.
            before: memory with which the tick begins, of B agents.
            states: that the tick computed, (B, units).
            given: by their donors.
        """
        kind, of_memory = (LSTM_CELL, before.cell) if layer.startswith(LSTM_CELL) else (LSTM_HIDDEN, before.hidden)
        names = memory_names(kind, len(of_memory))
        place = names.index(layer) if layer in names else -1
        for each in self.states:
            if each.layer == layer:
                if isinstance(each, Interchange):
                    each = each.taking(given.states[each.donor, layer])
                states = each.edited(of_memory[place], states)
        return states

    def _hook(self, layer: str, before: MemoryState) -> Hook:
        return lambda states: self.made(layer, before, states, Given())
