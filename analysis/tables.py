"""Rows of results as tab-separated text, for people and spreadsheets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Cell = str | int | float | None


def tab_separated(rows: Sequence[Mapping[str, object]], digits: int = 6) -> str:
    """Return rows with the same keys under a line of their names; what is not known, or not finite, stays empty.

    Args:
        digits: of each number that count.
    """
    names = list(rows[0]) if rows else []
    return tab_separated_lines(names, ([_cell(row[name], digits) for name in names] for row in rows))


def tab_separated_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells that are text already under a line of heads, which stands there even without rows."""
    return "".join("\t".join(cells) + "\n" for cells in (heads, *rows))


def _cell(value: object, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Table:
    """One table; None and NaN are cells without a value."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def as_text(self) -> str:
        """Return the table as tab-separated lines, heads first; what is missing is empty."""
        return tab_separated_lines(self.heads, ([_cell(cell, digits=10) for cell in row] for row in self.rows))
