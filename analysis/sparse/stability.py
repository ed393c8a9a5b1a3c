"""Which features of an autoencoder are found again with another seed."""

from dataclasses import dataclass

import numpy as np

from analysis.sparse.scores import CONFIDENCE, RESAMPLES, Estimate
from analysis.statistics.inference import LEVEL
from analysis.statistics.surrogate import above_floor

FOUND_AGAIN = 0.9
"""Cosine from which on two features count as the same."""


@dataclass(frozen=True, eq=False)
class Stability:
    """How features match those of the same autoencoder with another seed.

    Attributes:
        cosine: of each living feature's direction with its partner in a one-to-one matching, (alive,).
        found_again: share of living features with a partner at `FOUND_AGAIN` or more.
        chance: mean cosine of as many random directions, matched in the same way.
        floor: the cosines of two autoencoders of a Gaussian of the same covariance and autocorrelation, (their alive,).
        gaussian: mean of these.
        q: of each living feature's cosine against the floor, (alive,).
        stable: share of living features that are above the floor, q <= 0.05.
    """

    cosine: np.ndarray
    mean: Estimate
    found_again: Estimate
    chance: float
    floor: np.ndarray
    gaussian: Estimate
    q: np.ndarray
    stable: float


def stability(own: np.ndarray, others: np.ndarray, floor: np.ndarray, seed: int) -> Stability:
    """Match features one to one with those of another seed, so that the sum of their cosines is largest.

    Intervals are over features: how much other features of the same two trainings would differ, not other trainings.

    Args:
        own: directions of the living features, of length 1, (F, U).
        others: of the other autoencoder's living features, (G, U).
        floor: what `matched` gives for the living features of two autoencoders that were fitted to a Gaussian.
        seed: of the resamples and the random directions.
    """
    cosine = matched(own, others)
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal(directions.shape) for directions in (own, others)]
    chance = matched(*(vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in drawn))
    q = above_floor(cosine, floor)
    return Stability(
        cosine, _over_features(cosine, random), _over_features(cosine >= FOUND_AGAIN, random), float(chance.mean()),
        floor, _over_features(floor, random), q, float((q <= LEVEL).mean()) if len(q) else float("nan"),
    )  # fmt: skip


def matched(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the cosine of each feature, (F, U), with its one-to-one partner among others, (G, U): (F,).

    It is 0 without a partner, where there are fewer others.
    """
    from scipy.optimize import linear_sum_assignment

    cosines = own @ others.T
    rows, columns = linear_sum_assignment(-cosines)
    best = np.zeros(len(own))
    best[rows] = cosines[rows, columns]
    return best


def _over_features(numbers: np.ndarray, random: np.random.Generator) -> Estimate:
    if len(numbers) < 2:
        return Estimate(float(np.mean(numbers)) if len(numbers) else float("nan"), float("nan"), float("nan"))
    drawn = [numbers[random.integers(len(numbers), size=len(numbers))].mean() for _ in range(RESAMPLES)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Estimate(float(numbers.mean()), float(low), float(high))
