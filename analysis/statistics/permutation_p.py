"""p-values from permutations: counted where there are enough exceedances, from a fitted tail where there are not.

Correcting for thousands of tests takes p-values far below one over the number of permutations that anyone can wait for.
So beyond the 10th largest null value the null is taken to fall off as the statistic's own limiting distribution does,
tied to the permutations at that value. Up to there nothing but counting plays a part.
"""

from collections.abc import Callable

import numpy as np
from scipy import stats

_RANK = 10
_FEWEST_FOR_TAIL = 99
_RELATIVE_ROUNDING = 1e-5


def counted_p(observed: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return (1 + null values at least as large) / (1 + null values), for null (M, ...) and observed (...).

    Phipson and Smyth 2010, "Permutation p-values should never be zero": the labels as they are count among the
    permutations.
    """
    return (1 + (null >= observed - _RELATIVE_ROUNDING * np.abs(observed)).sum(axis=0)) / (1 + len(null))


def ratio_p(observed: np.ndarray, null: np.ndarray, lives: np.ndarray, effective: np.ndarray) -> np.ndarray:
    """Return p of |sum| / root of the sum of squares of lives' shares, with Student's tail.

    That ratio is a function of the one-sample t-statistic of the shares; its tail is Student's, with as many degrees of
    freedom as there are equally informative lives less one (de la Pena, Lai and Shao 2009, "Self-normalized processes",
    chapter 1).

    Args:
        observed: (...), not negative.
        null: (M, ...).
        lives: shares that are added up, (...).
        effective: how many equally informative ones they amount to, (...).
    """
    freedom = np.maximum(effective - 1, 1)
    return _with_tail(observed, null, lambda ratio: stats.t.sf(_t(ratio, lives), freedom))


def information_p(observed: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return p of a mutual information or another sum of squares, with the tail of a gamma distribution.

    Its mean and variance are those of the permutations (Pearson's type III: Mielke and Berry 2007, "Permutation
    methods", chapter 2); 2 N times a mutual information is a chi-square, a gamma too, where records are independent.
    The null, (M, ...), is counted where all its values are the same; the observed values, (...), are not negative.
    """
    mean, variance = null.mean(axis=0), null.var(axis=0)
    varies = variance > (_RELATIVE_ROUNDING * mean) ** 2
    shape = np.divide(mean**2, variance, out=np.full_like(mean, np.nan), where=varies)
    scale = np.divide(variance, mean, out=np.full_like(mean, np.nan), where=varies)
    return _with_tail(observed, null, lambda value: stats.gamma.sf(value, shape, scale=scale))


def _with_tail(observed: np.ndarray, null: np.ndarray, beyond: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return counted p-values, or beyond the 10th largest null value that value's, less as the tail `beyond` falls."""
    p = counted_p(observed, null)
    if len(null) < _FEWEST_FOR_TAIL:
        return p
    rank = np.partition(null, len(null) - _RANK, axis=0)[-_RANK]
    with np.errstate(invalid="ignore", divide="ignore"):
        tail = (1 + _RANK) / (1 + len(null)) * beyond(observed) / beyond(rank)
    further = (observed > rank * (1 + _RELATIVE_ROUNDING)) & np.isfinite(tail)
    return np.where(further, np.maximum(tail, np.finfo(float).tiny), p)


def _t(ratio: np.ndarray, lives: np.ndarray) -> np.ndarray:
    """Turn sums over roots of sums of squares of n shares into the one-sample t-statistic of the shares."""
    room = np.maximum(lives - ratio**2, 1e-12)
    return ratio * np.sqrt(np.maximum(lives - 1, 0) / room)
