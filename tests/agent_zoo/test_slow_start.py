"""Gates that are started so that units keep what they hold."""

import pytest
import torch
from torch import nn

from agent_zoo.memory import GRU, LONGEST, LSTM, LeakyAverages, MemoryState, spread_time_constants, start_slow

UNITS, LAYERS = 6, 2


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_units_lose_their_content_at_the_pace_of_their_time_constants(cell: type[LSTM | GRU]) -> None:
    memory = cell(UNITS, LAYERS)
    start_slow(memory, longest=50)
    for weight in (weight for layer in memory.all_weights for weight in layer[:2]):
        nn.init.zeros_(weight)  # so that the biases alone decide
    full = torch.ones(LAYERS, 1, UNITS)
    _, after = memory.play(torch.zeros(1, 1, UNITS), MemoryState(full, full if cell is LSTM else full[:0]))
    kept = after.cell if cell is LSTM else after.hidden
    expected = (-1 / spread_time_constants(50, UNITS)).exp()
    torch.testing.assert_close(kept, expected.expand(LAYERS, 1, UNITS))


def test_an_input_gate_opens_as_far_as_the_forget_gate_closes() -> None:
    memory = LSTM(UNITS, 1)
    start_slow(memory, longest=50)
    entering, forgetting, *_ = memory._gates(0, torch.zeros(1, UNITS), torch.zeros(1, UNITS))
    torch.testing.assert_close(entering + forgetting, torch.ones(1, UNITS))


def test_moving_averages_start_slow_by_themselves() -> None:
    memory = LeakyAverages(UNITS, 1)
    before = memory.leak.clone()
    start_slow(memory, longest=50)
    assert torch.equal(memory.leak, before)
    torch.testing.assert_close(memory.time_constants[0], spread_time_constants(LONGEST, UNITS))
