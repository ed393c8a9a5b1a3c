"""What each sparse feature goes with: its best behavioural description, chosen on some episodes, tested on others.

A feature's behaviour is the one whose values, after taking out what tick and age explain, correlate most with the
feature's strength in the training episodes. On the test episodes the correlation is measured again, and tested by
shifting the behaviour in a circle within each life, all lives independently, as the analysis of clusters does. q-values
correct for all living features.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from analysis.sparse.states import Behaviours
from analysis.statistics.inference import FEWEST_LIVES, LEVEL, false_discovery

PERMUTATIONS = 999
WEAKEST = 0.1
"""Correlations smaller than this in size do not describe a feature, however significant they are."""

AGE_BINS = 20
"""Parts of a life, of equal length, for which a feature's density is reported."""

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Meanings:
    """What each feature goes with in the test episodes; F features.

    Attributes:
        best: index of the behaviour chosen in the training episodes, (F,) int64.
        correlation: of strength and behaviour, (F, N) for N behaviours.
        given_time: of strength and what tick and age leave of the behaviour, (F, N).
        auc: probability that the behaviour is higher in a record in which the feature is active than in one in which it
            is not; a half for ties, (F, N).
        p: of the best behaviour, (F,); NaN where too few lives carry information.
        q: corrected for all features, (F,).
        described: whether q is up to 5%, the correlation is not weak, and its sign is that of the training episodes,
            (F,) bool.
        density: share of the test records in which each feature is active, (F,).
        by_age: the same for each part of a life, (F, AGE_BINS).
        strongest: the largest strength, (F,).
    """

    best: np.ndarray
    correlation: np.ndarray
    given_time: np.ndarray
    auc: np.ndarray
    p: np.ndarray
    q: np.ndarray
    described: np.ndarray
    density: np.ndarray
    by_age: np.ndarray
    strongest: np.ndarray


def meanings(
    training: tuple[sparse.csr_array, Behaviours], test: tuple[sparse.csr_array, Behaviours], seed: int
) -> Meanings:
    """Describe features: choose behaviours in the training episodes, and test them in the others.

    Args:
        training: strengths, (B, F), and behaviours.
        test: the same of the test episodes.
    """
    chosen = correlations(training[0], training[1].rest)
    best = np.argsort(-np.abs(chosen), axis=1, kind="stable")[:, 0]
    strengths, behaviours = test
    correlation, given_time = (correlations(strengths, values) for values in (behaviours.values, behaviours.rest))
    feature = np.arange(len(best))
    p = shift_test(strengths, behaviours.rest, best, behaviours, seed)
    q = false_discovery(p)
    sizes = np.minimum(np.abs(given_time[feature, best]), np.abs(correlation[feature, best]))
    same_sign = np.sign(given_time[feature, best]) == np.sign(chosen[feature, best])
    active = strengths.copy()
    active.data = (active.data > 0).astype(np.float64)
    count = strengths.shape[0]
    return Meanings(
        best=best, correlation=correlation, given_time=given_time,
        auc=_aucs(strengths, behaviours.values), p=p, q=q, described=(q <= LEVEL) & (sizes >= WEAKEST) & same_sign,
        density=np.asarray(active.sum(axis=0)).ravel() / count, by_age=_by_age(active, behaviours),
        strongest=strengths.max(axis=0).toarray().ravel(),
    )  # fmt: skip


def shift_test(
    strengths: sparse.csr_array, rest: np.ndarray, best: np.ndarray, behaviours: Behaviours, seed: int,
    permutations: int = PERMUTATIONS,
) -> np.ndarray:  # fmt: skip
    """Return the p-value of each feature with its behaviour, (F,), two-sided.

    The statistic is a t-statistic with lives as units: the sum over lives of strength times the behaviour's deviation
    from its mean in the life, over the root of the sum of squares.
    """
    lives = behaviours.states.lives
    life_of_place = lives.index_in_order
    ordered = rest[lives.order].astype(np.float64)
    means = np.stack([np.bincount(life_of_place, column) for column in ordered.T], axis=1) / lives.lengths[:, None]
    ordered -= means[life_of_place]
    place_of = np.empty(len(lives.order), np.int64)
    place_of[lives.order] = np.arange(len(lives.order))
    entries = strengths.tocoo()
    place, feature = place_of[entries.row], entries.col
    life = life_of_place[place]
    cell, index = np.unique(feature.astype(np.int64) * len(lives) + life, return_inverse=True)
    cell_feature = cell // len(lives)
    column = best[feature]
    start, length = lives.starts[life], lives.lengths[life]

    def statistic(shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = start + (place - start + shift[life]) % length
        sums = np.bincount(index, entries.data * ordered[moved, column], len(cell))
        total = np.bincount(cell_feature, sums, strengths.shape[1])
        squares = np.bincount(cell_feature, sums**2, strengths.shape[1])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(squares > _TINY, np.abs(total) / np.sqrt(squares), 0.0), sums

    observed, sums = statistic(np.zeros(len(lives), np.int64))
    informative = np.bincount(cell_feature, np.abs(sums) > _TINY, strengths.shape[1])
    random = np.random.default_rng(seed)
    reached = np.zeros(strengths.shape[1])
    for _ in range(permutations):
        reached += statistic(random.integers(lives.lengths))[0] >= observed - _TINY
    p = (reached + 1) / (permutations + 1)
    return np.where(informative >= FEWEST_LIVES, p, np.nan)


def correlations(strengths: sparse.csr_array, values: np.ndarray) -> np.ndarray:
    """Return the correlations of strengths, (B, F), and values, (B, N): (F, N); 0 where one does not vary."""
    count = len(values)
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    mean = np.asarray(strengths.sum(axis=0)).ravel() / count
    squares = np.asarray(strengths.multiply(strengths).sum(axis=0)).ravel() / count
    spread = np.sqrt(np.maximum(squares - mean**2, 0))[:, None] * centred.std(axis=0)
    return np.divide(strengths.T @ centred / count, spread, out=np.zeros_like(spread), where=spread > _TINY)


def _aucs(strengths: sparse.csr_array, values: np.ndarray) -> np.ndarray:
    ranks = np.column_stack([rankdata(column) for column in values.T])
    active = strengths.copy()
    active.data = (active.data > 0).astype(np.float64)
    inside = np.asarray(active.sum(axis=0)).ravel()[:, None]
    outside = len(values) - inside
    pairs = inside * outside
    wins = active.T @ ranks - inside * (inside + 1) / 2
    return np.divide(wins, pairs, out=np.full(wins.shape, 0.5), where=pairs > 0)


def _by_age(active: sparse.csr_array, behaviours: Behaviours) -> np.ndarray:
    """Return the share of records in which features are active, for each part of a life, (F, AGE_BINS)."""
    lives = behaviours.states.lives
    longest = np.zeros(len(lives), np.int64)
    np.maximum.at(longest, lives.index, behaviours.age)
    part = behaviours.age * AGE_BINS // (longest[lives.index] + 1)
    member = sparse.csr_array((np.ones(len(part)), (part, np.arange(len(part)))), (AGE_BINS, len(part)))
    counts = np.maximum(np.bincount(part, minlength=AGE_BINS), 1)
    return (member @ active).toarray().T / counts
