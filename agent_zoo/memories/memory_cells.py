"""The memories that a policy can be given, by the name of their cell."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import MemoryCell
from agent_zoo.memories.leaky_average import LeakyAverages
from agent_zoo.memories.lstm_memory import LSTM
from agent_zoo.memories.memory import HiddenMemory, Memory, MemoryState, initialize_recurrent


class GRU(nn.GRU, HiddenMemory):
    """torch's GRU, with hooks at its hidden states."""

    def __init__(self, units: int, layers: int):
        super().__init__(units, units, layers)
        initialize_recurrent(self)

    def play(self, read: torch.Tensor, before: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        """See `Memory.play`."""
        output, hidden = self(read, before.hidden)
        return output, MemoryState(hidden, before.cell)

    def play_layer(self, layer: int, read: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """See `HiddenMemory.play_layer`; gates as `nn.GRU` defines them."""
        input_weight, hidden_weight, input_bias, hidden_bias = self.all_weights[layer]
        reset, update, candidate = functional.linear(read, input_weight, input_bias).chunk(3, dim=1)  # (B, units) each
        own_reset, own_update, own_candidate = functional.linear(hidden, hidden_weight, hidden_bias).chunk(3, dim=1)
        kept = (update + own_update).sigmoid()
        new = (candidate + (reset + own_reset).sigmoid() * own_candidate).tanh()
        return (1 - kept) * new + kept * hidden


CELLS: dict[MemoryCell, Callable[[int, int], Memory]] = {"lstm": LSTM, "gru": GRU, "ema": LeakyAverages}
"""Each builds a memory from its units and its number of layers."""
