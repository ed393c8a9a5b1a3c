"""Formatting of shares."""

import pytest

from analysis.share_text import share_text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0.0%"),
        (144 / 333_570, "<0.1%"),
        (0.0005, "0.1%"),
        (0.25, "25.0%"),
        (0.9995, ">99.9%"),
        (333_569 / 333_570, ">99.9%"),
        (1, "100.0%"),
    ],
)
def test_neither_nothing_nor_all_reads_as_either(share: float, text: str) -> None:
    assert share_text(share) == text
