"""What a label says: the cluster of a record, or that it is in none."""

NOISE = -1
"""The label of records that belong to no cluster."""


def label_name(label: int) -> str:
    """Return what a label is called in legends and tables."""
    return "noise" if label == NOISE else f"cluster {label}"
