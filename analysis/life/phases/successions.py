"""Does one state follow another more or less often than in random orders of visits? All pairs tested together."""

from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from analysis.statistics.inference import false_discovery

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Successions:
    """The test of all pairs of K states, (K, K) each.

    Attributes:
        chance: mean share of the changes out of the row's state that lead to the column's; NaN where there are none.
        p: of each pair by itself; NaN where all orders have the same share, so that there is nothing to test.
        q: corrected for the number of pairs; NaN likewise.
    """

    chance: np.ndarray
    p: np.ndarray
    q: np.ndarray


def against_orders(counts: np.ndarray) -> Successions:
    """Compare the changes observed with those in random orders, two-sided.

    A pair's deviation is the deviance of a binomial, which suits rare pairs as well as pairs that nearly always occur,
    divided by how much more or less than a binomial the pair varies over the orders. So all pairs are on one scale, and
    q can rest on the orders of all pairs together: the mean number of pairs per order that deviate at least as far,
    over the number observed that do (Benjamini and Hochberg 1995, on permutations pooled as in Tusher, Tibshirani and
    Chu 2001, PNAS 98, 5116-5121). If each pair had its own orders only, no p-value could be smaller than one over their
    number: among the 30 pairs of 6 states, 1,000 orders could never single one out.

    The observed order counts as one of the orders throughout (Phipson and Smyth 2010), so that where chance is all
    there is, it is as likely as any other to stand out.

    Args:
        counts: changes from the row's state to the column's in each order, the observed one first, (M + 1, K, K).
    """
    chance = _mean_share(counts)
    variation = np.zeros(chance.shape)
    for counted in counts:
        variation += _pearson(counted, chance) / len(counts)
    tested = variation > _ROUNDING
    p, q = np.full((2, *chance.shape), np.nan)
    if not tested.any():
        return Successions(chance, p, q)
    observed = _deviance(counts[0], chance)[tested] / variation[tested]
    thresholds = observed * (1 - _ROUNDING)
    rising = np.sort(thresholds)
    own, passed = np.zeros(len(observed), np.int64), np.zeros(len(observed) + 1, np.int64)
    for counted in counts:
        deviation = _deviance(counted, chance)[tested] / variation[tested]
        own += deviation >= thresholds
        passed += np.bincount(np.searchsorted(rising, deviation, side="right"), minlength=len(passed))
    beyond = passed[::-1].cumsum()[::-1][1:]  # values of all pairs and orders at or above each rising threshold
    pooled = beyond[np.searchsorted(rising, thresholds)] / (len(counts) * len(observed))
    p[tested], q[tested] = own / len(counts), false_discovery(pooled)
    return Successions(chance, p, q)


def _mean_share(counts: np.ndarray) -> np.ndarray:
    """Return the mean of each pair's share of its row over the orders in which the row has changes, (K, K)."""
    total, known = np.zeros((2, *counts.shape[1:]))
    for counted in counts:
        row = counted.sum(axis=1, keepdims=True)
        total += counted / np.maximum(row, 1)
        known += row > 0
    return np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)


def _pearson(count: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Return squared differences from what is expected, over the variance of a binomial, (K, K); 0 without any."""
    row = count.sum(axis=1, keepdims=True)
    variance = row * chance * (1 - chance)
    return np.divide((count - row * chance) ** 2, variance, out=np.zeros(chance.shape), where=variance > _ROUNDING)


def _deviance(count: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Return the deviance of a binomial with each row's changes, (K, K); NaN where chance is."""
    row = count.sum(axis=1, keepdims=True).astype(np.float64)
    expected = row * chance
    return 2 * (rel_entr(count, expected) + rel_entr(row - count, np.maximum(row - expected, 0)))
