"""Means over seeds with their intervals, and differences between groups of seeds."""

import warnings
from dataclasses import dataclass

import numpy as np

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Difference:
    """A difference of two means with its interval and p-value; NaN where the seeds do not allow them."""

    value: float
    low: float
    high: float
    p: float


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


def difference(first: np.ndarray, second: np.ndarray, paired: bool, confidence: float) -> Difference:
    """Compare the means of two groups of runs: a paired t-test, or one that allows for two variances (Welch 1947).

    Args:
        first, second: a value for each run, (S1,) and (S2,), finite.
        paired: whether values at the same place belong together, so that only their differences vary.
        confidence: of the interval, 0 to 1.

    Returns:
        `first` minus `second`. No interval and no p-value if a group has fewer than two runs, or nothing varies.
    """
    from scipy import stats

    if not len(first) or not len(second):
        return Difference(np.nan, np.nan, np.nan, np.nan)
    value = float(first.mean() - second.mean())
    size = max(np.abs(first).max(), np.abs(second).max())
    varying = [first - second] if paired else [first, second]
    if min(len(first), len(second)) < 2 or all(np.ptp(each) <= _ROUNDING * size for each in varying):
        return Difference(value, np.nan, np.nan, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one group may be constant: the other then has all variance
        tested = stats.ttest_rel(first, second) if paired else stats.ttest_ind(first, second, equal_var=False)
        interval = tested.confidence_interval(confidence)
    return Difference(value, float(interval.low), float(interval.high), float(tested.pvalue))
