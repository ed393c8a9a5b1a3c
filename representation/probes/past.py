"""What a recurrent sum of the past can tell without any training: traces of observations, and a reservoir.

Both are baselines. A trained memory that knows no more than they do has not learnt to remember.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.lives import Lives

TIME_CONSTANTS = (8, 32, 128)
"""Of the traces, in ticks."""

_UNITS = 512
_FASTEST, _SLOWEST = 2.0, 256.0
_SPECTRAL_RADIUS = 0.95
_INPUT_GAIN = 0.5


def ticks_of(lives: Lives) -> Iterator[tuple[int, np.ndarray]]:
    """Walk through all lives at once, longest first.

    Yields:
        The tick within the lives, and the records of all lives that last so long, (n,) int64: life i of the longest
        stays at place i, and n never rises.
    """
    longest_first = np.argsort(-lives.lengths, kind="stable")
    starts, lengths = lives.starts[longest_first], lives.lengths[longest_first]
    for tick in range(int(lengths.max(initial=0))):
        alive = int(np.searchsorted(-lengths, -tick, side="left"))
        yield tick, lives.order[starts[:alive] + tick]


def traces(values: np.ndarray, lives: Lives, time_constants: tuple[int, ...] = TIME_CONSTANTS) -> np.ndarray:
    """Average exponentially over the past of each life: trace = trace + (value - trace) / time constant.

    A trace starts at the first value of the life.

    Args:
        values: of every tick of whole lives, (B, C).
        lives: of these records.
        time_constants: in ticks.

    Returns:
        The traces of each time constant side by side, (B, len(time_constants) * C) float32.
    """
    found = np.empty((len(values), len(time_constants), values.shape[1]), np.float32)
    rate = 1 / np.array(time_constants, np.float64)[None, :, None]
    trace = np.empty((0, 0, 0))
    for tick, records in ticks_of(lives):
        now = values[records, None].astype(np.float64)  # (n, 1, C)
        trace = np.repeat(now, len(time_constants), axis=1) if tick == 0 else trace[: len(records)]
        trace = trace + (now - trace) * rate
        found[records] = trace
    return found.reshape(len(values), -1)


@dataclass(frozen=True, eq=False)
class Reservoir:
    """A recurrent network with random weights and slow units: an echo state network with leaky units.

    Jaeger et al. 2007, "Optimization and applications of echo state networks with leaky-integrator neurons", equation
    1: state = state + (tanh(W input + V state) - state) / time constant. Time constants are spread evenly on a
    logarithmic scale from 2 to 256 ticks.

    Attributes:
        centre, per_unit: that standardise the input, (C,).
        inward: W, (C, units).
        recurrent: V, (units, units).
        rate: one over the time constant of each unit, (units,).
    """

    centre: np.ndarray
    per_unit: np.ndarray
    inward: np.ndarray
    recurrent: np.ndarray
    rate: np.ndarray

    @staticmethod
    def draw(example: np.ndarray, seed: int) -> "Reservoir":
        """Draw the weights; the input is standardised by example records, (B, C)."""
        rng = np.random.default_rng(seed)
        columns = example.shape[1]
        deviation = example.std(axis=0, dtype=np.float64)
        per_unit = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        recurrent = rng.normal(size=(_UNITS, _UNITS))
        recurrent *= _SPECTRAL_RADIUS / np.abs(np.linalg.eigvals(recurrent)).max()
        inward = _INPUT_GAIN * rng.normal(size=(columns, _UNITS)) / np.sqrt(max(1, columns))
        return Reservoir(
            example.mean(axis=0, dtype=np.float64), per_unit, inward, recurrent,
            1 / np.geomspace(_FASTEST, _SLOWEST, _UNITS),
        )  # fmt: skip

    def run(self, values: np.ndarray, lives: Lives) -> np.ndarray:
        """Return the state at every tick of whole lives, (B, C) to (B, units) float32; it starts at 0."""
        states = np.empty((len(values), _UNITS), np.float32)
        state = np.zeros((len(lives), _UNITS))
        for _, records in ticks_of(lives):
            state = state[: len(records)]
            drive = ((values[records] - self.centre) * self.per_unit) @ self.inward  # (n, units)
            state = state + (np.tanh(drive + state @ self.recurrent) - state) * self.rate
            states[records] = state
        return states
