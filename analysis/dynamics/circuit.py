"""The circuit of a direction of an LSTM's memory: what writes it, what keeps it, and which heads read it.

Contributions of every gate, tick and input are exact. Compared are a life and a reference: the same network on other
inputs. Every step of the update is replaced by a line through the life and the reference, so the parts add up to the
difference of the read-out, without a remainder:

    s(a) - s(r) = [(s(a) - s(r)) / (a - r)] (a - r)                  of a squashed sum (the rescale rule of DeepLIFT,
                                                                    Shrikumar et al. 2017), whose terms are exact
    x y - u v   = (x - u) (y + v) / 2 + (y - v) (x + u) / 2          of a product (its Shapley values)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from activation_store.directions import Direction
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from activation_store.schema import option_names
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import LSTM, MemoryState
from analysis.statistics.resampling import draws_of

GATES = ("input gate", "forget gate", "candidate", "output gate")
"""In the order of torch's weights."""
_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)
_EQUAL = 1e-7
"""Sums that are closer than this are on a tangent instead of a chord."""
OWN = "own hidden state"
ENCODER = "encoder output"
BELOW = "layer below"
RANDOM_DIRECTIONS = 20
UNITS_SHOWN = 12
"""Units for which it is said which gates wrote into them."""
_RESAMPLES = 500
_FEWEST_LIVES = 5
_ENDS = (2.5, 97.5)


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


@dataclass(frozen=True)
class Share:
    """How much of a read-out's variance over lives a part makes up: their covariance, divided by the variance.

    Shares of all parts of the same kind add up to 1. One below 0 is of a part that works against the others.
    """

    kind: str
    part: str
    share: float
    low: float  # low, high: 95% interval over resampled lives; NaN with fewer than five lives
    high: float


@dataclass(frozen=True)
class ReadBy:
    """What an option's logit gains, less the mean of its head, along with a standard deviation of the read-out."""

    head: str
    option: str
    logit: float
    low: float  # low, high: 95% interval over resampled lives
    high: float
    random: float  # the same as far along random directions: the root of the mean square


@dataclass(frozen=True, eq=False)
class Circuit:
    """The circuit of a direction after T ticks of L lives."""

    direction: Direction
    ticks: int
    spread: float  # standard deviation of the read-out over lives
    remainder: float  # largest difference between the sum of the parts and the read-out less that of the reference
    # shares: by gate, source, source and gate, gate and unit (of the first ones), tick, and traced to the end by source
    # and tick
    shares: list[Share]
    units: list[Share]  # numbers of the layer's units as parts, in order of their share
    forget: np.ndarray  # forget gate of each unit, by its number, mean over ticks and lives, (units,)
    # kept: share of what each unit held after the first tick that forget gates have left at the end, mean over lives
    kept: np.ndarray
    inputs: list[Share]  # units of what the layer reads and of its own hidden state, in order of their share
    heads: list[ReadBy]  # options of the heads that have a fixed list of them
    gained: np.ndarray  # what each tick adds to the read-out, (T, L); empty for one of a hidden state
    lost: np.ndarray  # what each tick takes by forgetting, likewise
    read_out: np.ndarray  # after the last tick, (L,)

    def of(self, kind: str) -> list[Share]:
        """Return the shares of one way to divide the read-out."""
        return [share for share in self.shares if share.kind == kind]

    def strongest(self, count: int) -> list[ReadBy]:
        """Return the options whose logits move most, at most three of each head."""
        ranked = sorted(self.heads, key=lambda option: -abs(option.logit))
        few = [one for place, one in enumerate(ranked) if sum(one.head == other.head for other in ranked[:place]) < 3]
        return few[:count]


