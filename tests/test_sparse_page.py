"""The page of sparse features in a real browser."""

from pathlib import Path

import pytest

from tests.browser import opened, said_of_damage, scripts_that_ran


@pytest.fixture
def page_file(sparse_run: Path) -> Path:
    return sparse_run / "sparse_features.html"


def test_cards_are_found_sorted_and_opened(browser, page_file: Path) -> None:
    from playwright.sync_api import expect

    with opened(browser, page_file, "document.querySelector('article') !== null", 1200, 900) as page:
        rows = (page_file.parent / "sparse_features.tsv").read_text().splitlines()[1:]
        assert page.inner_text("#count") == f"{len(rows)} of {len(rows)} features"
        names = [row.split("\t")[0] for row in rows]
        page.select_option("#sort", "number")
        assert page.locator("article h2").first.inner_text().startswith(f"{names[0]}:")
        page.fill("#search", names[-1])
        expect(page.locator("article")).to_have_count(1)
        card = page.locator("article")
        density = float(rows[-1].split("\t")[1])
        assert card.get_attribute("id") == names[-1] and f"{100 * density:.2f}% of ticks" in card.inner_text()
        views = card.locator(".top")
        assert 1 <= views.count() <= 6
        # A view is drawn: its canvas holds more than one colour.
        colours = (
            "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
        )
        assert views.first.locator("canvas").evaluate(colours) > 2
        views.first.click()
        assert page.locator("#life").is_visible() and names[-1] in page.inner_text("#life-name")
        page.hover("#life-chart")
        page.wait_for_selector("#life-pointer:has-text('strength')")
        assert "agent_life_visualization.py" in page.inner_text("#life-command")
        page.keyboard.press("Escape")
        assert page.locator("#life").is_hidden()
        page.fill("#search", "no such feature")
        expect(page.locator("article")).to_have_count(0)


def test_a_damaged_page_says_so_and_no_foreign_script_runs(browser, page_file: Path, tmp_path: Path) -> None:
    assert "cannot show its features" in said_of_damage(browser, page_file, "page-content", tmp_path)
    assert scripts_that_ran(browser, page_file, tmp_path) == []
