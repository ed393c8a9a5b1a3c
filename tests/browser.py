"""A real browser for tests of pages; skipped where no Chromium is on PATH."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def path_of_chromium() -> str | None:
    """Return where Chromium is; None if it is not on PATH."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Headless Chromium."""
    path = path_of_chromium()
    if path is None:
        pytest.skip("no Chromium on PATH: pages are tested in a real browser only")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield chromium
        chromium.close()


@contextmanager
def opened(
    browser: Any, file: Path, ready: str = "true", width: int = 1280, height: int = 800, **options: Any
) -> Iterator[Any]:
    """Open a page without a network, in a context of its own, and wait until it is ready.

    At the end it must have thrown no error, written nothing to the console, and opened no dialog; and it must have
    requested nothing but itself and what it holds.

    Args:
        browser: to open it in.
        file: of the page.
        ready: expression that becomes true in the page.
        width: of the window, in pixels.
        height: of the window, in pixels.
        options: of the context.
    """
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True, **options)
    page, problems = context.new_page(), []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("request", lambda request: problems.append(request.url))
    try:
        page.goto(file.as_uri())
        until(page, ready)
        yield page
    finally:
        context.close()
    # Software rendering warns of its own speed; plotly draws symbols from blobs that it creates.
    faults = [
        problem
        for problem in problems
        if not problem.startswith(("blob:", "data:")) and "GL Driver Message" not in problem
    ]
    assert set(faults) == {file.as_uri()}, faults


def damaged(page_file: Path, element: str, folder: Path, left: int = 200) -> Path:
    """Return a copy of a page, in a folder, with all but the first characters of the element with this id missing."""
    text = page_file.read_text()
    start = text.index(f'id="{element}">') + len(f'id="{element}">')
    broken = folder / "broken.html"
    broken.write_text(text[: start + left] + text[text.index("</script>", start) :])
    return broken


def said_of_damage(browser: Any, page_file: Path, element: str, folder: Path, left: int = 200) -> str:
    """Return what a page says in place of its content if most of that of an element is missing."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(damaged(page_file, element, folder, left).as_uri())
    until(page, "document.getElementById('loading').classList.contains('failed')")
    text = page.inner_text("#loading")
    context.close()
    return text


def scripts_that_ran(browser: Any, page_file: Path, folder: Path) -> list[str]:
    """Put foreign scripts into a copy of a page, in all ways that scripts hide in HTML; returns those that ran."""
    mark = "document.documentElement.dataset.{} = 'ran'"
    ways = [
        f"<script>{mark.format('start')}</script>",
        f'<img src="x" onerror="{mark.format("attribute")}">',
        f'<script src="data:text/javascript,{mark.format("data")}"></script>',
        f'<a id="foreign" href="javascript:void({mark.format("link")})">x</a>',
        f'<iframe srcdoc="<script>parent.{mark.format("frame")}</script>"></iframe>',
    ]
    text = page_file.read_text()
    start, end = text.index("<body>") + len("<body>"), text.rindex("</body>")
    foreign = folder / "foreign.html"
    last = f"<script>{mark.format('end')}</script>"
    foreign.write_text(text[:start] + "".join(ways) + text[start:end] + last + text[end:])
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(foreign.as_uri())
    page.evaluate("document.getElementById('foreign').click()")
    page.wait_for_timeout(300)
    ran = page.evaluate("Object.keys(document.documentElement.dataset)")
    context.close()
    return ran


def until(page: Any, condition: str) -> None:
    """Wait for a condition; playwright's own way evaluates text inside the page, which the page forbids."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


def settle(page: Any) -> None:
    """Wait until a change is drawn."""
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def nearest(pixels: np.ndarray, colour: str) -> int:
    """Distance from a colour to the pixel closest to it."""
    return int(np.abs(pixels.reshape(-1, 3).astype(int) - list(bytes.fromhex(colour[1:]))).max(axis=1).min())
