"""Tables of the game's state: which rows new entities and items get."""

from hypothesis import example, given
from hypothesis import strategies as st
from nmmo.datastore.numpy_datastore import NumpyTable

from reinforcement_learning.game.fast_game.state import CellTable

GAMES_ROWS = 100


@given(st.lists(st.tuples(st.sampled_from(["add", "free", "free again"]), st.integers(1, 90))), st.booleans())
@example([("add", 90), ("free", 50), ("add", 70), ("free again", 9), ("free", 20), ("add", 80)], True)
def test_rows_are_used_in_the_games_order(changes: list[tuple[str, int]], reset: bool) -> None:
    tables = [NumpyTable(2, GAMES_ROWS), CellTable(2, GAMES_ROWS)]
    used: list[int] = []
    freed: list[int] = []
    if reset:
        for table in tables:
            table.add_row()
            table.reset()
    for change, count in changes:
        for number in range(count):
            if change == "add":
                rows = [table.add_row() for table in tables]
                assert rows[0] == rows[1]
                used.append(rows[0])
            elif change == "free" and used:
                freed.append(used.pop(number * 7 % len(used)))
                for table in tables:
                    table.remove_row(freed[-1])
            elif change == "free again" and freed:
                for table in tables:
                    table.remove_row(freed[number % len(freed)])
    expected, got = tables
    assert expected._max_rows == got._max_rows
    assert list(expected._id_allocator.free) == got._id_allocator.free
    assert expected.is_empty() == got.is_empty()
