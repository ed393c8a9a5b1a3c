"""Rows of results as tab-separated text, for people and spreadsheets."""

import math
from collections.abc import Mapping, Sequence


def tab_separated(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows with the same keys under a line of their names; what is not known, or not finite, stays empty."""
    names = list(rows[0]) if rows else []
    lines = ["\t".join(names), *("\t".join(_cell(row[name]) for name in names) for row in rows)]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)
