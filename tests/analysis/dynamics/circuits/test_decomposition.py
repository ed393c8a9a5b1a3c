"""Contributions to a read-out of an LSTM: they add up, and networks built by hand have those that were built."""

import numpy as np
import pytest
import torch

from agent_zoo.memories.lstm_memory import LSTM
from analysis.dynamics.circuits.decomposition import GATES, gained_and_lost, played, traced, written

UNITS, TICKS, LIVES = 5, 12, 7
OPEN = 20.0
INPUT, FORGET, CANDIDATE, OUTPUT = range(4)


def random_memory(layers: int) -> LSTM:
    torch.manual_seed(3)
    memory = LSTM(UNITS, layers).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.mul_(1.5).add_(0.3 * torch.randn_like(parameter))
    return memory


def noise(units: int = UNITS, lives: int = LIVES, ticks: int = TICKS) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(ticks, lives, units)))


@torch.no_grad()
def built(units: int, weights: dict[tuple[int, int, int], float], biases: dict[tuple[int, int], float]) -> LSTM:
    """A layer without weights but those of (gate, unit, input), and biases of (gate, unit); output gates are open."""
    memory = LSTM(units, 1).double()
    for parameter in memory.parameters():
        parameter.zero_()
    bias = memory.all_weights[0][2].view(4, units)
    bias[OUTPUT] = OPEN
    for (gate, unit), value in biases.items():
        bias[gate, unit] = value
    for (gate, unit, source), value in weights.items():
        memory.all_weights[0][0].view(4, units, units)[gate, unit, source] = value
    return memory


