"""A memory without gates: each unit is a leaky average with a time constant of its own.

In each layer, from what it reads x and its state before h,

    h_t = (1 - a) * h_(t-1) + a * tanh(W x_t + b),    a = sigmoid(leak),

one learnt `leak` for each unit. Units do not read each other, so how long something is remembered cannot depend on what
it is: the baseline that tells what gates are good for. The time constant of a unit is -1 / log(1 - a) ticks, after
which a share 1/e of its state is left (Mozer 1992, Induction of multiscale temporal structure).
"""

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.memories.memory import HiddenMemory, MemoryState, initialize_recurrent, spread_time_constants

LONGEST = 128.0
"""The longest time constant before training, in ticks."""


class LeakyAverages(HiddenMemory):
    """One or more layers of leaky averages."""

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
