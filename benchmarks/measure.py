"""Shared by the benchmarks: processor times of two ways to do the same work, measured alternately, and their ratio.

Beside them, the floor: the least time that a network's arithmetic can take here, which is the time of its operations at
the speed of plain matrix multiplication. Operations are counted from the shapes of all matrix multiplications,
convolutions and LSTM layers that run, two for each multiplication with its addition. Everything else (activations,
looked-up sums, copies, the optimiser) counts as nothing, so the floor cannot be reached.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from common.files import write_json

MATRIX_SIDE = 1_024
Work = tuple[int, Callable[[], object]]  # agent-steps per call, and the call


Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a benchmark writes what it measured."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file to write the result to."""

    def write(self, result: object) -> None:
        """Write the result, if it is wanted."""
        if self.output:
            write_json(self.output, result)


Comparison = dict[str, list[float]]
"""The same work done in two ways: agent-steps per processor second of each, and the packed way's speed-up."""


def compare(packed: Sequence[Work], dense: Sequence[Work]) -> Comparison:
    """Measure two ways alternately in one process, sample by sample, after a warm-up run of the packed way."""
    speed(packed[0])
    speeds = [(speed(one), speed(other)) for one, other in zip(packed, dense, strict=True)]
    return {
        "packed_speeds": [one for one, _ in speeds], "dense_speeds": [other for _, other in speeds],
        "ratios": [one / other for one, other in speeds],
    }  # fmt: skip


def speed(work: Work) -> float:
    """Agent-steps per processor second."""
    agent_steps, call = work
    return agent_steps / seconds_of(call)


def seconds_of(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds that a call takes, of the processor unless another clock is given."""
    start = clock()
    call()
    return clock() - start


def timed(call: Callable[[], Value]) -> tuple[Value, float]:
    """Return a call's result and its wall-clock seconds."""
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def spread(values: Sequence[float], form: str) -> str:
    """Format the median, minimum and maximum of some values."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


@dataclass(frozen=True)
class Floor:
    """The least time of some work."""

    operations: float  # floating-point operations for each agent-step
    matrix_speed: float  # operations per second that a large matrix multiplication reaches
    seconds: float  # that an agent-step took; processor or wall-clock time, as for `matrix_speed`

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
    return statistics.median(speeds[1:])


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
