"""Tables for terminals: words are never broken where they fit, so that names and numbers can be read at 80 columns."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table


def terminal_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str], title: str = "", caption: str = ""
) -> "Table":
    """Return a table whose cells wrap between words, as long as all words fit beside each other.

    Args:
        left: heads of columns of words; the others hold numbers, and are aligned right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(title) or None, title_justify="left", caption=escape(caption) or None, caption_justify="left",
        box=SIMPLE_HEAD, padding=0, show_edge=False,
    )  # fmt: skip
    columns = [(head, *(row[place] for row in rows)) for place, head in enumerate(heads)]
    widths = _widths(columns, Console().width - len(heads) + 1)
    for head, width in zip(heads, widths, strict=True):
        justify: Literal["left", "right"] = "left" if head in left else "right"
        table.add_column(head, justify=justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _widths(columns: Sequence[tuple[str, ...]], room: int) -> Sequence[int | None]:
    """Return the width of each column, such that no word is broken; None for all where there is no room for that."""
    widths = [max((len(word) for text in column for word in text.split()), default=1) for column in columns]
    whole = [max(map(len, column)) for column in columns]
    left = room - sum(widths)
    if left < 0:
        return [None] * len(columns)
    while left and (short := max(full - width for full, width in zip(whole, widths, strict=True))) > 0:
        place = next(place for place, width in enumerate(widths) if whole[place] - width == short)
        widths[place] += 1
        left -= 1
    return widths
