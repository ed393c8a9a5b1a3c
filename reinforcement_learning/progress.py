"""How long work says how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Show nothing."""
