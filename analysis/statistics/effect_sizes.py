"""How far each cluster's features lie from the rest: standardised differences of means between records."""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from analysis.lives import Lives
from analysis.statistics.shifts import ranges


def members(labels: np.ndarray) -> list[np.ndarray]:
    """Return the records of the noise, then those of each cluster, in order: (records,) int64 each."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(labels.max() + 1)))


@dataclass(frozen=True)
class Moments:
    """Number of rows, and mean and unbiased variance of each column, (columns,) each."""

    count: int
    mean: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class EffectSizes:
    """How clusters differ, per cluster and feature; every array is (clusters, features) float64."""

    mean: np.ndarray  # of the cluster's records
    baseline_mean: np.ndarray
    d_baseline: np.ndarray  # Cohen's d of the cluster against the random windows
    complement_mean: np.ndarray  # of all records outside the cluster; NaN where there are none
    d_complement: np.ndarray  # Cohen's d of the cluster against those; NaN where there are none


def moments(rows: np.ndarray) -> Moments:
    """Return the moments of (rows, columns) values; one row has variance 0, no row has NaN for both."""
    if len(rows) == 0:
        nothing = np.full(rows.shape[1], np.nan)
        return Moments(0, nothing, nothing)
    variance = rows.var(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    return Moments(len(rows), rows.mean(axis=0), variance)


def merged(one: Moments, other: Moments) -> Moments:
    """Return the moments of the rows of both (Chan, Golub and LeVeque 1983, The American Statistician 37, 242-247).

    Unlike a difference of sums, it leaves a spread of nothing at nothing.
    """
    if not (one.count and other.count):
        return one if one.count else other
    count, difference = one.count + other.count, other.mean - one.mean
    squares = (one.count - 1) * one.variance + (other.count - 1) * other.variance
    squares = squares + difference**2 * (one.count * other.count / count)
    return Moments(count, one.mean + difference * (other.count / count), squares / (count - 1))


def complements(groups: list[Moments]) -> list[Moments]:
    """Return the moments of the rows outside each group, in a number of steps that grows with that of groups."""
    nothing = moments(np.empty((0, len(groups[0].mean))))
    before = list(accumulate(groups, merged, initial=nothing))
    after = list(accumulate(reversed(groups), merged, initial=nothing))[::-1]
    return [merged(before[i], after[i + 1]) for i in range(len(groups))]


def pool(draws: list[Moments]) -> Moments:
    """Return the mean and variance of the rows of all draws together; the count stays that of one draw.

    So a comparison weighs one draw's worth of rows, however many draws steadied its moments. All draws must have the
    same number of rows, at least one.
    """
    count = draws[0].count
    means, variances = (np.stack([getattr(draw, name) for draw in draws]) for name in ("mean", "variance"))
    within = (count - 1) * variances.sum(axis=0)
    between = count * ((means - means.mean(axis=0)) ** 2).sum(axis=0)
    return Moments(count, means.mean(axis=0), (within + between) / max(1, count * len(draws) - 1))


def cohens_d(group: Moments, reference: Moments) -> np.ndarray:
    """Return (mean of group - mean of reference) / pooled standard deviation of the rows, (columns,).

    Cohen 1988, "Statistical power analysis for the behavioral sciences", equations 2.5.1 and 2.5.2. Where neither has
    any spread, d is 0 if the means agree and infinite if they differ.
    """
    weights = group.count - 1, reference.count - 1
    pooled = (weights[0] * group.variance + weights[1] * reference.variance) / max(1, sum(weights))
    difference = group.mean - reference.mean
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, difference / np.sqrt(pooled))


def run_lengths(labels: np.ndarray, lives: Lives) -> list[np.ndarray]:
    """Return the lengths of the unbroken stretches that each cluster holds of lives, in records, (stretches,) each."""
    ordered, life = labels[lives.order], lives.index_in_order
    begins = np.flatnonzero(np.concatenate([[True], (np.diff(ordered) != 0) | (np.diff(life) != 0)]))
    lengths = np.diff(begins, append=len(ordered))
    return [lengths[stretches] for stretches in members(ordered[begins])[1:]]


def random_windows(lengths: np.ndarray, lives: Lives, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw records as random windows, each contiguous in one life, so that a baseline keeps a life's autocorrelation.

    Window lengths are drawn from `lengths`. A window may begin before its life or end after it and is then cut at the
    life's ends: that makes every record of the dump equally likely to be drawn. The last window is cut to fit. Returns
    (rows,) int64 record indices.
    """
    places = np.empty(0, np.int64)
    while len(places) < rows:
        batch = 1 + int(2 * (rows - len(places)) / lengths.mean())
        places = np.concatenate([places, _window_places(rng.choice(lengths, batch), lives, rng)])
    return lives.order[places[:rows]]


def _window_places(lengths: np.ndarray, lives: Lives, rng: np.random.Generator) -> np.ndarray:
    """Place one window of each length; return the places in `lives.order` that they cover, window after window."""
    records = int(lives.lengths.sum())
    # A life of n records offers n first places inside it and length - 1 before it.
    inside = rng.random(len(lengths)) < records / (records + len(lives) * (lengths - 1))
    place = rng.integers(records, size=len(lengths))
    life = np.where(inside, lives.index_in_order[place], rng.integers(len(lives), size=len(lengths)))
    start = lives.starts[life]
    first = np.where(inside, place, start - rng.integers(1, np.maximum(lengths, 2)))
    first, last = np.maximum(first, start), np.minimum(first + lengths, start + lives.lengths[life])
    return ranges(first, last - first)


def effect_sizes(features: np.ndarray, labels: np.ndarray, lives: Lives, seed: int, draws: int = 100) -> EffectSizes:
    """Compare each cluster's records with random windows of as many records, and with all records outside it.

    The windows are as long as the cluster's own unbroken stretches; the rows of all draws together are the baseline.
    """
    # Counted from the first record, a feature that never changes is exactly zero everywhere, and so is its spread.
    origin = features[0]
    shifted = features - origin
    groups = [moments(shifted[records]) for records in members(labels)]
    stacked = np.empty((5, len(groups) - 1, features.shape[1]))
    for cluster, (lengths, group, complement) in enumerate(
        zip(run_lengths(labels, lives), groups[1:], complements(groups)[1:], strict=True)
    ):
        # One stream a cluster: a cluster's baseline does not depend on the others.
        rng = np.random.default_rng([seed, cluster])
        windows = (random_windows(lengths, lives, group.count, rng) for _ in range(draws))
        baseline = pool([moments(shifted[window]) for window in windows])
        against_both = [(of.mean + origin, cohens_d(group, of)) for of in (baseline, complement)]
        stacked[:, cluster] = group.mean + origin, *against_both[0], *against_both[1]
    return EffectSizes(*stacked)
