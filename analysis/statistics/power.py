"""How large a difference must be for a dump to show it: power, from how wide the intervals at hand are."""

import numpy as np
from scipy import stats

from analysis.statistics.effect_intervals import EffectIntervals

POWER = 0.8
"""Share of dumps like this one in which a difference should be found."""


def detectable(intervals: EffectIntervals, confidence: float, power: float = POWER) -> np.ndarray:
    """Return the |d| against the complement at which so many dumps would have an interval without 0, (K, F); or NaN.

    An interval reaches to either side as far as Student's t has it for its confidence; the estimate must lie further
    than that from 0, and does so with a given power where the true d is further still by that quantile of t (Cohen
    1988, section 2.1). One difference at a time: the correction for many tests asks for more.

    Args:
        intervals: of K clusters and F features.
        confidence: of the intervals, between 0 and 1.
        power: between 0.5 and 1.
    """
    freedom = np.maximum(intervals.effective - 1, 1e-6)[:, None]
    told = np.isfinite(intervals.complement_low) & np.isfinite(intervals.complement_high)
    width = np.subtract(
        intervals.complement_high, intervals.complement_low, out=np.full(told.shape, np.nan), where=told
    )
    return width / 2 * (1 + stats.t.ppf(power, freedom) / stats.t.isf((1 - confidence) / 2, freedom))
