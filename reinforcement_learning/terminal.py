"""Terminal output of counted work."""

import contextlib
from collections.abc import Iterator

from rich.console import Console

from common.progress_view import Report, progress
from reinforcement_learning.progress import Progress as ProgressCallback


@contextlib.contextmanager
def counted_progress(description: str, unit: str) -> Iterator[ProgressCallback]:
    """Show progress counted in a unit such as "maps"; yields a callback that takes (done, total).

    Nothing is shown if the callback is never called, as when there is nothing to do.
    """
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
