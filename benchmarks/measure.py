"""Shared by the benchmarks: processor times of two ways to do the same work, measured alternately, and their ratio."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Work = tuple[int, Callable[[], object]]  # agent-steps per call, and the call


@dataclass(frozen=True)
class Comparison:
    """The same work done in two ways, alternately, in one process.

    Attributes:
        packed_speeds: agent-steps per processor second, for each sample.
    """

    packed_speeds: Sequence[float]
    dense_speeds: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Speed-up of the packed way, for each sample."""
        return [packed / dense for packed, dense in zip(self.packed_speeds, self.dense_speeds, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries and lists."""
        return {**asdict(self), "ratios": self.ratios}


def compare(packed: Sequence[Work], dense: Sequence[Work]) -> Comparison:
    """Measure two ways alternately, sample by sample, after a warm-up run of the packed way."""
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
    """Format the median, minimum and maximum of some values."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
