"""Callbacks that report the progress of long work, and what a terminal shows of them."""

import contextlib
from collections.abc import Callable, Iterator

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""


@contextlib.contextmanager
def counted_progress(description: str, unit: str) -> Iterator[Progress]:
    """Show progress counted in a unit such as "maps"; yields a callback that takes (done, total).

    Nothing is shown if the callback is never called, as when there is nothing to do.
    """
    from rich.console import Console

    from common.progress_view import Report, progress

    console = Console()
    with contextlib.ExitStack() as stack:
        report: Report | None = None

        def show(done: int, total: int) -> None:
            nonlocal report
            if report is None:
                console.print(f"{description}: {total:,}", highlight=False)
                report = stack.enter_context(progress(description, unit, console))
            report(done, total)

        yield show