@pytest.mark.parametrize("of_cell", [True, False])
@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 0), (2, 1)])
def test_contributions_add_up_to_the_read_out(layers: int, layer: int, of_cell: bool) -> None:
    memory, read = random_memory(layers), noise()
    life, reference = played(memory, read), played(memory, read.mean(dim=1, keepdim=True))
    weight = torch.randn(UNITS, dtype=torch.float64)
    states = [getattr(one[layer], "cell" if of_cell else "hidden")[-1] @ weight for one in (life, reference)]
    parts = written(memory, life, reference, layer, weight, of_cell=of_cell)
    assert parts.below.shape == parts.own.shape == parts.slopes.shape == (len(GATES), TICKS, LIVES, UNITS)
    together = parts.below.sum(dim=(0, 1, 3)) + parts.own.sum(dim=(0, 1, 3))
    torch.testing.assert_close(together, states[0] - states[1], rtol=0, atol=1e-12)
    by_input, slope = traced(memory, life, reference, layer, weight, of_cell=of_cell)
    torch.testing.assert_close(by_input.sum(dim=(0, 2)), states[0] - states[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(slope * (read - read.mean(dim=1, keepdim=True)), by_input)


def test_what_is_played_is_what_torch_plays() -> None:
    memory, read = random_memory(2), noise()
    _, (hidden, cell) = torch.nn.LSTM.forward(memory, read)
    life = played(memory, read)
    for number in range(2):
        torch.testing.assert_close(life[number].hidden[-1], hidden[number], rtol=0, atol=1e-12)
        torch.testing.assert_close(life[number].cell[-1], cell[number], rtol=0, atol=1e-12)


def test_what_ticks_add_and_take_is_the_change_of_the_read_out() -> None:
    memory, read = random_memory(1), noise()
    (layer,) = played(memory, read)
    weight = torch.randn(UNITS, dtype=torch.float64)
    gained, lost = gained_and_lost(layer, weight)
    torch.testing.assert_close(gained + lost, (layer.cell @ weight).diff(dim=0), rtol=0, atol=1e-12)


def test_a_latch_is_written_by_its_cue_through_the_candidate_and_never_lost() -> None:
    """Two units: one holds the sign of a cue for ever, the other forgets noise at once; only input 0 is the cue."""
    memory = built(2, {(CANDIDATE, 0, 0): 3.0, (CANDIDATE, 1, 1): 3.0},
                   {(INPUT, 0): OPEN, (FORGET, 0): OPEN, (INPUT, 1): OPEN, (FORGET, 1): -OPEN})  # fmt: skip
    read = noise(2)
    read[:, :, 0] = 0
    read[2, :, 0] = torch.tensor([1.0, -1.0] * LIVES)[:LIVES]
    life, reference = played(memory, read), played(memory, torch.zeros_like(read[:, :1]))
    parts = written(memory, life, reference, 0, torch.tensor([1.0, 0.0], dtype=torch.float64), of_cell=True)
    expected = torch.tanh(3.0 * read[2, :, 0])
    torch.testing.assert_close(parts.below[CANDIDATE, 2, :, 0], expected, rtol=1e-6, atol=0)
    assert float(parts.below.abs().sum() + parts.own.abs().sum() - expected.abs().sum()) == pytest.approx(0, abs=1e-6)
    gained, lost = gained_and_lost(life[0], torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert float(lost.abs().max()) < 1e-6 and torch.equal(gained.abs().sum(dim=1) > 0.5, torch.arange(TICKS) == 2)
    both = written(memory, life, reference, 0, torch.tensor([0.0, 1.0], dtype=torch.float64), of_cell=True)
    assert float(both.below[:, :-1].abs().max()) < 1e-6  # the other unit's read-out is of the last tick alone


def test_a_counter_is_written_by_every_event_through_the_input_gate() -> None:
    """One unit adds the same candidate whenever its input opens the gate."""
    memory = built(1, {(INPUT, 0, 0): 2 * OPEN}, {(INPUT, 0): -OPEN, (FORGET, 0): OPEN, (CANDIDATE, 0): 1.0})
    events = torch.from_numpy((np.random.default_rng(1).random((TICKS, LIVES, 1)) < 0.4).astype(float))
    life, reference = played(memory, events), played(memory, torch.zeros(TICKS, 1, 1, dtype=torch.float64))
    parts = written(memory, life, reference, 0, torch.ones(1, dtype=torch.float64), of_cell=True)
    torch.testing.assert_close(parts.below[INPUT, :, :, 0], events[:, :, 0] * np.tanh(1.0), rtol=1e-6, atol=1e-8)
    others = [parts.below[gate].abs().max() for gate in (FORGET, CANDIDATE, OUTPUT)]
    assert max(map(float, others)) < 1e-6


def test_a_forget_gate_that_clears_the_memory_is_what_wrote_the_difference() -> None:
    """All lives write the same in the first tick; some forget it later."""
    memory = built(2, {(CANDIDATE, 0, 0): 1.0, (FORGET, 0, 1): -2 * OPEN}, {(INPUT, 0): OPEN, (FORGET, 0): OPEN})
    read = torch.zeros(4, 2, 2, dtype=torch.float64)
    read[0, :, 0], read[2, 1, 1] = 1.0, 1.0
    life, reference = played(memory, read), played(memory, read[:, :1])
    parts = written(memory, life, reference, 0, torch.tensor([1.0, 0.0], dtype=torch.float64), of_cell=True)
    assert float(parts.below[FORGET, 2, 1, 1]) == pytest.approx(-np.tanh(1.0), abs=1e-6)
    assert float(parts.below.abs().sum()) == pytest.approx(np.tanh(1.0), abs=1e-6)


def test_the_trace_ends_at_the_one_path_that_carries_the_cue() -> None:
    """The cue is held by unit 0, and unit 1 reads it through the hidden state alone: the trace ends at the cue."""
    memory = built(2, {(CANDIDATE, 0, 0): 3.0}, {(INPUT, 0): OPEN, (FORGET, 0): OPEN, (INPUT, 1): OPEN,
                                                 (FORGET, 1): -OPEN})  # fmt: skip
    with torch.no_grad():
        memory.all_weights[0][1].view(4, 2, 2)[CANDIDATE, 1, 0] = 2.0
    read = noise(2)
    read[:, :, 0] = 0
    read[1, :, 0] = torch.linspace(-1, 1, LIVES)
    life, reference = played(memory, read), played(memory, torch.zeros_like(read[:, :1]))
    weight = torch.tensor([0.0, 1.0], dtype=torch.float64)
    parts = written(memory, life, reference, 0, weight, of_cell=True)
    difference = life[0].cell[-1] @ weight
    torch.testing.assert_close(parts.own[CANDIDATE, -1, :, 0], difference, rtol=1e-6, atol=1e-8)
    by_input, _ = traced(memory, life, reference, 0, weight, of_cell=True)
    torch.testing.assert_close(by_input[1, :, 0], difference, rtol=1e-6, atol=1e-8)
    assert float(by_input.abs().sum()) == pytest.approx(float(difference.abs().sum()), rel=1e-6)
