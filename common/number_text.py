"""Numbers as people read them: "1,024 lives", shares in percent, two decimals, p-values."""

import math

UNDEFINED = "n/a"
"""How text and figures show an undefined number."""
_SMALLEST_SHOWN = 0.001


def share_text(share: float) -> str:
    """Write a share, from 0 to 1, in percent; only exactly 0 and 1 are shown as 0% and 100%."""
    if 0 < share < _SMALLEST_SHOWN / 2:
        return f"<{_SMALLEST_SHOWN:.1%}"
    if 1 - _SMALLEST_SHOWN / 2 <= share < 1:
        return f">{1 - _SMALLEST_SHOWN:.1%}"
    return f"{share:.1%}"


def format_number(value: float, sign: bool = False) -> str:
    """Write a number with two decimals; NaN, which means undefined, as "n/a"."""
    if math.isnan(value):
        return UNDEFINED
    value = round(value, 2) + 0.0
    return f"{value:+.2f}" if sign else f"{value:.2f}"


def format_p(value: float) -> str:
    """Write a p- or q-value: "0.012", "<0.001", or "n/a"."""
    if math.isnan(value):
        return UNDEFINED
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def plural(number: int, word: str, words: str | None = None) -> str:
    """Return a number and what it counts.

    Args:
        words: of several; by default with an s.
    """
    return f"{number:,} {word if number == 1 else words or f'{word}s'}"
