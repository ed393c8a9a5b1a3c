"""Handle Ctrl-C and termination between two steps, so that nothing is left half done."""

import signal
from types import FrameType


class StopSignal:
    """Within its block, the first SIGINT or SIGTERM is recorded; a second one interrupts at once.

    Attributes:
        received: the signal's number, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self.received is not None

    def end_process(self) -> None:
        """End the process with the signal's exit code: 128 plus its number."""
        if self.received is not None:
            raise SystemExit(128 + self.received)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
