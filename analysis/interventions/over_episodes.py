"""Means over episodes with their intervals, and tests by flipping the signs of episodes."""

from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from analysis.interventions.exchangeable import Difference
from analysis.statistics.inference import Inference, student_stretch
from analysis.statistics.permutation_p import ratio_p
from analysis.statistics.resampling import Estimate

_ROUNDING = 1e-12
_EXACT_UP_TO = 12  # episodes: 4,096 ways to flip them

COUNTED_UP_TO = 6
"""Episodes up to which sign flips are so few that no p-value can be below 2 / their number."""


@dataclass(frozen=True)
class OverEpisodes:
    """Estimates over episodes, the unit of sampling: agents of one episode share a world.

    Intervals come from a bootstrap over episodes: percentiles of the resampled means, stretched about the mean by
    Student's t. Plain percentiles are too narrow with as few episodes as people play, and t intervals ignore that
    rare outcomes, such as a cause of death, are skewed.
    tests/analysis/interventions/test_over_episodes.py measures the coverage with 6 to 20 episodes.
    """

    settings: Inference
    _drawn: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def estimate(self, values: np.ndarray) -> Estimate:
        """Return the mean over episodes and its interval; episodes that are NaN are left out, (E,).

        There is no interval with fewer than two episodes, nor where all agree: resampling them cannot tell how far
        others may be from them.
        """
        known = values[np.isfinite(values)]
        if not len(known):
            return Estimate(np.nan)
        mean = float(known.mean())
        if len(known) < 2 or np.ptp(known) <= _ROUNDING * np.abs(known).max():
            return Estimate(mean)
        tail = (1 - self.settings.confidence) / 2
        ends = np.quantile(self._weights(len(known)) @ known, [tail, 1 - tail])
        low, high = mean + student_stretch(len(known), self.settings.confidence) * (ends - mean)
        return Estimate(mean, float(low), float(high))

    def error(self, values: np.ndarray) -> tuple[float, int]:
        """Return the standard error of the mean over episodes, (E,), and its degrees of freedom; NaN and 0 if unknown.

        Episodes that are NaN are left out.
        """
        known = values[np.isfinite(values)]
        if len(known) < 2 or np.ptp(known) <= _ROUNDING * np.abs(known).max():
            return np.nan, 0
        return float(known.std(ddof=1) / np.sqrt(len(known))), len(known) - 1

    def difference(self, values: np.ndarray) -> Difference:
        """Return the mean over episodes of a difference, (E,), tested by Student's t; NaN are left out."""
        error, freedom = self.error(values)
        estimate = self.estimate(values)
        p = 2 * float(stats.t.sf(abs(estimate.value) / error, freedom)) if freedom else np.nan
        return Difference(estimate, error, freedom, p)

    def smallest_p(self, values: np.ndarray) -> float:
        """Return the smallest p-value that `sign_flip_p` can give over these episodes, (E,), whatever their values."""
        known = int(np.isfinite(values).sum())
        return 2.0 ** (1 - known) if known <= COUNTED_UP_TO else 0.0

    def resampled_means(self, values: np.ndarray) -> np.ndarray:
        """Return the means of resampled episodes, (E, ...) -> (resamples, ...); none may be NaN."""
        return np.tensordot(self._weights(len(values)), values, axes=1) if len(values) else np.full_like(values, np.nan)

    def percentiles(self, resampled: np.ndarray) -> np.ndarray:
        """Return the ends of the percentile interval over resamples, (resamples, ...) -> (2, ...)."""
        tail = (1 - self.settings.confidence) / 2
        # Without interpolation, since some resamples may be infinite.
        return np.asarray(np.quantile(resampled, [tail, 1 - tail], axis=0, method="nearest"))

    def sign_flip_p(self, values: np.ndarray) -> float:
        """Return the two-sided p-value of a mean over episodes of 0, (E,); episodes that are NaN are left out.

        If episodes are as likely to have a value as its negative, flipping signs changes nothing (Fisher 1935, "The
        design of experiments", section 21). With few episodes all flips are tried, with many a random sample; from 7
        episodes on, p-values too small to be counted follow Student's tail (`ratio_p`). NaN with fewer than two
        episodes, or where nothing differs from 0.
        """
        known = values[np.isfinite(values)]
        if len(known) < 2 or not known.any():
            return np.nan
        size, count = np.sqrt((known**2).sum()), np.array([len(known)])
        null = np.abs(_flips(len(known), self.settings) @ known)[:, None] / size
        return float(ratio_p(np.abs(known.sum(keepdims=True)) / size, null, count, count)[0])

    def _weights(self, episodes: int) -> np.ndarray:
        """Return the weight of each episode in each resample, (R, E); each row sums to 1."""
        if episodes not in self._drawn:
            rng = np.random.default_rng([self.settings.seed, episodes, 0])
            chances = np.full(episodes, 1 / episodes)
            self._drawn[episodes] = rng.multinomial(episodes, chances, self.settings.bootstraps) / episodes
        return self._drawn[episodes]


def excludes_zero(estimate: Estimate) -> bool:
    """Return whether an estimate has an interval, and 0 is outside it."""
    return estimate.low > 0 or estimate.high < 0


def _flips(episodes: int, settings: Inference) -> np.ndarray:
    """Return signs of episodes, +1 or -1, (flips, episodes); if all, without the one that flips nothing."""
    if episodes <= _EXACT_UP_TO:
        return 1.0 - 2.0 * ((np.arange(1, 2**episodes)[:, None] >> np.arange(episodes)) & 1)
    rng = np.random.default_rng([settings.seed, episodes, 1])
    return rng.choice([-1.0, 1.0], (settings.permutations, episodes))
