"""What all statistics of clusters share: their settings, and the correction for many tests."""

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
