"""What wrote a read-out of an LSTM's memory, exactly: contributions of every gate, tick and input of it.

Compared are a life and a reference: the same network on other inputs. Every step of the update is replaced by a line
through the life and the reference, so the parts add up to the difference of the read-out, without a remainder:

    s(a) - s(r) = [(s(a) - s(r)) / (a - r)] (a - r)                  of a squashed sum (the rescale rule of DeepLIFT,
                                                                    Shrikumar et al. 2017), whose terms are exact
    x y - u v   = (x - u) (y + v) / 2 + (y - v) (x + u) / 2          of a product (its Shapley values)
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from agent_zoo.memory import LSTM

GATES = ("input gate", "forget gate", "candidate", "output gate")
"""In the order of torch's weights."""
_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)
_EQUAL = 1e-7
"""Sums that are closer than this are on a tangent instead of a chord."""


@dataclass(frozen=True, eq=False)
class Played:
    """One layer of an LSTM along L lives of T ticks, from an empty memory; or along one life, which stands for all."""

    read: torch.Tensor  # what the layer reads, (T, L, units)
    sums: torch.Tensor  # of the gates before they are squashed, (4, T, L, units)
    gates: torch.Tensor  # squashed, likewise
    cell: torch.Tensor  # before the first tick and after each, (T + 1, L, units)
    hidden: torch.Tensor  # likewise


@torch.no_grad()
def played(memory: LSTM, read: torch.Tensor) -> list[Played]:
    """Play lives from an empty memory, (T, L, units) in double precision, and keep everything, layer by layer."""
    layers = []
    for input_weight, hidden_weight, input_bias, hidden_bias in memory.all_weights:
        hidden, cell = [torch.zeros_like(read[0])], [torch.zeros_like(read[0])]
        sums, gates = [], []
        for now in functional.linear(read, input_weight, input_bias):
            total = now + functional.linear(hidden[-1], hidden_weight, hidden_bias)
            parts = torch.stack(total.chunk(4, dim=1))  # (4, L, units)
            squashed = parts.sigmoid()
            squashed[_CANDIDATE] = parts[_CANDIDATE].tanh()
            cell.append(squashed[_FORGET] * cell[-1] + squashed[_INPUT] * squashed[_CANDIDATE])
            hidden.append(squashed[_OUTPUT] * cell[-1].tanh())
            sums.append(parts)
            gates.append(squashed)
        layer = Played(read, torch.stack(sums, 1), torch.stack(gates, 1), torch.stack(cell), torch.stack(hidden))
        layers.append(layer)
        read = layer.hidden[1:]
    return layers


