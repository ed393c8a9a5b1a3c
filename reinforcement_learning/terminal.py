"""What long work shows while it runs: live bars on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Callable, Iterator
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from reinforcement_learning.maps import Progress as ProgressCallback
from reinforcement_learning.trainer import Metrics, Reports


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


@contextlib.contextmanager
def extraction_progress(episodes: int) -> Iterator[Callable[[int, int], None]]:
    """Show episodes begun and records per second; yields a callback that takes (episodes begun, records so far)."""
    console = Console()
    start = perf_counter()
    with progress_bar(console) as bar:
        task = bar.add_task("episodes", total=episodes)
        written = 0

        def show(begun: int, records: int) -> None:
            nonlocal written
            written = records
            speed = records / (perf_counter() - start)
            bar.update(task, completed=begun - 1, description=f"episodes ({records:,} records, {speed:,.0f}/s)")

        yield show
    console.print(f"{written:,} records in {perf_counter() - start:.0f} s", highlight=False)


class TrainingView:
    """A bar of agent-steps, and one line for each update."""

    def __init__(self, total_agent_steps: int):
        self.console = Console()
        self.bar = progress_bar(self.console)
        self.task = self.bar.add_task("agent-steps", total=total_agent_steps)

    def __enter__(self) -> "TrainingView":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    @property
    def reports(self) -> Reports:
        """Callbacks for the trainer."""
        return Reports(on_update=self._print_update, on_progress=self._advance)

    def _advance(self, agent_steps: int) -> None:
        self.bar.update(self.task, completed=agent_steps)

    def _print_update(self, metrics: Metrics) -> None:
        parts = [
            f"{metrics['agent_steps']:>11,.0f} agent-steps",
            f"{metrics['agent_steps_per_second']:>6,.0f}/s",
            f"life {metrics['lives/ticks']:5.1f} ticks" if "lives/ticks" in metrics else "no life ended",
            f"task {metrics['lives/task_progress']:.3f}" if "lives/task_progress" in metrics else "",
            f"policy {metrics['loss/policy']:+.4f}",
            f"value {metrics['loss/value']:.4f}",
            f"entropy {metrics['loss/entropy']:.2f}",
            " ".join(
                f"{phase.removeprefix('time/')} {share:.0%}"
                for phase, share in metrics.items()
                if phase.startswith("time/")
            ),
        ]
        self.console.print("  ".join(part for part in parts if part), highlight=False, soft_wrap=True)
