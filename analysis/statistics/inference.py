"""What all statistics of clusters share: their settings, p-values from permutations, the correction for many tests.

A p-value is counted where there are enough exceedances, and taken from a fitted tail where there are not: correcting
for thousands of tests takes p-values far below one over the number of permutations that anyone can wait for. So beyond
the 10th largest null value the null is taken to fall off as the statistic's own limiting distribution does, tied to the
permutations at that value. Up to there nothing but counting plays a part.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

POWER = 0.8
"""Share of dumps or runs like the one at hand in which a difference should be found."""

LEVEL = 0.05
"""False discovery rate at which an effect or a confound counts."""

FEWEST_LIVES = 6
"""Lives that must carry information before a test is made: fewer could hardly reach 5% whatever they showed."""

FEWEST_EPISODES = 6
"""Episodes from which on a test must also hold with all lives of an episode shifted together, for the same reason."""


@dataclass(frozen=True)
class Inference:
    """Settings of tests and intervals: how many draws of each, the confidence of intervals, 0 to 1, and the seed."""

    permutations: int = 999
    bootstraps: int = 999
    confidence: float = 0.95
    seed: int = 42


def false_discovery(p: np.ndarray) -> np.ndarray:
    """Correct p-values of any shape for being many (Benjamini and Hochberg 1995); NaN, no test, stays NaN.

    The procedure of Benjamini and Yekutieli, which allows for any dependence, is not needed: features and clusters of
    the same records make p-values that are positively dependent or, between a cluster and the rest, mirror images, for
    which planted nulls show no more false discoveries than allowed (tests/analysis/statistics/test_circular_shift.py).
    """
    from scipy import stats

    corrected = np.full(p.shape, np.nan)
    tested = np.isfinite(p)
    if tested.any():
        corrected[tested] = stats.false_discovery_control(p[tested])
    return corrected


def student_stretch(units: float, confidence: float) -> float:
    """Return how much wider than a percentile interval over `units` resampled units an interval must be, above 1.

    With few units, plain percentiles are too narrow (Efron and Tibshirani 1993, section 12.4): they lack Student's
    tails and the factor that turns the variance of a sample into an unbiased estimate. At least 2 units.
    """
    from scipy import stats

    tail = (1 - confidence) / 2
    return float(stats.t.isf(tail, units - 1) / stats.norm.isf(tail) * np.sqrt(units / (units - 1)))


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
    from scipy import stats

    freedom = np.maximum(effective - 1, 1)

    def beyond(ratio: np.ndarray) -> np.ndarray:
        room = np.maximum(lives - ratio**2, 1e-12)
        return stats.t.sf(ratio * np.sqrt(np.maximum(lives - 1, 0) / room), freedom)

    return _with_tail(observed, null, beyond)


def information_p(observed: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return p of a mutual information or another sum of squares, with the tail of a gamma distribution.

    Its mean and variance are those of the permutations (Pearson's type III: Mielke and Berry 2007, "Permutation
    methods", chapter 2); 2 N times a mutual information is a chi-square, a gamma too, where records are independent.
    The null, (M, ...), is counted where all its values are the same; the observed values, (...), are not negative.
    """
    from scipy import stats

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
