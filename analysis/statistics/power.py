"""How large a difference must be for a dump to show it: power, from how wide the intervals at hand are."""

import numpy as np
from scipy import special, stats

from analysis.statistics.effect_intervals import EffectIntervals

POWER = 0.8
"""Share of dumps like this one in which a difference should be found."""


def detectable(intervals: EffectIntervals, confidence: float, power: float = POWER) -> np.ndarray:
    """Return the |d| against the complement at which so many dumps would have an interval without 0, (K, F); or NaN.

    An interval reaches to either side by a standard error times the quantile of Student's t for its confidence. The
    estimate over its standard error exceeds that quantile with a given power if it follows a noncentral t with the
    noncentrality that is solved for here (Cohen 1988, section 12.8). The standard error is itself estimated: with few
    units most dumps have one that is too small, by the median of a chi variable over the root of its degrees of
    freedom, which is divided out. One difference at a time: the correction for many tests asks for more. `power` is
    between 0.5 and 1.
    """
    freedom = np.maximum(intervals.effective - 1, 1.0)[:, None]  # an interval has at least that
    known = np.isfinite(intervals.complement_low) & np.isfinite(intervals.complement_high)
    width = np.subtract(
        intervals.complement_high, intervals.complement_low, out=np.full(known.shape, np.nan), where=known
    )
    quantile = stats.t.isf((1 - confidence) / 2, freedom)
    noncentrality = special.nctdtrinc(freedom, 1 - power, quantile)
    too_small = np.sqrt(stats.chi2.median(freedom) / freedom)
    return width / 2 / quantile * noncentrality / too_small
