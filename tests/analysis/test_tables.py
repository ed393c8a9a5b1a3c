"""Text of tables and shares: heads come first, what is not known stays empty, and small shares are not nothing."""

import pytest

from analysis.tables import tab_separated, tab_separated_lines
from common.number_text import share_text


def test_rows_stand_under_their_names() -> None:
    rows = [{"name": "a", "value": 0.5, "count": 3}, {"name": "b", "value": float("nan"), "count": None}]
    assert tab_separated(rows) == "name\tvalue\tcount\na\t0.5\t3\nb\t\t\n"


def test_heads_stand_even_without_rows_and_cells_that_are_text_stay_as_they_are() -> None:
    assert tab_separated_lines(("name", "value"), []) == "name\tvalue\n"
    assert tab_separated_lines(("name", "value"), [("a", "0.5000"), ("b", "")]) == "name\tvalue\na\t0.5000\nb\t\n"


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
