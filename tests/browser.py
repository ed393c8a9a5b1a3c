"""A real browser for tests of pages; skipped where no Chromium is on PATH."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

_QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Headless Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on PATH: pages are tested in a real browser only")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(_QUIET))
        yield chromium
        chromium.close()


def damaged(page_file: Path, element: str, folder: Path) -> Path:
    """Return a copy of a page, in a folder, with most of the content of the element with this id missing."""
    text = page_file.read_text()
    start = text.index(f'id="{element}">') + len(f'id="{element}">')
    broken = folder / "broken.html"
    broken.write_text(text[: start + 200] + text[text.index("</script>", start) :])
    return broken
