"""Tab-separated text: heads come first, and what is not known stays empty."""

from analysis.tables import tab_separated, tab_separated_lines


def test_rows_stand_under_their_names() -> None:
    rows = [{"name": "a", "value": 0.5, "count": 3}, {"name": "b", "value": float("nan"), "count": None}]
    assert tab_separated(rows) == "name\tvalue\tcount\na\t0.5\t3\nb\t\t\n"


def test_heads_stand_even_without_rows_and_cells_that_are_text_stay_as_they_are() -> None:
    assert tab_separated_lines(("name", "value"), []) == "name\tvalue\n"
    assert tab_separated_lines(("name", "value"), [("a", "0.5000"), ("b", "")]) == "name\tvalue\na\t0.5000\nb\t\n"
