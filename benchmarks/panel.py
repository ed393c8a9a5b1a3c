"""How long a panel takes in headless Chromium, from opening its page to the first picture and to the last tick.

    python -m benchmarks.panel --output panel.json                        # 6,000 generated rollouts
    python -m benchmarks.panel --page analysis_results/RUN/panel.html     # a page that panel.py built

Each opening starts a browser of its own. Other work on the machine makes times longer, so the processor time of all of
the browser's processes stands beside them. The goal is a first picture within 3 seconds.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.measure import spread
from common import argument_checks, command_line
from common.argument_checks import at_least
from common.files import write_json
from common.user_error import UserError
from tests.browser import QUIET, path_of_chromium

GOAL = 3.0
_LONGEST = 300.0


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/panel.py."""

    page: Path | None = None
    """Page written by panel.py; by default one of generated rollouts."""
    rollouts: int = 6000
    """Generated rollouts of 32 ticks, at least 1."""
    openings: int = 4
    """How often the page is opened, at least 1."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file to write the result to."""


@dataclass(frozen=True)
class Opening:
    """One opening of a page, in seconds."""

    drawn: float  # from navigation to the first picture
    drawn_processor: float  # processor time of the browser until then
    whole: float  # from navigation until all ticks are unpacked
    whole_processor: float  # processor time of the browser until then
    load: float


def open_page(path: Path, executable: str) -> Opening:
    """Open a page in a new browser and wait until it is whole.

    Raises:
        TimeoutError: it is not whole after five minutes.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        page = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True).new_page()
        session = browser.new_browser_cdp_session()
        before = _processor_time(session)
        page.goto(path.resolve().as_uri(), wait_until="commit")
        drawn = _until(page, "drawn")
        drawn_processor = _processor_time(session) - before
        whole = _until(page, "whole")
        whole_processor = _processor_time(session) - before
        browser.close()
    return Opening(drawn, drawn_processor, whole, whole_processor, os.getloadavg()[0])


def _until(page: Any, mark: str) -> float:
    """Wait for the time that the page writes down, and return it in seconds since navigation."""
    started = time.monotonic()
    while time.monotonic() - started < _LONGEST:
        if value := page.evaluate(f"document.body?.dataset.{mark}"):
            return float(value) / 1000
        time.sleep(0.02)
    raise TimeoutError(f"the page is not {mark} after {_LONGEST:.0f} s")


def _processor_time(session: Any) -> float:
    return sum(process["cpuTime"] for process in session.send("SystemInfo.getProcessInfo")["processInfo"])


def report(openings: Sequence[Opening], size: int) -> str:
    """Return the result in words: medians, minima and maxima."""
    drawn, whole = [opening.drawn for opening in openings], [opening.whole for opening in openings]
    load = spread([opening.load for opening in openings], ".1f")
    return (
        f"page of {size / 1e6:.1f} MB, {len(openings)} openings, load average {load}: "
        f"first picture after {spread(drawn, '.2f')} s (goal {GOAL:.0f} s), processor time "
        f"{spread([opening.drawn_processor for opening in openings], '.2f')} s; whole after {spread(whole, '.2f')} s, "
        f"processor time {spread([opening.whole_processor for opening in openings], '.2f')} s"
    )


def main() -> None:
    """Parse, open the page a few times, and report."""
    arguments = command_line.parse(Arguments, __doc__)
    argument_checks.check(arguments, rollouts=at_least(arguments.rollouts, 1), openings=at_least(arguments.openings, 1))
    if arguments.page is not None and not arguments.page.is_file():
        raise UserError(f"--page {arguments.page} does not exist: build it with panel.py")
    executable = path_of_chromium()
    if executable is None:
        raise UserError("there is no Chromium on PATH: install it to measure pages")
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.page or _generated(Path(folder), arguments.rollouts)
        openings = [open_page(path, executable) for _ in range(arguments.openings)]
        size = path.stat().st_size
    print(report(openings, size))
    if arguments.output is not None:
        result = {"bytes": size, "goal": GOAL, "openings": [asdict(opening) for opening in openings]}
        write_json(arguments.output, result)


def _generated(folder: Path, rollouts: int) -> Path:
    from analysis.panel.page import panel_page
    from tests.generated_panel import generated_panel

    path = folder / "panel.html"
    path.write_text(panel_page(generated_panel(folder, rollouts)))
    return path


if __name__ == "__main__":
    command_line.run(main)
