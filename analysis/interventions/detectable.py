"""How large an effect must be to be found: what a result that is not one can still tell."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from analysis.statistics.inference import LEVEL
from analysis.statistics.power import POWER

_GRID = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class Condition:
    """One comparison that an effect must pass: its standard error, and the degrees of freedom of that error."""

    error: float
    freedom: int

    @property
    def known(self) -> bool:
        """Whether the error is known."""
        return bool(np.isfinite(self.error)) and self.freedom > 0


def detectable(conditions: Sequence[Condition], tests: int, smallest_p: float = 0.0, power: float = POWER) -> float:
    """Return the size of effect that passes all conditions in a share `power` of runs like this one.

    Each condition asks for a two-sided p of at most `LEVEL` / `tests` by Student's t, which is what the correction for
    `tests` tests asks of a single effect. An effect over its standard error follows a noncentral t (Cohen 1988, section
    12.8). Conditions are taken for independent; they share the noise of the effect, so that power is a little higher.
    Errors are themselves estimates, and with few degrees of freedom most are too small, by the median of a chi variable
    over the root of its degrees of freedom, which is divided out.

    Args:
        conditions: those whose error is unknown are left out.
        tests: number of tests that are corrected together.
        smallest_p: that the test can have, whatever the effect.
        power: between 0.5 and 1.

    Returns:
        In the unit of the errors; infinite if `smallest_p` is too large for anything to be found, NaN if no condition
        has a known error.
    """
    known = [each for each in conditions if each.known]
    if not known or not tests:
        return np.nan
    level = LEVEL / tests
    if smallest_p > level:
        return np.inf
    freedom = np.array([each.freedom for each in known], dtype=np.float64)
    error = np.array([each.error for each in known]) / np.sqrt(stats.chi2.median(freedom) / freedom)
    quantile = stats.t.isf(level / 2, freedom)
    high = float((quantile * error).max())
    # Over a grid of each error's own distribution, which stays accurate at one degree of freedom and in far tails.
    bar = quantile * np.sqrt(stats.chi2.ppf(_GRID[:, None], freedom) / freedom)  # (grid, conditions)

    def beyond_wanted(size: float) -> float:
        return float(np.prod(special.ndtr(size / error - bar).mean(axis=0))) - power

    while beyond_wanted(high) < 0:
        high *= 2
    return float(optimize.brentq(beyond_wanted, 0, high, rtol=1e-4))
