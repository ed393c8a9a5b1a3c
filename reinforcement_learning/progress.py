"""Callbacks that report the progress of long work."""

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""
