"""A real browser for tests of pages; skipped where no Chromium is on PATH."""

import shutil
from collections.abc import Iterator

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
