"""All statistics of one clustering, in one call."""

from dataclasses import dataclass

import numpy as np

from analysis.clusters.dataset import Dataset
from analysis.statistics.circular_shift import CircularShiftTest, circular_shift_test
from analysis.statistics.cluster_method import ClusterMethod
from analysis.statistics.cluster_validity import ClusterValidity, cluster_validity
from analysis.statistics.confounds import Confounds, confounds, variables_of
from analysis.statistics.effect_intervals import EffectIntervals, effect_intervals
from analysis.statistics.effect_sizes import EffectSizes, effect_sizes
from analysis.statistics.inference import FEWEST_LIVES, LEVEL, Inference
from analysis.statistics.persistence import Persistence, persistence
from analysis.statistics.stability import BootstrapStability, bootstrap_stability


@dataclass(frozen=True)
class ClusterStatistics:
    """What the statistics say of one clustering.

    Attributes:
        effects, intervals, test: of each cluster and feature.
        confounds: overall and of each cluster.
        persistence: overall, and of each cluster.
        validity: overall and of each cluster.
        stability: over bootstraps of lives.
        settings: that all of them were made with.
    """

    effects: EffectSizes
    intervals: EffectIntervals
    test: CircularShiftTest
    confounds: Confounds
    persistence: tuple[Persistence, tuple[Persistence, ...]]
    validity: ClusterValidity
    stability: BootstrapStability
    settings: Inference

    @property
    def survives(self) -> np.ndarray:
        """Which effects survive correction, (K, F) bool.

        Their q is at most `LEVEL`, the interval of d against the complement leaves out 0, and the difference points
        the same way within lives, which the test looks at, as over all records.
        """
        d, low, high = self.effects.d_complement, self.intervals.complement_low, self.intervals.complement_high
        same_way = np.sign(d) == self.test.direction
        return (self.test.q <= LEVEL) & same_way & ((low > 0) | (high < 0))

    def why_untested(self, cluster: int, feature: int) -> str:
        """Say why there is no p-value for a cluster and feature; "" where there is one."""
        if np.isfinite(self.test.p[cluster, feature]):
            return ""
        lives = int(self.test.informative_lives[cluster, feature])
        return f"in only {lives} lives do both the feature and the cluster change; a test needs {FEWEST_LIVES}"


def cluster_statistics(
    data: Dataset, points: np.ndarray, labels: np.ndarray, method: ClusterMethod, settings: Inference
) -> ClusterStatistics:
    """Compute all statistics of a clustering.

    Args:
        points: what was clustered, (B, dimensions).
        labels: (B,) clusters from 0, largest first; negative for noise.
        method: that they were found with.
    """
    lives, values, seed = data.lives, data.values, settings.seed
    return ClusterStatistics(
        effects=effect_sizes(values, labels, lives, seed),
        intervals=effect_intervals(values, labels, lives, data.records.episode, settings),
        test=circular_shift_test(values, labels, lives, settings.permutations, seed),
        confounds=confounds(variables_of(data.records, lives), labels, lives, settings),
        persistence=persistence(labels, lives, data.records.tick),
        validity=cluster_validity(points, labels, seed),
        stability=bootstrap_stability(points, labels, lives, method, seed),
        settings=settings,
    )
