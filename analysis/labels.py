"""Labels of records: a cluster's number, or noise."""

import numpy as np

NOISE = -1
"""The label of records that do not belong to any cluster."""


def label_name(label: int) -> str:
    """Return a label's name in legends and tables."""
    return "noise" if label == NOISE else f"cluster {label}"


def largest_first(labels: np.ndarray) -> np.ndarray:
    """Renumber clusters by decreasing size, ties by their old number; noise stays noise."""
    clusters, sizes = np.unique(labels[labels != NOISE], return_counts=True)
    renumbered = np.full(len(labels), NOISE, np.int64)
    for rank, cluster in enumerate(clusters[np.argsort(-sizes, kind="stable")]):
        renumbered[labels == cluster] = rank
    return renumbered
