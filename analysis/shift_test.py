"""Does a feature go with a cluster beyond what smooth features and long bouts give by chance? A test by shifts."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.inference import FEWEST_LIVES, false_discovery
from analysis.lives import Lives
from analysis.shifts import ShiftedSums, shifted_sums

_RANK = 10  # exceedances that make a counted p-value steady enough to be taken as it is
_FEWEST_FOR_TAIL = 99
_ROUNDING = 1e-9  # values that differ by less are ties


@dataclass(frozen=True)
class ShiftTest:
    """Tests of K clusters and F features; every array is (K, F).

    Attributes:
        p: two-sided; NaN where fewer than `FEWEST_LIVES` lives carry information.
        q: p after the correction for all clusters and features.
        direction: 1 where the feature is higher in the cluster than elsewhere in the same lives, -1 lower, 0 neither.
        informative_lives: lives in which a shift changes the cluster's sum: those that enter or leave the cluster, and
            in which the feature varies.
    """

    p: np.ndarray
    q: np.ndarray
    direction: np.ndarray
    informative_lives: np.ndarray


def shift_test(features: np.ndarray, labels: np.ndarray, lives: Lives, permutations: int, seed: int) -> ShiftTest:
    """Test whether features differ between a cluster's records and the other records of the same lives.

    A life's share of the statistic is the sum, over its records in the cluster, of the feature less its mean in that
    life; the statistic is the sum of the shares over the root of the sum of their squares, a t-statistic with lives as
    units. Its null distribution comes from shifting labels in a circle within lives, independently. The division makes
    the test hold for features and labels that drift through a life too, which a shift cuts and joins the wrong way
    (studentised permutations: Chung and Romano 2013, Annals of Statistics 41, 484-507). Differences between whole lives
    play no part: how much of them is chance, the intervals over lives tell.

    Args:
        features: (B, F), finite.
        labels: (B,) clusters from 0; negative for noise.
    """
    shape = labels.max() + 1, features.shape[1]
    p, direction, informative = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape, np.int64)
    if shape[0]:
        spread = features.std(axis=0)
        scaled = (features - features[0]) / np.where(spread > 0, spread, 1.0)
        for some, sums in shifted_sums(scaled, labels, lives, permutations, seed):
            p[:, some], direction[:, some] = _p_values(sums), np.sign(sums.total[0])
            informative[:, some] = sums.informative
    return ShiftTest(p, false_discovery(p), direction, informative)


def studentised(sums: ShiftedSums) -> np.ndarray:
    """Return totals over the roots of their lives' sums of squares, (M + 1, K, F); 0 where there is no information."""
    with np.errstate(invalid="ignore"):
        return np.where(sums.squares > 0, sums.total / np.sqrt(sums.squares), 0.0)


def counted_p(observed: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Return (1 + number of null values at least as large) / (1 + number of null values), (M, ...) to (...).

    Phipson and Smyth 2010: the labels as they are count among the permutations, so p is never 0.
    """
    return (1 + (null >= observed - _ROUNDING).sum(axis=0)) / (1 + len(null))


def _p_values(sums: ShiftedSums) -> np.ndarray:
    size = np.abs(studentised(sums))
    p = counted_p(size[0], size[1:])
    if len(size) > _FEWEST_FOR_TAIL:
        p = _with_tail(p, size, sums)
    return np.where(sums.informative >= FEWEST_LIVES, p, np.nan)


def _with_tail(p: np.ndarray, size: np.ndarray, sums: ShiftedSums) -> np.ndarray:
    """Replace p-values that rest on fewer than 10 exceedances by Student's tail beyond the 10th largest null value.

    A sum over its own root sum of squares has Student's tail, far out too (de la Pena, Lai and Shao 2009, chapter 7);
    tied to the permutations at their 10th largest value and with as many degrees of freedom as there are equally
    informative lives less one, it tells apart findings that no affordable number of permutations could, and the
    correction for thousands of tests needs that.
    """
    rank = np.partition(size[1:], len(size) - 1 - _RANK, axis=0)[-_RANK]
    freedom = np.maximum(sums.effective - 1, 1)
    far, near = (stats.t.sf(_t(value, sums.informative), freedom) for value in (size[0], rank))
    with np.errstate(invalid="ignore", divide="ignore"):
        tail = (1 + _RANK) / len(size) * far / near
    return np.where((size[0] > rank + _ROUNDING) & (near > 0), np.maximum(tail, np.finfo(float).tiny), p)


def _t(ratio: np.ndarray, lives: np.ndarray) -> np.ndarray:
    """Turn sums over roots of sums of squares of n shares into the one-sample t-statistic of the shares."""
    room = np.maximum(lives - ratio**2, 1e-12)
    return ratio * np.sqrt(np.maximum(lives - 1, 0) / room)
