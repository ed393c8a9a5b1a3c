"""How long a page of explore.py or panel.py takes in headless Chromium, from opening it until it can be used.

    python -m benchmarks.opening analysis_results/RUN/panel.html

Each opening starts a browser of its own. Other work on the machine makes times longer, so the processor time of all of
the browser's processes stands beside them.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import Output, spread
from common import argument_checks, command_line
from common.argument_checks import at_least
from common.user_error import UserError
from tests.browser import QUIET, path_of_chromium

GOAL = 3.0
_LONGEST = 300.0


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/opening.py."""

    page: tyro.conf.Positional[Path]
    """Page written by explore.py or panel.py."""
    openings: int = 4
    """How often the page is opened, at least 1."""


def open_page(path: Path, executable: str) -> dict[str, float]:
    """Open a page in a new browser and wait until it can be used.

    Returns:
        ready: seconds from navigation until then; processor: those of the browser; load: average of the machine.

    Raises:
        TimeoutError: it cannot after five minutes.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        page = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True).new_page()
        session = browser.new_browser_cdp_session()
        before = _processor_time(session)
        page.goto(path.resolve().as_uri(), wait_until="commit")
        ready = _ready(page)
        processor = _processor_time(session) - before
        browser.close()
    return {"ready": ready, "processor": processor, "load": os.getloadavg()[0]}


def _ready(page: Any) -> float:
    """Wait for the time that the page writes down, and return it in seconds since navigation."""
    started = time.monotonic()
    while time.monotonic() - started < _LONGEST:
        if value := page.evaluate("document.body?.dataset.ready"):
            return float(value) / 1000
        time.sleep(0.02)
    raise TimeoutError(f"the page cannot be used after {_LONGEST:.0f} s")


def _processor_time(session: Any) -> float:
    return sum(process["cpuTime"] for process in session.send("SystemInfo.getProcessInfo")["processInfo"])


def report(openings: Sequence[dict[str, float]], size: int) -> str:
    """Return the result in words: medians, minima and maxima."""
    ready, processor, load = ([one[name] for one in openings] for name in ("ready", "processor", "load"))
    return (
        f"page of {size / 1e6:.1f} MB, {len(openings)} openings, load average {spread(load, '.1f')}: ready after "
        f"{spread(ready, '.2f')} s (goal {GOAL:.0f} s), processor time {spread(processor, '.2f')} s"
    )


def main() -> None:
    """Parse, open the page a few times, and report."""
    arguments = command_line.parse(Arguments, __doc__)
    argument_checks.check(arguments, openings=at_least(arguments.openings, 1))
    if not arguments.page.is_file():
        raise UserError(f"{arguments.page} does not exist: build it with explore.py or panel.py")
    executable = path_of_chromium()
    if executable is None:
        raise UserError("there is no Chromium on PATH: install it to measure pages")
    openings = [open_page(arguments.page, executable) for _ in range(arguments.openings)]
    size = arguments.page.stat().st_size
    print(report(openings, size))
    arguments.write({"bytes": size, "goal": GOAL, "openings": openings})


if __name__ == "__main__":
    command_line.run(main)
