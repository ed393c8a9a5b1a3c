"""Measure the time of phases."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator


class Stopwatch:
    """Adds up the seconds spent in named phases."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """Count the block's duration towards `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - start

    def lap(self) -> dict[str, float]:
        """Return the seconds of each phase since the last lap, and reset them."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
