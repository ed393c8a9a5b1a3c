"""Rows of results as tab-separated text, for people and spreadsheets."""

import math
from collections.abc import Iterable, Mapping, Sequence


def tab_separated(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows with the same keys under a line of their names; what is not known, or not finite, stays empty."""
    names = list(rows[0]) if rows else []
    return tab_separated_lines(names, ([_cell(row[name]) for name in names] for row in rows))


def tab_separated_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells that are text already under a line of heads, which stands there even without rows."""
    return "".join("\t".join(cells) + "\n" for cells in (heads, *rows))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)
