"""The LSTM: a memory with a hidden and a cell state in each layer (Hochreiter and Schmidhuber 1997)."""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from agent_zoo.hooks import Hooks
from agent_zoo.memories.memory import Memory, MemoryState, changed_rows, initialize_recurrent


class LSTM(nn.LSTM, Memory):
    """torch's LSTM, with hooks at its states."""

    def __init__(self, units: int, layers: int):
        super().__init__(units, units, layers)
        initialize_recurrent(self)

    def play(self, read: torch.Tensor, before: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        """See `Memory.play`."""
        output, after = self(read, (before.hidden, before.cell))
        return output, MemoryState(*after)

    def through_hooks(self, hooks: Hooks, read: torch.Tensor, before: MemoryState, after: MemoryState) -> MemoryState:
        """See `Memory.through_hooks`.

        A replaced cell state c gives its layer the hidden state o * tanh(c), with the output gate o of this tick.
        """
        names = zip(memory_names(LSTM_HIDDEN, self.num_layers), memory_names(LSTM_CELL, self.num_layers), strict=True)
        hiddens, cells = [], []
        read_unhooked = read
        for layer, (hidden_name, cell_name) in enumerate(names):
            own_hidden, own_cell = before.hidden[layer], before.cell[layer]
            hidden, cell = after.hidden[layer], after.cell[layer]  # (B, units)
            computed = hidden
            if read is not read_unhooked:
                changed = changed_rows(read, read_unhooked)
                entering, forgetting, candidate, output = self._gates(layer, read, own_hidden)
                cell = torch.where(changed, forgetting * own_cell + entering * candidate, cell)
                hidden = torch.where(changed, output * cell.tanh(), hidden)
            kept_cell = hooks.through(cell_name, cell)
            if kept_cell is not cell:
                *_, output = self._gates(layer, read, own_hidden)
                hidden = torch.where(changed_rows(kept_cell, cell), output * kept_cell.tanh(), hidden)
            hidden = hooks.through(hidden_name, hidden)
            hiddens.append(hidden)
            cells.append(kept_cell)
            read, read_unhooked = hidden, computed
        return MemoryState(torch.stack(hiddens), torch.stack(cells))

    def _gates(self, layer: int, read: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Input gate, forget gate, candidate and output gate of one layer, (B, units) each; as in `nn.LSTM`."""
        input_weight, hidden_weight, input_bias, hidden_bias = self.all_weights[layer]
        sums = functional.linear(read, input_weight, input_bias) + functional.linear(hidden, hidden_weight, hidden_bias)
        entering, forgetting, candidate, output = sums.chunk(4, dim=1)
        return entering.sigmoid(), forgetting.sigmoid(), candidate.tanh(), output.sigmoid()
