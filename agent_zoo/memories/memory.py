"""What a memory is: the states that it keeps of each agent, and how it plays ticks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from activation_store.layers import LSTM_HIDDEN, memory_names
from agent_zoo.hooks import Hooks


@dataclass(frozen=True)
class MemoryState:
    """The memory of B agents."""

    hidden: torch.Tensor  # (layers, B, units)
    cell: torch.Tensor  # (layers, B, units); (0, B, units) in a memory without cell states

    def to(self, device: torch.device) -> "MemoryState":
        """Return the same memory on another device."""
        return MemoryState(self.hidden.to(device), self.cell.to(device))

    def take(self, agents: torch.Tensor) -> "MemoryState":
        """Return the memory of the given agents, in their order."""
        return MemoryState(self.hidden[:, agents], self.cell[:, agents])

    @staticmethod
    def concatenate(parts: "Sequence[MemoryState]") -> "MemoryState":
        """Return the memory of the agents of all parts, in order."""
        return MemoryState(
            torch.cat([part.hidden for part in parts], dim=1), torch.cat([part.cell for part in parts], dim=1)
        )

    def split(self, parts: int) -> "list[MemoryState]":
        """Return the memory of as many equal parts of the agents, in order."""
        pairs = zip(self.hidden.chunk(parts, dim=1), self.cell.chunk(parts, dim=1), strict=True)
        return [MemoryState(hidden, cell) for hidden, cell in pairs]

    def put(self, agents: torch.Tensor, state: "MemoryState") -> None:
        """Overwrite the memory of the given agents in place."""
        self.hidden[:, agents] = state.hidden
        self.cell[:, agents] = state.cell

    def clear(self, agents: torch.Tensor) -> None:
        """Zero the memory of the given agents in place, as at the start of a life."""
        self.hidden[:, agents] = 0
        self.cell[:, agents] = 0


class Memory(nn.Module, ABC):
    """A recurrent module of one or more layers, each of which reads the hidden state of the layer before it."""

    num_layers: int

    @abstractmethod
    def play(self, read: torch.Tensor, before: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        """Play T consecutive ticks of B agents.

        Args:
            read: what the first layer reads, (T, B, units).
            before: memory before the first tick.

        Returns:
            The last layer's hidden state after each tick, (T, B, units), and the memory after the last tick.
        """

    @abstractmethod
    def through_hooks(self, hooks: Hooks, read: torch.Tensor, before: MemoryState, after: MemoryState) -> MemoryState:
        """Show hooks the states that one tick left, and carry what they replace through the rest of the tick.

        A replaced hidden state is what the next layer reads. Agents that no hook changed keep their states bit for bit.

        Args:
            hooks: at the layers' names.
            read: what the first layer read, (B, units).
            before: memory before the tick.
            after: memory after the tick, as `play` computed it.

        Returns:
            The memory after the tick.
        """


class HiddenMemory(Memory):
    """A memory that keeps hidden states only."""

    @abstractmethod
    def play_layer(self, layer: int, read: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return one layer's hidden state after a tick, (B, units), from what it reads and its state before."""

    def through_hooks(self, hooks: Hooks, read: torch.Tensor, before: MemoryState, after: MemoryState) -> MemoryState:
        """See `Memory.through_hooks`."""
        hiddens = []
        read_unhooked = read
        for layer, name in enumerate(memory_names(LSTM_HIDDEN, self.num_layers)):
            computed = hidden = after.hidden[layer]  # (B, units)
            if read is not read_unhooked:
                again = self.play_layer(layer, read, before.hidden[layer])
                hidden = torch.where(changed_rows(read, read_unhooked), again, hidden)
            hidden = hooks.through(name, hidden)
            hiddens.append(hidden)
            read, read_unhooked = hidden, computed
        return MemoryState(torch.stack(hiddens), after.cell)


def changed_rows(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Say which rows differ, (B, 1) bool; all of them where a gradient is to flow through the new ones."""
    return (new != old).any(dim=1, keepdim=True) | new.requires_grad


def initialize_recurrent(module: nn.Module) -> None:
    """Give a memory orthogonal weights and no biases, in place."""
    for name, parameter in module.named_parameters():
        if "weight" in name:
            nn.init.orthogonal_(parameter)
        elif "bias" in name:
            nn.init.zeros_(parameter)


SHORTEST = 2.0
"""The shortest time constant, in ticks, with which units are started."""


def spread_time_constants(longest: float, units: int) -> torch.Tensor:
    """Return time constants from `SHORTEST` to `longest` ticks, evenly spaced on a logarithmic scale, (units,)."""
    return SHORTEST * (longest / SHORTEST) ** torch.linspace(0, 1, units)


def start_slow(memory: "Memory", longest: float) -> None:
    """Set the gates of an LSTM or a GRU so that, before training, units keep what they hold for a while, in place.

    With no biases, half of a unit's state is lost in each tick, so that nothing learns to use what was seen 10 ticks
    earlier. Here the biases alone give units the time constants of `spread_time_constants`: those of forget gates (of
    an LSTM, whose input gates get the opposite) or of update gates (of a GRU). A memory of moving averages is left as
    it is. Tallec and Ollivier (2018, Can recurrent neural networks warp time?) draw the times at random instead.
    """
    if not isinstance(memory, nn.LSTM | nn.GRU):
        return
    keep = -(1 / spread_time_constants(longest, memory.hidden_size)).expm1().log()  # logit of exp(-1 / ticks), (units,)
    with torch.no_grad():
        for _, _, bias, _ in memory.all_weights:
            gates = bias.view(-1, memory.hidden_size)  # LSTM: input, forget, candidate, output; GRU: reset, update, new
            gates[1] = keep
            if isinstance(memory, nn.LSTM):
                gates[0] = -keep