class Resampled:
    """Shares of the variance of a read-out, (L,), and their intervals."""

    def __init__(self, read_out: np.ndarray):
        lives = len(read_out)
        draws = draws_of(lives, _RESAMPLES, 0)
        self.read_out = read_out
        self.weights = np.concatenate([np.ones((1, lives)), draws]) / lives  # the lives themselves first

    def shares(self, kind: str, parts: Mapping[str, np.ndarray]) -> list[Share]:
        """Return the share of each part, (L,)."""
        table = np.stack(list(parts.values()), axis=1)
        own = self.read_out - self.read_out.mean()
        mean = self.weights @ own
        variance = self.weights @ own**2 - mean**2  # (1 + resamples,)
        covariance = self.weights @ (table * own[:, None]) - (self.weights @ table) * mean[:, None]
        shares = covariance / np.where(variance > 0, variance, np.nan)[:, None]
        low, high = self._interval(shares[1:])
        return [
            Share(kind, part, float(shares[0, place]), float(low[place]), float(high[place]))
            for place, part in enumerate(parts)
        ]

    def means(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means over lives of values, (L, K), and the ends of their intervals, (K,) each."""
        means = self.weights @ values
        return means[0], *self._interval(means[1:])

    def _interval(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(self.read_out) < _FEWEST_LIVES:
            nothing = np.full(drawn.shape[1], np.nan)
            return nothing, nothing
        low, high = np.nanpercentile(drawn, _ENDS, axis=0)
        return low, high


def find_circuit(
    policy: RecurrentPolicy, memory: LSTM, direction: Direction, read: np.ndarray, parts: Mapping[str, np.ndarray],
    seed: int,
) -> Circuit:  # fmt: skip
    """Divide the read-out after the last tick of lives, each from birth.

    The reference is one more life, which reads what all lives read on average in each tick.

    Args:
        memory: of the policy, in double precision.
        read: what the memory read, (T, L, units).
        parts: of it, which add up to it but for a constant, (T, L, units) each; none if it has no such parts.
    """
    inputs = torch.from_numpy(read).double()
    life, reference = played(memory, inputs), played(memory, inputs.mean(dim=1, keepdim=True))
    of_cell = direction.layer.startswith(LSTM_CELL)
    layer = memory_names(LSTM_CELL if of_cell else LSTM_HIDDEN, policy.layers).index(direction.layer)
    weight = torch.from_numpy(direction.weight).double()
    states, theirs = (one[layer].cell[-1] if of_cell else one[layer].hidden[-1] for one in (life, reference))
    read_out = (states @ weight).numpy()
    resampled = Resampled(read_out)
    slopes, below, own = written(memory, life, reference, layer, weight, of_cell=of_cell)
    by_gate = _by_source(memory, layer, below, slopes, parts) | {OWN: own.sum(dim=3)}
    whole, slope = traced(memory, life, reference, layer, weight, of_cell=of_cell)
    by_input = {ENCODER: whole.sum(dim=2)}
    if parts:
        by_input = {name: (slope * _centred(part)).sum(dim=2) for name, part in parts.items()}
    difference = (states - theirs) @ weight
    together = torch.stack([part.sum(dim=(0, 1)) for part in by_gate.values()]).sum(dim=0)
    in_units = {str(unit): part for unit, part in enumerate((weight * (states - theirs)).numpy().T)}
    units = sorted(resampled.shares("unit", in_units), key=lambda share: -share.share)
    forget = life[layer].gates[_FORGET]
    inputs_read = _inputs(below, own, BELOW if layer else ENCODER, resampled)
    of_units = (slopes * (life[layer].sums - reference[layer].sums)).sum(dim=1)  # (4, L, units)
    held = {f"unit {unit.part}": of_units[:, :, int(unit.part)] for unit in units[:UNITS_SHOWN]}
    shares = [
        share
        for kind, divided in _divided(by_gate, by_input, held)
        for share in resampled.shares(kind, {name: part.numpy() for name, part in divided.items()})
    ]
    flows = gained_and_lost(life[layer], weight) if of_cell else (torch.empty(0, 0), torch.empty(0, 0))
    heads = _heads(policy, direction, life, inputs[-1], states.numpy(), resampled, seed)
    return Circuit(
        direction, len(read), float(read_out.std()), float((together - difference).abs().max()), shares,
        units, forget.mean(dim=(0, 1)).numpy(), forget[1:].prod(dim=0).mean(dim=0).numpy(), inputs_read, heads,
        flows[0].numpy(), flows[1].numpy(), read_out,
    )  # fmt: skip


def _centred(part: np.ndarray) -> torch.Tensor:
    values = torch.from_numpy(part).double()
    return values - values.mean(dim=1, keepdim=True)


def _by_source(
    memory: LSTM, layer: int, below: torch.Tensor, slopes: torch.Tensor, parts: Mapping[str, np.ndarray]
) -> dict[str, torch.Tensor]:
    """What each gate's reading of each part of its input adds, (4, T, L) each."""
    if layer or not parts:
        return {BELOW if layer else ENCODER: below.sum(dim=3)}
    weights = memory.all_weights[0][0].detach().unflatten(0, (4, -1))
    by_input = torch.einsum("gtlu,guj->gtlj", slopes, weights)
    return {name: (by_input * _centred(part)).sum(dim=3) for name, part in parts.items()}


def _divided(
    by_gate: Mapping[str, torch.Tensor], by_input: Mapping[str, torch.Tensor], held: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Yield each way to divide the read-out, with its parts, (L,) each.

    Args:
        by_gate: what gates wrote from each source, (4, T, L).
        by_input: what is traced to each source, (T, L).
        held: what gates wrote into some units, (4, L).
    """
    together = torch.stack(list(by_gate.values())).sum(dim=0)  # (4, T, L)
    yield "gate", {gate: together[number].sum(dim=0) for number, gate in enumerate(GATES)}
    yield "source", {name: part.sum(dim=(0, 1)) for name, part in by_gate.items()}
    yield (
        "source and gate",
        {
            f"{name} > {gate}": part[number].sum(dim=0)
            for name, part in by_gate.items()
            for number, gate in enumerate(GATES)
        },
    )
    yield (
        "gate and unit",
        {f"{gate} > {name}": part[number] for name, part in held.items() for number, gate in enumerate(GATES)},
    )
    yield "tick", {str(tick): part for tick, part in enumerate(together.sum(dim=0))}
    yield "traced source", {name: part.sum(dim=0) for name, part in by_input.items()}
    yield "traced tick", {str(tick): part for tick, part in enumerate(torch.stack(list(by_input.values())).sum(dim=0))}


def _inputs(below: torch.Tensor, own: torch.Tensor, name: str, resampled: Resampled) -> list[Share]:
    """How much of the read-out each unit of the inputs wrote, over all gates and ticks."""
    parts = {
        f"{source} {unit}": part
        for source, table in ((name, below), (OWN, own))
        for unit, part in enumerate(table.sum(dim=(0, 1)).numpy().T)
    }
    return sorted(resampled.shares("input unit", parts), key=lambda share: -share.share)


@torch.no_grad()
def _heads(
    policy: RecurrentPolicy, direction: Direction, life: list[Played], read: torch.Tensor, states: np.ndarray,
    resampled: Resampled, seed: int,
) -> list[ReadBy]:  # fmt: skip
    """Move states half a standard deviation of the read-out to both sides, and decide.

    States are moved along what goes with the read-out, its covariance with the units.

    Args:
        read: by the memory in the last tick, (L, units).
        states: of the layer after it, (L, units).
    """
    before = MemoryState(
        *(torch.stack([getattr(one, kind)[-2] for one in life]).float() for kind in ("hidden", "cell"))
    )
    own = resampled.read_out - resampled.read_out.mean()
    pattern = (states - states.mean(axis=0)).T @ own / len(own) / own.std()  # (units,)
    random = np.random.default_rng([seed, 11]).standard_normal((RANDOM_DIRECTIONS, len(pattern)))
    random *= np.linalg.norm(pattern) / np.linalg.norm(random, axis=1, keepdims=True)

    def logits(change: np.ndarray) -> dict[str, np.ndarray]:
        added = torch.from_numpy(change).float()
        with policy.hooked({direction.layer: lambda state: state + added}):
            hidden, _ = policy.remember(read.float(), before)
        decoder, seen = policy.policy.action_decoder, policy.read(hidden)
        listed = [head for head in decoder.layout.heads if head.candidates is None]
        scores = {head.name: decoder.own_scores(head, seen).double() for head in listed}
        return {name: (score - score.mean(dim=1, keepdim=True)).numpy() for name, score in scores.items()}

    def gains(along: np.ndarray) -> dict[str, np.ndarray]:
        up, down = logits(along / 2), logits(-along / 2)
        return {name: up[name] - down[name] for name in up}

    ours, theirs = gains(pattern), [gains(along) for along in random]
    return [
        ReadBy(
            name, option, float(mean[place]), float(low[place]), float(high[place]),
            float(np.sqrt(np.mean([item[name][:, place].mean() ** 2 for item in theirs]))),
        )
        for name, table in ours.items()
        for mean, low, high in [resampled.means(table)]
        for place, option in enumerate(option_names(name, table.shape[1]))
    ]  # fmt: skip
