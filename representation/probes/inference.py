"""From scores of worlds to intervals and tests: worlds are resampled, never records.

A value's standard error is that of its bootstrap over worlds (Efron and Tibshirani 1993, "An introduction to the
bootstrap", chapter 6), enlarged by sqrt(W / (W - 1)), since a bootstrap of few units is too narrow by that (Hesterberg
2015, "What teachers should know about the bootstrap"); interval and one-sided p-value are Student's with W - 1 degrees
of freedom. With few worlds that is wide, as it has to be. What it covers is which worlds the probe is tested on, not
the training of the policy.
"""

from dataclasses import dataclass

import numpy as np

from analysis.statistics.resampling import Bootstrap

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimates:
    """Values with their intervals and the p-values of being above 0 by chance, (T,) each; NaN where unknown."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


@dataclass(frozen=True)
class Resamples:
    """How often each resample draws each world.

    Attributes:
        weights: (R, W) float64.
    """

    weights: np.ndarray

    @staticmethod
    def draw(worlds: int, resamples: int, seed: int) -> "Resamples":
        """Draw as many worlds as there are, with replacement, so many times."""
        units = ((0, tuple(range(worlds))),)
        bootstrap = Bootstrap(confidence=CONFIDENCE, resamples=resamples, seed=seed)
        return Resamples(bootstrap.draw(units).episodes.astype(np.float64))

    def estimate(self, value: np.ndarray, resampled: np.ndarray, informative: np.ndarray) -> Estimates:
        """Turn a value and its resamples into an interval and a test.

        Args:
            value: (T,).
            resampled: (R, T).
            informative: worlds that each target has something at stake in, (T,).
        """
        from scipy.stats import t

        enough = informative >= 2
        worlds = np.where(enough, informative, 2)
        spread = np.sqrt(np.nanvar(_never_empty(resampled), axis=0, ddof=1) * worlds / (worlds - 1))
        reach = spread * t.ppf((1 + CONFIDENCE) / 2, worlds - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = t.sf(value / spread, worlds - 1)
        known = enough & np.isfinite(value) & (spread > 0)
        nothing = np.full(value.shape, np.nan)
        return Estimates(
            value,
            np.where(known, value - reach, nothing),
            np.where(known, value + reach, nothing),
            np.where(known, p, nothing),
        )


def _never_empty(resampled: np.ndarray) -> np.ndarray:
    """Give columns without any number zeros, so that no warning tells what the caller knows."""
    return np.where(np.isfinite(resampled).any(axis=0), resampled, 0.0)
