"""How far long work is: a live bar on a terminal, a plain line every half minute elsewhere."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY = 30.0
"""Seconds from one plain line to the next."""

_LOOK_EVERY = 1.0

SHARE = ""
"""The unit of work of which only the share done is known, from 0 to 1."""

Clock = Callable[[], float]


class Report(Protocol):
    """Takes how much is done, of how much if that is known, and whatever else is worth a few words."""

    def __call__(self, done: float, total: float | None = None, detail: str = "") -> None:
        """Show it."""


class ProgressLines:
    """Writes a line now and then: work done, all of it, rate, time left.

    Rate and time left are those since the first report, so that work taken up where it was stopped is not counted.
    """

    def __init__(self, description: str, unit: str, write: Callable[[str], None], clock: Clock = time.monotonic):
        """Start to wait for the first line.

        Args:
            description: of the work.
            unit: of the numbers reported, such as "records"; `SHARE` where they are shares.
            write: takes each line.
            clock: seconds, as `time.monotonic`.
        """
        self._description = description
        self._unit = unit
        self._write = write
        self._clock = clock
        self._start = self._last_line = clock()
        self._first: tuple[float, float] | None = None  # when, and how much was done then
        self._latest: tuple[float, float | None, str] = 0.0, None, ""
        self._lock = threading.Lock()

    def report(self, done: float, total: float | None = None, detail: str = "") -> None:
        """Note how far the work is, and write a line if it is time for one."""
        with self._lock:
            self._first = self._first or (self._clock(), done)
            self._latest = done, total, detail
        self.write_if_due()

    def write_if_due(self) -> None:
        """Write a line if the last one is long ago: of the latest report, or of the time spent if there was none."""
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
    """Say how far some work is; the rate is per second."""
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
    """Say how much is done: "25%", "3 records" or "3 of 12 records"."""
    if unit == SHARE:
        return f"{done:.0%}"
    return f"{done:,.0f} {unit}" if total is None else f"{done:,.0f} of {total:,.0f} {unit}"


@contextlib.contextmanager
def _watched(lines: ProgressLines) -> Iterator[None]:
    """Let lines appear while the work is silent, too."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY):
            lines.write_if_due()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextlib.contextmanager
def progress(
    description: str, unit: str = SHARE, console: "Console | None" = None, clock: Clock = time.monotonic
) -> Iterator[Report]:
    """Show how far some work is, with its rate and the time left; yields what takes reports.

    On a terminal the bar only pulses until the first report that says how much there is to do, and is gone in the end.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = console or Console()
    if not console.is_terminal:
        shown = console  # a name that stays a console, for the closure

        def write(line: str) -> None:
            shown.print(line, highlight=False, markup=False, soft_wrap=True)

        lines = ProgressLines(description, unit, write, clock)
        with _watched(lines):
            yield lines.report
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
        TextColumn("{task.fields[told]}", markup=False), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None, told="")

        def report(done: float, total: float | None = None, detail: str = "") -> None:
            whole = 1.0 if unit == SHARE else total
            told = amount(unit, done, whole) + (f", {detail}" if detail else "")
            bar.update(task, completed=done, total=whole, told=told)

        yield report
