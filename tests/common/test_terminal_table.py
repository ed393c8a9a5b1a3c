"""Tables at 80 columns: no word is broken, no column is lost."""

import io

import pytest
from rich.console import Console

from common.number_text import plural
from common.terminal_table import terminal_table

HEADS = ("target", "score", "best baseline", "advantage", "increment", "its q")
ROWS = (
    ("rows_in_10_ticks", "0.873 R2", "observation (mlp)", "0.132 (0.101 to 0.150)", "0.031 (-0.010 to 0.050)", "0.012"),
    ("[nearest]_distance", "0.9 AUC", "encoder_output (linear)", "-0.132 (-0.1 to 0.1)", "0.03 (-0.01 to 0.05)", "n/a"),
)


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    table = terminal_table(HEADS, ROWS, left=("target", "best baseline"), title="[a] title", caption="[b]")
    Console(file=out, width=width).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_every_word_is_whole_and_every_line_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(width, monkeypatch)
    assert all(len(line) <= width for line in text.splitlines())
    for word in " ".join((*HEADS, *(cell for row in ROWS for cell in row), "[a]", "[b]")).split():
        assert word in text


def test_a_narrow_terminal_breaks_words_and_a_wide_one_has_a_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(len(line) <= 40 for line in shown(40, monkeypatch).splitlines())
    assert ROWS[0][3] in shown(200, monkeypatch) and len(shown(200, monkeypatch).splitlines()) == 2 + len(ROWS) + 2


def test_one_is_not_many() -> None:
    assert plural(1, "life", "lives") == "1 life" and plural(0, "life", "lives") == "0 lives"
    assert plural(1, "seed") == "1 seed" and plural(2048, "seed") == "2,048 seeds"
