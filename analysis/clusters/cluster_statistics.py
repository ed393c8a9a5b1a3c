"""Compute all statistics of one clustering in one call."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.clusters.dataset import Dataset
from analysis.statistics.circular_shift import CircularShiftTest, circular_shift_test
from analysis.statistics.cluster_method import ClusterMethod
from analysis.statistics.cluster_validity import ClusterValidity, cluster_validity
from analysis.statistics.confounds import Confounds, confounds, variables_of
from analysis.statistics.effect_intervals import EffectIntervals, effect_intervals
from analysis.statistics.effect_sizes import EffectSizes, effect_sizes
from analysis.statistics.given_time import shift_test_given_time
from analysis.statistics.inference import FEWEST_EPISODES, FEWEST_LIVES, LEVEL, Inference
from analysis.statistics.persistence import Persistence, persistence
from analysis.statistics.power import detectable
from analysis.statistics.stability import BootstrapStability, bootstrap_stability


@dataclass(frozen=True)
class ClusterStatistics:
    """All statistics of one clustering.

    Attributes:
        effects, intervals, test: for each cluster and feature.
        given_time: the test of surviving differences again, with tick and age held constant.
        confounds: overall and for each cluster.
        persistence: overall and for each cluster.
        validity: overall and for each cluster.
        stability: over bootstraps of lives.
        settings: used for all of them.
    """

    effects: EffectSizes
    intervals: EffectIntervals
    test: CircularShiftTest
    given_time: CircularShiftTest
    confounds: Confounds
    persistence: tuple[Persistence, tuple[Persistence, ...]]
    validity: ClusterValidity
    stability: BootstrapStability
    settings: Inference

    @cached_property
    def survives(self) -> np.ndarray:
        """Which effects survive correction, (K, F) bool."""
        return _survives(self.effects, self.intervals, self.test)

    @cached_property
    def survives_given_time(self) -> np.ndarray:
        """Which of them also survive with tick and age held constant, with the same sign, (K, F) bool."""
        again = self.given_time
        return self.survives & (again.q <= LEVEL) & (np.sign(self.effects.d_complement) == again.direction)

    @cached_property
    def detectable(self) -> np.ndarray:
        """The |d| that a dump of this size would detect with 80% power, for each cluster and feature, (K, F)."""
        return detectable(self.intervals, self.settings.confidence)

    def why_untested(self, cluster: int, feature: int) -> str:
        """Return why a cluster and feature have no p-value; "" if they have one."""
        if np.isfinite(self.test.p[cluster, feature]):
            return ""
        lives, episodes = int(self.test.informative_lives[cluster, feature]), self.test.informative_episodes
        if lives >= FEWEST_LIVES and episodes is not None:
            told = int(episodes[cluster, feature])
            return f"in only {told} episodes do both the feature and the cluster change; a test needs {FEWEST_EPISODES}"
        return f"in only {lives} lives do both the feature and the cluster change; a test needs {FEWEST_LIVES}"


def cluster_statistics(
    data: Dataset, points: np.ndarray, labels: np.ndarray, method: ClusterMethod, settings: Inference
) -> ClusterStatistics:
    """Compute all statistics of a clustering.

    Args:
        points: what was clustered, (B, dimensions).
        labels: (B,) clusters from 0, largest first; negative for noise.
        method: used to find them.
    """
    lives, values, seed = data.lives, data.values, settings.seed
    tick, episode = data.records.tick, data.records.episode
    effects = effect_sizes(values, labels, lives, seed)
    intervals = effect_intervals(values, labels, lives, episode, settings)
    test = circular_shift_test(values, labels, lives, settings.permutations, seed, episode)
    surviving = _survives(effects, intervals, test)
    return ClusterStatistics(
        effects=effects,
        intervals=intervals,
        test=test,
        given_time=shift_test_given_time(values, labels, lives, tick, episode, test, surviving, settings),
        confounds=confounds(variables_of(data.records, lives), labels, lives, settings),
        persistence=persistence(labels, lives, tick),
        validity=cluster_validity(points, labels, seed),
        stability=bootstrap_stability(points, labels, lives, method, seed),
        settings=settings,
    )


def _survives(effects: EffectSizes, intervals: EffectIntervals, test: CircularShiftTest) -> np.ndarray:
    """Return which effects survive correction, (K, F) bool.

    That is: q is at most `LEVEL`, the interval of d against the complement excludes 0, and the difference has the same
    sign within lives, which the test uses, as over all records.
    """
    same_way = np.sign(effects.d_complement) == test.direction
    return (test.q <= LEVEL) & same_way & ((intervals.complement_low > 0) | (intervals.complement_high < 0))
