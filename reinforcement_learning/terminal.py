"""What long work shows while it runs: live bars and panels on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from reinforcement_learning.progress import Progress as ProgressCallback


def progress_bar(console: Console) -> Progress:
    """Return a bar with counts and times; it shows itself only on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextlib.contextmanager
def counted_progress(description: str) -> Iterator[ProgressCallback]:
    """Show how much of some counted work is done; yields a callback that takes (done, total).

    Nothing appears if the callback is never called, as when there is nothing to do.
    """
    console = Console()
    with progress_bar(console) as bar:
        task = None

        def show(done: int, total: int) -> None:
            nonlocal task
            if task is None:
                console.print(f"{description}: {total:,}")
                task = bar.add_task(description, total=total)
            bar.update(task, completed=done, total=total)

        yield show
