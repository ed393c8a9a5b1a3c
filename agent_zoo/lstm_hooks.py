"""Hooks inside an LSTM, at the hidden and cell state of each layer."""

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from agent_zoo.hooks import Hooks

States = tuple[torch.Tensor, torch.Tensor]
"""Hidden and cell states, (layers, B, units) each."""


def through_hooks(lstm: nn.LSTM, hooks: Hooks, encoded: torch.Tensor, before: States, after: States) -> States:
    """Apply hooks to an LSTM's states after one tick, and propagate replacements through the rest of the tick.

    A replaced cell state c gives its layer the hidden state o * tanh(c), with the output gate o of this tick. A
    replaced hidden state is the input of the next layer. Agents whose states no hook changed keep those computed by
    `nn.LSTM`, bit for bit.

    Args:
        lstm: that computed the tick.
        hooks: by layer name.
        encoded: input of the first layer, (B, units).
        before: states before the tick.
        after: states after the tick, as `nn.LSTM` computed them.

    Returns:
        The states after the tick.
    """
    names = zip(memory_names(LSTM_HIDDEN, lstm.num_layers), memory_names(LSTM_CELL, lstm.num_layers), strict=True)
    hiddens, cells = [], []
    read, read_by_lstm = encoded, encoded
    for layer, (hidden_name, cell_name) in enumerate(names):
        own_hidden, own_cell = before[0][layer], before[1][layer]
        hidden, cell = after[0][layer], after[1][layer]  # (B, units)
        computed = hidden
        if read is not read_by_lstm:
            changed = _changed(read, read_by_lstm)
            entering, forgetting, candidate, output = _gates(lstm, layer, read, own_hidden)
            cell = torch.where(changed, forgetting * own_cell + entering * candidate, cell)
            hidden = torch.where(changed, output * cell.tanh(), hidden)
        kept_cell = hooks.through(cell_name, cell)
        if kept_cell is not cell:
            *_, output = _gates(lstm, layer, read, own_hidden)
            hidden = torch.where(_changed(kept_cell, cell), output * kept_cell.tanh(), hidden)
        hidden = hooks.through(hidden_name, hidden)
        hiddens.append(hidden)
        cells.append(kept_cell)
        read, read_by_lstm = hidden, computed
    return torch.stack(hiddens), torch.stack(cells)


def _changed(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Which rows differ, (B, 1) bool; all of them if gradients must flow through the new values."""
    return (new != old).any(dim=1, keepdim=True) | new.requires_grad


def _gates(lstm: nn.LSTM, layer: int, read: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Input gate, forget gate, candidate cell and output gate of one layer, (B, units) each; as `nn.LSTM` defines."""
    input_weight, hidden_weight, input_bias, hidden_bias = lstm.all_weights[layer]
    sums = functional.linear(read, input_weight, input_bias) + functional.linear(hidden, hidden_weight, hidden_bias)
    entering, forgetting, candidate, output = sums.chunk(4, dim=1)
    return entering.sigmoid(), forgetting.sigmoid(), candidate.tanh(), output.sigmoid()
