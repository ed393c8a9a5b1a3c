"""Shared by the benchmarks: processor times of two ways to do the same work, measured alternately, and their ratio."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Work = tuple[int, Callable[[], object]]  # agent-steps that one call does, and the call


@dataclass(frozen=True)
class Comparison:
    """The same work done in two ways, in turns, in one process.

    Attributes:
        packed_speeds: agent-steps per processor second, for each sample.
        dense_speeds: likewise.
    """

    packed_speeds: Sequence[float]
    dense_speeds: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """How many times as fast the packed way is, for each sample."""
        return [packed / dense for packed, dense in zip(self.packed_speeds, self.dense_speeds, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries and lists."""
        return {**asdict(self), "ratios": self.ratios}


def compare(packed: Sequence[Work], dense: Sequence[Work]) -> Comparison:
    """Measure two ways in turns, sample by sample, after a first run of the packed way that does not count."""
    speed(packed[0])
    speeds = [(speed(one), speed(other)) for one, other in zip(packed, dense, strict=True)]
    return Comparison([one for one, _ in speeds], [other for _, other in speeds])


def speed(work: Work) -> float:
    """Agent-steps per processor second."""
    agent_steps, call = work
    start = time.process_time()
    call()
    return agent_steps / (time.process_time() - start)


def spread(values: Sequence[float], form: str) -> str:
    """Write the median, the least and the greatest of some values."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
