"""The memories that a policy can be given, by the name of their cell."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, MemoryCell, memory_names
from agent_zoo.hooks import Hooks
from agent_zoo.memories.memory import (
    HiddenMemory,
    Memory,
    MemoryState,
    changed_rows,
    initialize_recurrent,
    spread_time_constants,
)

LONGEST = 128.0
"""The longest time constant before training, in ticks."""


class LSTM(nn.LSTM, Memory):
    """torch's LSTM, with hooks at its states: hidden and cell in each layer (Hochreiter and Schmidhuber 1997)."""

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


class LeakyAverages(HiddenMemory):
    """One or more layers of leaky averages: a memory without gates.

    In each layer, from what it reads x and its state before h,

        h_t = (1 - a) * h_(t-1) + a * tanh(W x_t + b),    a = sigmoid(leak),

    one learnt `leak` for each unit. Units do not read each other, so how long something is remembered cannot depend on
    what it is: the baseline that tells what gates are good for. The time constant of a unit is -1 / log(1 - a) ticks,
    after which a share 1/e of its state is left (Mozer 1992, Induction of multiscale temporal structure).
    """

    def __init__(self, units: int, layers: int):
        super().__init__()
        self.num_layers = layers
        self.readers = nn.ModuleList(nn.Linear(units, units) for _ in range(layers))
        ticks = spread_time_constants(LONGEST, units)
        self.leak = nn.Parameter((1 / ticks).expm1().log().repeat(layers, 1))  # (layers, units)
        initialize_recurrent(self)

    @property
    def time_constants(self) -> torch.Tensor:
        """Ticks after which a share 1/e of a unit's state is left, (layers, units)."""
        return -1 / functional.logsigmoid(-self.leak)

    def play(self, read: torch.Tensor, before: MemoryState) -> tuple[torch.Tensor, MemoryState]:
        """See `Memory.play`."""
        last = []
        for layer in range(self.num_layers):
            entering, kept = self._entering(layer, read), (-self.leak[layer]).sigmoid()
            read = leaky_sums(entering, kept, before.hidden[layer])
            last.append(read[-1])
        return read, MemoryState(torch.stack(last), before.cell)

    def play_layer(self, layer: int, read: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """See `HiddenMemory.play_layer`."""
        return (-self.leak[layer]).sigmoid() * hidden + self._entering(layer, read)

    def _entering(self, layer: int, read: torch.Tensor) -> torch.Tensor:
        """a * tanh(W x + b), (..., units)."""
        return self.leak[layer].sigmoid() * self.readers[layer](read).tanh()


def leaky_sums(entering: torch.Tensor, kept: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Return h_t = kept * h_(t-1) + entering_t for all T ticks, in log2(T) steps (Hillis and Steele 1986).

    Args:
        entering: (T, B, units).
        kept: share of each unit's state that a tick leaves, (units,).
        start: h before the first tick, (B, units).

    Returns:
        (T, B, units).
    """
    first = entering[0] + kept * start
    sums = torch.cat([first.unsqueeze(0), entering[1:]])
    reach = 1  # each sum covers so many ticks
    while reach < len(sums):
        earlier = functional.pad(sums[:-reach], (0, 0, 0, 0, reach, 0))  # zeros before the first tick
        sums = sums + kept * earlier
        reach, kept = 2 * reach, kept * kept
    return sums


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