@torch.no_grad()
def written(
    memory: LSTM, life: list[Played], reference: list[Played], layer: int, weight: torch.Tensor, *, of_cell: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Divide a read-out among the gates of its own layer: what the layer below and its own hidden state wrote when.

    Args:
        layer: whose state is read, from 0.
        weight: of the read-out, (units,).
        of_cell: whether it reads the cell; else the hidden state.

    Returns:
        Slopes of the read-out by the sums of each gate, (4, T, L, units), so that whatever adds up to what the layer
        reads can be told apart too; what each gate's reading of the layer below adds, (4, T, L, units of it); and what
        its reading of the own hidden state adds, (4, T, L, units). The last two add up to the read-out after the last
        tick, less that of the reference.
    """
    one, other = life[layer], reference[layer]
    input_weight, hidden_weight = (part.unflatten(0, (4, -1)) for part in memory.all_weights[layer][:2])
    cell, output = _start(one, other, weight, of_cell)
    slopes, below, own = [], [], []
    for tick in reversed(range(len(one.read))):
        slope, cell = _before(one, other, tick, cell, output)
        output = torch.zeros_like(output)
        slopes.append(slope)
        below.append(torch.einsum("glu,guj->glj", slope, input_weight) * (one.read[tick] - other.read[tick]))
        own.append(torch.einsum("glu,guj->glj", slope, hidden_weight) * (one.hidden[tick] - other.hidden[tick]))
    return torch.stack(slopes[::-1], 1), torch.stack(below[::-1], 1), torch.stack(own[::-1], 1)


@torch.no_grad()
def traced(
    memory: LSTM, life: list[Played], reference: list[Played], layer: int, weight: torch.Tensor, *, of_cell: bool
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Trace a read-out back through hidden states and layers too, to what the memory read in each tick.

    Returns:
        What each unit of the encoder's output adds in each tick, (T, L, units); and the slopes of the read-out by them,
        which are those of every part of these units.
    """
    weights = [[part.unflatten(0, (4, -1)) for part in item[:2]] for item in memory.all_weights]
    zeros = torch.zeros_like(life[0].read[0])
    cells, hiddens = [zeros] * (layer + 1), [zeros] * (layer + 1)
    cells[layer], output = _start(life[layer], reference[layer], weight, of_cell)
    outputs = [zeros] * layer + [output]
    slopes = []
    for tick in reversed(range(len(life[0].read))):
        entering = zeros
        for number in reversed(range(layer + 1)):
            one, other = life[number], reference[number]
            from_hidden = hiddens[number] + (entering if number < layer else 0)
            added_cell, added_output = _through_hidden(one, other, tick + 1, from_hidden)
            slope, cells[number] = _before(one, other, tick, cells[number] + added_cell, outputs[number] + added_output)
            outputs[number] = zeros
            entering = torch.einsum("glu,guj->lj", slope, weights[number][0])
            hiddens[number] = torch.einsum("glu,guj->lj", slope, weights[number][1])
        slopes.append(entering)
    slope = torch.stack(slopes[::-1])
    return slope * (life[0].read - reference[0].read), slope


def _start(one: Played, other: Played, weight: torch.Tensor, of_cell: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes of the read-out by the cell and by the output gate after the last tick, (L, units) each."""
    everywhere = weight.expand(one.read.shape[1], -1)
    if of_cell:
        return everywhere, torch.zeros_like(everywhere)
    return _through_hidden(one, other, len(one.read), everywhere)


def _through_hidden(one: Played, other: Played, place: int, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes by the cell and by the output gate of what depends on the hidden state, h = o tanh(c)."""
    output, instead = one.gates[_OUTPUT, place - 1], other.gates[_OUTPUT, place - 1]
    cell, theirs = one.cell[place], other.cell[place]
    squashed = _chord(cell, theirs, cell.tanh(), theirs.tanh(), 1 - ((cell + theirs) / 2).tanh() ** 2)
    return slope * (output + instead) / 2 * squashed, slope * (cell.tanh() + theirs.tanh()) / 2


def _before(
    one: Played, other: Played, tick: int, cell: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes by the sums of all gates of a tick, (4, L, units), and by the cell before it, given those after it."""
    gates, theirs = one.gates[:, tick], other.gates[:, tick]
    mean = (gates + theirs) / 2
    through = torch.stack(
        [cell * mean[_CANDIDATE], cell * (one.cell[tick] + other.cell[tick]) / 2, cell * mean[_INPUT], output]
    )
    middle = (one.sums[:, tick] + other.sums[:, tick]) / 2
    tangent = middle.sigmoid() * (1 - middle.sigmoid())
    tangent[_CANDIDATE] = 1 - middle[_CANDIDATE].tanh() ** 2
    return through * _chord(one.sums[:, tick], other.sums[:, tick], gates, theirs, tangent), cell * mean[_FORGET]


def _chord(
    one: torch.Tensor, other: torch.Tensor, high: torch.Tensor, low: torch.Tensor, tangent: torch.Tensor
) -> torch.Tensor:
    """Return the slope of the line through two points of a curve, or its tangent where they are the same."""
    apart = one - other
    near = apart.abs() < _EQUAL
    return torch.where(near, tangent, (high - low) / torch.where(near, 1.0, apart))


@torch.no_grad()
def gained_and_lost(layer: Played, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what each tick adds to a read-out of the cell, and what it takes by forgetting, (T, L) each.

    The two are the change of the read-out: w (c - c_before) = w (i g) - w ((1 - f) c_before).
    """
    gained = (layer.gates[_INPUT] * layer.gates[_CANDIDATE]) @ weight
    return gained, ((layer.gates[_FORGET] - 1) * layer.cell[:-1]) @ weight
