"""Format shares of records, so that a cluster of 144 records among 333,570 is not shown as 0.0%."""

_SMALLEST_SHOWN = 0.001


def share_text(share: float) -> str:
    """Write a share, from 0 to 1, in percent; only exactly 0 and 1 are shown as 0% and 100%."""
    if 0 < share < _SMALLEST_SHOWN / 2:
        return f"<{_SMALLEST_SHOWN:.1%}"
    if 1 - _SMALLEST_SHOWN / 2 <= share < 1:
        return f">{1 - _SMALLEST_SHOWN:.1%}"
    return f"{share:.1%}"
