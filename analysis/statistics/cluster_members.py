"""Which records each cluster holds, for all clusters at once: thousands of masks of all records would take too long."""

import numpy as np


def members(labels: np.ndarray) -> list[np.ndarray]:
    """Return the records of the noise, then those of each cluster, in order: (records,) int64 each.

    Args:
        labels: (B,) clusters from 0; negative for noise.
    """
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(labels.max() + 1)))
