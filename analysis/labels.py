"""Labels of records: a cluster's number, or noise."""

NOISE = -1
"""The label of records that do not belong to any cluster."""


def label_name(label: int) -> str:
    """Return a label's name in legends and tables."""
    return "noise" if label == NOISE else f"cluster {label}"
