"""The floor counts what a network's shapes say, forward and backward, and nothing else."""

import pytest
import torch
from torch import nn

from benchmarks.measure import Floor, matrix_speed, operations

AGENTS, INPUTS, UNITS = 12, 5, 7


def test_a_linear_layer_costs_two_operations_a_weight_and_three_times_as_many_with_gradients() -> None:
    layer, values = nn.Linear(INPUTS, UNITS), torch.rand(AGENTS, INPUTS, requires_grad=True)
    forward = 2 * INPUTS * UNITS
    assert operations((AGENTS, lambda: layer(values).relu())) == forward
    assert operations((AGENTS, lambda: layer(values).sum().backward())) == 3 * forward


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("ticks", [1, 3])
def test_an_lstm_costs_two_operations_a_weight_and_tick(layers: int, ticks: int) -> None:
    lstm, values = nn.LSTM(UNITS, UNITS, layers), torch.rand(ticks, AGENTS, UNITS, requires_grad=True)
    forward = 2 * layers * 8 * UNITS**2
    with torch.no_grad():
        assert operations((ticks * AGENTS, lambda: lstm(values)[0])) == forward
    assert operations((ticks * AGENTS, lambda: lstm(values)[0].sum().backward())) == 3 * forward


def test_work_as_fast_as_its_matrix_products_reaches_the_floor() -> None:
    floor = Floor(operations=4e6, matrix_speed=1e11, seconds=8e-5)
    assert floor.least_seconds == pytest.approx(4e-5) and floor.share == pytest.approx(0.5)
    assert floor.row() == ("4.00", "40", "80", "50%")


def test_a_matrix_product_takes_time() -> None:
    assert 1e8 < matrix_speed(repetitions=1) < 1e14
