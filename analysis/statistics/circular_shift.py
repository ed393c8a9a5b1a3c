"""Does a feature go with a cluster beyond what smooth features and long bouts give by chance? A test by shifts."""

from dataclasses import dataclass

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import FEWEST_LIVES, false_discovery
from analysis.statistics.permutation_p import ratio_p
from analysis.statistics.shifts import ShiftedSums, shifted_sums


@dataclass(frozen=True)
class CircularShiftTest:
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


def circular_shift_test(
    features: np.ndarray, labels: np.ndarray, lives: Lives, permutations: int, seed: int
) -> CircularShiftTest:
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
    spread = features.std(axis=0)
    scaled = (features - features[0]) / np.where(spread > 0, spread, 1.0)
    for cluster, sums in enumerate(shifted_sums(scaled, labels, lives, permutations, seed)):
        p[cluster], direction[cluster], informative[cluster] = _p_values(sums), np.sign(sums.total[0]), sums.informative
    return CircularShiftTest(p, false_discovery(p), direction, informative)


def studentised(sums: ShiftedSums) -> np.ndarray:
    """Return totals over the roots of their lives' sums of squares, (M + 1, F); 0 where there is no information."""
    with np.errstate(invalid="ignore"):
        return np.where(sums.squares > 0, sums.total / np.sqrt(sums.squares), 0.0)


def _p_values(sums: ShiftedSums) -> np.ndarray:
    size = np.abs(studentised(sums))
    p = ratio_p(size[0], size[1:], sums.informative, sums.effective)
    return np.where(sums.informative >= FEWEST_LIVES, p, np.nan)
