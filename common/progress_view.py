"""Progress of long work: a live bar on a terminal, a plain line every half minute elsewhere; and callbacks for it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY = 30.0
"""Seconds between plain lines."""

_LOOK_EVERY = 1.0

SHARE = ""
"""The unit of work for which only the share done is known, from 0 to 1."""

Clock = Callable[[], float]
Step = Callable[[str], AbstractContextManager[Callable[[float], None]]]
"""Shows that a step is running and yields a callback for the share done, from 0 to 1; `step` with its console."""
Progress = Callable[[int, int], None]
"""Called with the work done, and all of it."""


class Report(Protocol):
    """Called with the amount done, the total if known, and an optional short detail."""

    def __call__(self, done: float, total: float | None = None, detail: str = "") -> None:
        """Show it."""


class ProgressLines:
    """Writes a line at intervals: work done, total, rate and time left.

    Rate and time left are computed from the first report on, so that earlier work of a resumed run is not counted.
    """

    def __init__(self, description: str, unit: str, write: Callable[[str], None], clock: Clock = time.monotonic):
        """Start the interval before the first line.

        Args:
            unit: of the numbers reported, such as "records"; `SHARE` if they are shares.
            clock: seconds, as `time.monotonic`.
        """
        self._description = description
        self._unit = unit
        self._write = write
        self._clock = clock
        self._start = self._last_line = clock()
        self._first: tuple[float, float] | None = None  # time of the first report, and the amount done then
        self._latest: tuple[float, float | None, str] = 0.0, None, ""
        self._lock = threading.Lock()

    def report(self, done: float, total: float | None = None, detail: str = "") -> None:
        """Record progress, and write a line if one is due."""
        with self._lock:
            self._first = self._first or (self._clock(), done)
            self._latest = done, total, detail
        self.write_if_due()

    def write_if_due(self) -> None:
        """Write a line if one is due: the latest report, or the time elapsed if there is none."""
        with self._lock:
            now = self._clock()
            if now - self._last_line < LINE_EVERY:
                return
            self._last_line = now
            if self._first is None:
                self._write(f"{self._description}: {_time(now - self._start)} so far")
                return
            when, before = self._first
            done, total, detail = self._latest
            rate = (done - before) / (now - when) if now > when else 0.0
            self._write(progress_line(self._description, self._unit, done, total, rate, detail))


def progress_line(description: str, unit: str, done: float, total: float | None, rate: float, detail: str = "") -> str:
    """Return a line about progress; the rate is per second."""
    total = 1.0 if unit == SHARE else total
    parts = [f"{description}: {amount(unit, done, total)}"]
    if unit != SHARE and rate > 0:
        parts.append(f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s")
    if detail:
        parts.append(detail)
    if total is not None and rate > 0:
        parts.append(f"{_time(max(0.0, total - done) / rate)} left")
    return ", ".join(parts)


def amount(unit: str, done: float, total: float | None) -> str:
    """Describe the amount done: "25%", "3 records" or "3 of 12 records"."""
    if unit == SHARE:
        return f"{done:.0%}"
    return f"{done:,.0f} {unit}" if total is None else f"{done:,.0f} of {total:,.0f} {unit}"


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextlib.contextmanager
def progress(
    description: str, unit: str = SHARE, console: "Console | None" = None, clock: Clock = time.monotonic
) -> Iterator[Report]:
    """Show the progress of some work with its rate and the time left; yields a callback for reports.

    On a terminal the bar pulses until a report gives a total, and is removed at the end.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = console or Console()
    if not console.is_terminal:
        lines, over = ProgressLines(description, unit, partial(say, console), clock), threading.Event()

        def watch() -> None:
            """Write due lines even while the work does not report."""
            while not over.wait(_LOOK_EVERY):
                lines.write_if_due()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield lines.report
        finally:
            over.set()
            thread.join()
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
        TextColumn("{task.fields[text]}", markup=False), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None, text="")

        def report(done: float, total: float | None = None, detail: str = "") -> None:
            whole = 1.0 if unit == SHARE else total
            text = amount(unit, done, whole) + (f", {detail}" if detail else "")
            bar.update(task, completed=done, total=whole, text=text)

        yield report


def say(console: "Console", line: str) -> None:
    """Print a line as it is, however long it is."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def step(console: "Console", description: str) -> Iterator[Callable[[float], None]]:
    """Show that a step is running, then its duration; yields a callback for the share done, from 0 to 1.

    Without a terminal, a plain line is printed every half minute and at the end.
    """
    started = time.monotonic()
    with progress(description, console=console) as report:
        yield report
    console.print(f"{description}: {time.monotonic() - started:.1f} s", highlight=False)


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""


@contextlib.contextmanager
def counted_progress(description: str, unit: str) -> Iterator[Progress]:
    """Show progress counted in a unit such as "maps"; yields a callback that takes (done, total).

    Nothing is shown if the callback is never called, as when there is nothing to do.
    """
    from rich.console import Console

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
