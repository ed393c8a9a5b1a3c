"""The least time that a network's arithmetic can take here: its operations at the speed of plain matrix multiplication.

Operations are counted from the shapes of all matrix multiplications, convolutions and LSTM layers that run, two for
each multiplication with its addition. Everything else (activations, looked-up sums, copies, the optimiser) counts as
nothing, so the floor cannot be reached.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import Work

MATRIX_SIDE = 1_024


@dataclass(frozen=True)
class Floor:
    """The least time of some work.

    Attributes:
        operations: floating-point operations for each agent-step.
        matrix_speed: operations per second that a large matrix multiplication reaches.
        seconds: that an agent-step took; processor or wall-clock time, as for `matrix_speed`.
    """

    operations: float
    matrix_speed: float
    seconds: float

    @property
    def least_seconds(self) -> float:
        """Seconds for each agent-step at the speed of matrix multiplication."""
        return self.operations / self.matrix_speed

    @property
    def share(self) -> float:
        """Share of the speed of matrix multiplication that the work reaches."""
        return self.least_seconds / self.seconds

    def row(self) -> tuple[str, str, str, str]:
        """Return MFLOP and microseconds for each agent-step, least and measured, and the share, as text."""
        least, measured = (f"{seconds * 1e6:.0f}" for seconds in (self.least_seconds, self.seconds))
        return f"{self.operations / 1e6:.2f}", least, measured, f"{self.share:.0%}"


COLUMNS = ("MFLOP", "floor, µs", "measured, µs", "share of matrix speed")
"""Titles of what `Floor.row` returns."""


def operations(work: Work) -> float:
    """Do some work once and count its floating-point operations for each agent-step, from shapes."""
    agent_steps, call = work
    with FlopCounterMode(display=False, custom_mapping=_LSTM) as counter:
        call()
    return counter.get_total_flops() / agent_steps


def matrix_speed(clock: Callable[[], float] = time.process_time, repetitions: int = 9) -> float:
    """Operations per second of a product of two square float32 matrices, with torch's threads: the median.

    Args:
        clock: returns seconds; `time.process_time` for one thread, `time.perf_counter` for several.
        repetitions: number of products measured, after one that does not count.
    """
    left, right = torch.rand(2, MATRIX_SIDE, MATRIX_SIDE).unbind()
    speeds = []
    for _ in range(repetitions + 1):
        start = clock()
        torch.mm(left, right)
        speeds.append(2 * MATRIX_SIDE**3 / (clock() - start))
    return median(speeds[1:])


def _lstm_forward(
    values: Sequence[int], input_weight: Sequence[int], hidden_weight: Sequence[int], *_: Any, **__: Any
) -> int:
    """One layer over ticks: (ticks, B, inputs), (4 units, inputs), (4 units, units)."""
    ticks, agents = values[:2]
    return 2 * ticks * agents * (prod(input_weight) + prod(hidden_weight))


def _lstm_backward(*arguments: Any, **keywords: Any) -> int:
    """Gradients of inputs and of weights cost as much as the forward pass each."""
    return 2 * _lstm_forward(*arguments, **keywords)


_LSTM = {
    torch.ops.aten.mkldnn_rnn_layer: _lstm_forward,
    torch.ops.aten.mkldnn_rnn_layer_backward: _lstm_backward,
}
