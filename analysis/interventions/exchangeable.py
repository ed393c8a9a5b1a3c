"""Is a direction more than one of many? Effects of random directions are a distribution, and one draw is no control."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.statistics.permutation_p import counted_p
from analysis.statistics.resampling import Estimate

FEWEST_FOR_RANK = 19
"""Random directions from which on a rank among them can have a p-value of 5%."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Difference:
    """An effect minus what it is compared with.

    Attributes:
        estimate: with its interval.
        error: standard error.
        freedom: degrees of freedom of that error; 0 if it is unknown.
        p: two-sided, of no difference, by Student's t; NaN if the error is unknown.
    """

    estimate: Estimate
    error: float
    freedom: int
    p: float


def from_one_more(effect: float, draws: np.ndarray, confidence: float) -> Difference:
    """Compare an effect with K draws from the distribution that it would be one more draw of, (K,).

    The standard error is the standard deviation of the draws times the root of 1 + 1/K: it holds the variance of the
    effect itself, as one more draw, and of the mean of the draws. Divided by it, the difference follows Student's t
    with K - 1 degrees of freedom if draws are normal (Crawford and Howell 1998, The Clinical Neuropsychologist 12,
    482-486). Effects of directions that are means over the same episodes differ by what the directions do and by the
    noise of episodes; both are in the spread of the draws, and what the episodes have in common cancels. A single
    draw tells nothing of the spread: there is neither interval nor p then.
    """
    count, value = len(draws), float(effect - draws.mean())
    spread = float(draws.std(ddof=1)) if count > 1 else np.nan
    error = spread * np.sqrt(1 + 1 / count)
    if not error > _ROUNDING * max(abs(effect), np.abs(draws).max()):
        return Difference(Estimate(value), np.nan, 0, np.nan)
    half = stats.t.isf((1 - confidence) / 2, count - 1) * error
    p = 2 * stats.t.sf(abs(value) / error, count - 1)
    return Difference(Estimate(value, float(value - half), float(value + half)), float(error), count - 1, float(p))


def at_least_as_large(effect: float, draws: np.ndarray) -> int:
    """Return how many draws, (K,), are at least as large as an effect, whatever their sign."""
    return int((np.abs(draws) >= abs(effect) * (1 - _ROUNDING)).sum())


def ranks_among(effects: np.ndarray) -> np.ndarray:
    """Return p-values of N effects of the first of 1 + K directions by its rank among all, corrected for their number.

    If the first direction is drawn like the others, each is as likely to have the largest effect, whatever the
    distribution of effects and however they depend on each other. So an effect is compared with the largest of all
    N of each other direction (single-step maxT: Westfall and Young 1993, "Resampling-based multiple testing", chapter
    2), after division by the root mean square over directions. No p-value is below 1 / (1 + K).

    Args:
        effects: (1 + K, N); NaN counts as no effect.

    Returns:
        (N,), the chance that any of the N would be called an effect is at most the level.
    """
    size = np.abs(np.nan_to_num(effects))
    typical = np.sqrt((size**2).mean(axis=0))
    scaled = np.divide(size, typical, out=np.zeros_like(size), where=typical > 0)  # (1 + K, N)
    return np.asarray(counted_p(scaled[0], scaled[1:].max(axis=1, keepdims=True, initial=0)))


def rank_threshold(effects: np.ndarray) -> np.ndarray:
    """Return how large each of N effects must be to be found by `ranks_among` at 5%, (1 + K, N) -> (N,); inf if never.

    Effects of the K other directions are taken as they are.
    """
    others = np.abs(np.nan_to_num(effects[1:]))  # (K, N)
    if len(others) < FEWEST_FOR_RANK:
        return np.full(effects.shape[1], np.inf)
    typical = np.sqrt((others**2).mean(axis=0))
    scaled = np.divide(others, typical, out=np.zeros_like(others), where=typical > 0).max(axis=1)
    may_be_larger = (1 + len(others)) // (1 + FEWEST_FOR_RANK) - 1
    return np.asarray(np.sort(scaled)[len(others) - 1 - may_be_larger] * typical)
