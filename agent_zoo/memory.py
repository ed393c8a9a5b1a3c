"""What a memory is: the states that it keeps of each agent, and how it plays ticks; and which there are.

Also the functions that read, and may replace, the tensors between the steps of a policy.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, MemoryCell, memory_names

Hook = Callable[[torch.Tensor], torch.Tensor | None]
"""Takes a layer's tensor, (B, units), and returns a replacement, or None to keep it."""


class Hooks:
    """The hooks of one policy. A copy of the policy, in this or another process, starts without hooks."""

    def __init__(self) -> None:
        self._attached: list[Mapping[str, Hook]] = []

    def __reduce__(self) -> tuple[type["Hooks"], tuple[()]]:
        return Hooks, ()

    @contextlib.contextmanager
    def attached(self, hooks: Mapping[str, Hook]) -> Iterator[None]:
        """Within the block, call these hooks; those of nested blocks run in the order in which they were attached."""
        mine = dict(hooks)
        self._attached.append(mine)
        try:
            yield
        finally:
            self._attached = [hooks_of_block for hooks_of_block in self._attached if hooks_of_block is not mine]

    def any_at(self, layers: Iterable[str]) -> bool:
        """Return whether there is a hook at one of these layers."""
        return bool(self._attached) and any(
            layer in hooks_of_block for hooks_of_block in self._attached for layer in layers
        )

    def through(self, layer: str, tensor: torch.Tensor) -> torch.Tensor:
        """Apply the hooks of a layer to its tensor and return the result: the same object if none replaces it.

        Raises:
            ValueError: a hook returned a tensor of another shape.
        """
        for hooks in self._attached:
            replacement = hooks[layer](tensor) if layer in hooks else None
            if replacement is None:
                continue
            if replacement.shape != tensor.shape:
                shapes = f"{tuple(replacement.shape)} instead of {tuple(tensor.shape)}"
                raise ValueError(f"a hook at layer {layer} returned a tensor of shape {shapes}")
            tensor = replacement
        return tensor


LONGEST = 128.0
"""The longest time constant before training, in ticks."""


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
