"""Means over states with intervals over samples: the samples are of different lives, the states of one are not."""

import numpy as np

from analysis.statistics.resampling import Estimate

RESAMPLES = 2000
_ENDS = (0.025, 0.975)


class OverSamples:
    """Resamples of samples, the same for every mean."""

    def __init__(self, sample: np.ndarray, seed: int):
        """Draw the resamples.

        Args:
            sample: that each state belongs to, (N,).
            seed: of the draws.
        """
        _, self._number = np.unique(sample, return_inverse=True)
        self._count = int(self._number.max()) + 1
        even = np.full(self._count, 1 / self._count)
        self._draws = np.random.default_rng([seed, 11]).multinomial(self._count, even, RESAMPLES)  # (R, samples)

    def mean(self, values: np.ndarray, weight: np.ndarray) -> Estimate:
        """Return the sum of values over the sum of weights, with its 95% interval.

        Args:
            values: of each state, (N,).
            weight: of each state, (N,); 1 for a mean over states.
        """
        value, drawn = self._ratio(values, weight)
        return self._estimate(value, drawn)

    def difference(self, values: np.ndarray, weight: np.ndarray, one: np.ndarray, other: np.ndarray) -> Estimate:
        """Return how much larger the mean over some states is than over others, with its 95% interval.

        Args:
            values, weight: as in `mean`.
            one: states of the first mean, (N,) bool.
            other: states of the second mean, (N,) bool.
        """
        first, first_drawn = self._ratio(values * one, weight * one)
        second, second_drawn = self._ratio(values * other, weight * other)
        return self._estimate(first - second, first_drawn - second_drawn)

    def _ratio(self, values: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
        tops, bottoms = (np.bincount(self._number, each, self._count) for each in (values, weight))
        drawn = self._draws @ bottoms
        ratio = np.divide(self._draws @ tops, drawn, out=np.full(RESAMPLES, np.nan), where=drawn > 0)
        return float(tops.sum() / bottoms.sum()) if bottoms.sum() > 0 else float("nan"), ratio

    def _estimate(self, value: float, drawn: np.ndarray) -> Estimate:
        if self._count < 2 or not np.isfinite(drawn).any():
            return Estimate(value)
        low, high = np.nanquantile(drawn, _ENDS)
        return Estimate(value, float(low), float(high))
