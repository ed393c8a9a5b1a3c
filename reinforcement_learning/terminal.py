"""What counted work shows while it runs."""

import contextlib
from collections.abc import Iterator

from rich.console import Console

from progress_view import Report, progress
from reinforcement_learning.progress import Progress as ProgressCallback


@contextlib.contextmanager
def counted_progress(description: str) -> Iterator[ProgressCallback]:
    """Show how much of some counted work is done; yields a callback that takes (done, total).

    Nothing appears if the callback is never called, as when there is nothing to do.
    """
    console = Console()
    with contextlib.ExitStack() as stack:
        report: Report | None = None

        def show(done: int, total: int) -> None:
            nonlocal report
            if report is None:
                console.print(f"{description}: {total:,}", highlight=False)
                report = stack.enter_context(progress(description, description.split()[-1], console))
            report(done, total)

        yield show
