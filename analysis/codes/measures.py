"""Measures of a partition of states, with 95% intervals from resampling lives."""

from collections.abc import Callable

import numpy as np

from analysis.statistics.resampling import Estimate

_TAILS = (0.025, 0.975)


class LifeResamples:
    """Weights of records when lives are drawn with replacement. B records, L lives."""

    def __init__(self, life: np.ndarray, resamples: int, seed: int):
        """Draw the resamples.

        Args:
            life: of each record, (B,) int64 from 0 without gaps.
            seed: of the draws.
        """
        lives = int(life.max()) + 1
        self.life = life
        self.draws = np.random.default_rng(seed).multinomial(lives, np.full(lives, 1 / lives), resamples)

    def estimate(self, measure: Callable[[np.ndarray], float]) -> Estimate:
        """Return a measure of all records, and its interval.

        A resample holds fewer different lives than the data, which moves measures such as information and perplexity
        to one side. So the interval is the resamples' percentiles, moved so that their mean is the measure.

        Args:
            measure: of weights of the records, (B,).
        """
        value = measure(np.ones(len(self.life)))
        if self.draws.shape[1] < 2:
            return Estimate(value)
        resampled = np.array([measure(draw[self.life].astype(np.float64)) for draw in self.draws])
        known = resampled[np.isfinite(resampled)]
        low, high = value + np.quantile(known, _TAILS) - known.mean() if len(known) else (np.nan, np.nan)
        return Estimate(value, float(low), float(high))


def perplexity(label: np.ndarray, weight: np.ndarray) -> float:
    """Return the exponential of the entropy of the labels' shares.

    Args:
        label: (B,) int64 from 0.
        weight: of each record, (B,).
    """
    return float(np.exp(_entropy(np.bincount(label, weights=weight))))


def persistence(label: np.ndarray, following: np.ndarray, weight: np.ndarray) -> float:
    """Return how often a record's next one in its life has its label, beyond chance: 0 is chance, 1 always.

    Chance is two independent draws from all labels (Cohen's kappa 1960).

    Args:
        label: (B,) int64 from 0.
        following: index of the next record of the same life, -1 for none, (B,) int64.
        weight: of each record, (B,).
    """
    pairs = np.flatnonzero(following >= 0)
    own, after, weights = label[pairs], label[following[pairs]], weight[pairs]
    total = weights.sum()
    size = int(label.max()) + 1
    before, behind = (np.bincount(partition, weights=weights, minlength=size) / total for partition in (own, after))
    chance = float(before @ behind)
    same = float(weights[own == after].sum() / total)
    return (same - chance) / (1 - chance) if chance < 1 else float("nan")


def conditional_information(label: np.ndarray, act: np.ndarray, stratum: np.ndarray, weight: np.ndarray) -> float:
    """Return the mutual information of labels and acts within strata, in bits: I(label; act | stratum), plug-in.

    Args:
        label: (B,) int64 from 0.
        act: (B,) int64 from 0.
        stratum: (B,) int64 from 0.
        weight: of each record, (B,).
    """
    labels, acts, strata = (int(variable.max()) + 1 for variable in (label, act, stratum))
    cells = np.bincount((stratum * labels + label) * acts + act, weights=weight, minlength=strata * labels * acts)
    joint = cells.reshape(strata, labels, acts) / weight.sum()
    of_stratum = joint.sum(axis=(1, 2), keepdims=True)
    expected = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        terms = joint * np.log2(joint * of_stratum / expected)
    return float(np.nansum(terms))


def information_beyond_chance(
    label: np.ndarray, act: np.ndarray, stratum: np.ndarray, weight: np.ndarray, seed: int
) -> float:
    """Return the conditional information minus that of labels shuffled within strata: the bias of the estimate.

    Arguments are as in `conditional_information`; `seed` is of the shuffle.
    """
    random = np.random.default_rng(seed)
    order, shuffled = np.argsort(stratum, kind="stable"), np.lexsort((random.random(len(label)), stratum))
    mixed = np.empty_like(label)
    mixed[order] = label[shuffled]
    return conditional_information(label, act, stratum, weight) - conditional_information(mixed, act, stratum, weight)


def weighted_adjusted_rand(label: np.ndarray, other: np.ndarray, weight: np.ndarray) -> float:
    """Return the adjusted Rand index (Hubert and Arabie 1985) of records that count several times each.

    Args:
        label: (B,) int64 from 0.
        weight: number of copies of each record, (B,).
    """
    table = np.bincount(label * (int(other.max()) + 1) + other, weights=weight)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    first, second = (pairs(np.bincount(partition, weights=weight)) for partition in (label, other))
    expected = first * second / pairs(np.array([weight.sum()]))
    most = (first + second) / 2
    return (pairs(table) - expected) / (most - expected) if most > expected else float("nan")


def normalised_information(label: np.ndarray, other: np.ndarray, weight: np.ndarray) -> float:
    """Return the mutual information of two partitions over the mean of their entropies: 0 to 1, NaN without entropy.

    Unlike the adjusted Rand index it is not corrected for chance, and larger where there are more groups.

    Args:
        label: (B,) int64 from 0.
        weight: of each record, (B,).
    """
    table = np.zeros((int(label.max()) + 1, int(other.max()) + 1))
    np.add.at(table, (label, other), weight)
    joint, first, second = (_entropy(table.sum(axis=axis).ravel()) for axis in ((), 1, 0))
    return 2 * (first + second - joint) / (first + second) if first + second > 0 else float("nan")


def _entropy(weight: np.ndarray) -> float:
    """Return the entropy of shares with these weights, in nats."""
    shares = weight[weight > 0] / weight.sum()
    return float(-(shares * np.log(shares)).sum())
