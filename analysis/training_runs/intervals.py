"""Means over seeds with their intervals."""

import numpy as np


def mean_over_seeds(values: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return means over seeds, and Student's t intervals; NaN in a row is a seed without a value there.

    Args:
        values: a row for each seed, (S, P).
        confidence: of the intervals, 0 to 1.

    Returns:
        Means, lower ends, upper ends and numbers of seeds, (P,) each. The mean is NaN without any seed, the ends with
        fewer than two.
    """
    from scipy import stats

    known = np.isfinite(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    squares = np.where(known, values - mean, 0.0) ** 2
    many = count > 1
    variance = np.divide(squares.sum(axis=0), count - 1, out=np.full(len(count), np.nan), where=many)
    reach = stats.t.ppf((1 + confidence) / 2, np.maximum(count - 1, 1)) * np.sqrt(variance / np.maximum(count, 1))
    return mean, mean - reach, mean + reach, count
