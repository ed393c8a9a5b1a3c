"""Which features differ between each cluster and the rest: effect sizes, intervals, tests, and what survives them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.lives import Lives
from analysis.statistics.circular_shift import CircularShiftTest, circular_shift_test, shift_test_given_time
from analysis.statistics.effect_intervals import EffectIntervals, detectable, effect_intervals
from analysis.statistics.effect_sizes import EffectSizes, effect_sizes
from analysis.statistics.inference import FEWEST_EPISODES, FEWEST_LIVES, LEVEL, Inference


@dataclass(frozen=True)
class Differences:
    """Differences between K clusters and the rest in F features.

    Attributes:
        given_time: the same test of surviving differences, with tick and age held constant.
    """

    effects: EffectSizes
    intervals: EffectIntervals
    test: CircularShiftTest
    given_time: CircularShiftTest
    settings: Inference

    @cached_property
    def survives(self) -> np.ndarray:
        """Which differences survive correction, (K, F) bool."""
        return _survives(self.effects, self.intervals, self.test)

    @cached_property
    def survives_given_time(self) -> np.ndarray:
        """Which of them survive with tick and age held constant too, and point the same way then, (K, F) bool."""
        again = self.given_time
        return self.survives & (again.q <= LEVEL) & (np.sign(self.effects.d_complement) == again.direction)

    @cached_property
    def detectable(self) -> np.ndarray:
        """The |d| that such a dump would show with a power of 80%, for each cluster and feature, (K, F)."""
        return detectable(self.intervals, self.settings.confidence)

    def why_untested(self, cluster: int, feature: int) -> str:
        """Say why there is no p-value for a cluster and feature; "" where there is one."""
        if np.isfinite(self.test.p[cluster, feature]):
            return ""
        lives, episodes = int(self.test.informative_lives[cluster, feature]), self.test.informative_episodes
        if lives >= FEWEST_LIVES and episodes is not None:
            count = int(episodes[cluster, feature])
            return (
                f"in only {count} episodes do both the feature and the cluster change; a test needs {FEWEST_EPISODES}"
            )
        return f"in only {lives} lives do both the feature and the cluster change; a test needs {FEWEST_LIVES}"


def cluster_differences(
    features: np.ndarray, labels: np.ndarray, lives: Lives, tick: np.ndarray, episode: np.ndarray, settings: Inference
) -> Differences:
    """Measure and test all differences, and those that survive once more with tick and age held constant."""
    effects = effect_sizes(features, labels, lives, settings.seed)
    intervals = effect_intervals(features, labels, lives, episode, settings)
    test = circular_shift_test(features, labels, lives, settings.permutations, settings.seed, episode)
    surviving = _survives(effects, intervals, test)
    again = shift_test_given_time(features, labels, lives, tick, episode, test, surviving, settings)
    return Differences(effects, intervals, test, again, settings)


def _survives(effects: EffectSizes, intervals: EffectIntervals, test: CircularShiftTest) -> np.ndarray:
    """Return which effects survive correction, (K, F) bool.

    Their q is at most `LEVEL`, the interval of d against the complement excludes 0, and the difference has the same
    sign within lives, which the test looks at, as over all records.
    """
    same_way = np.sign(effects.d_complement) == test.direction
    return (test.q <= LEVEL) & same_way & ((intervals.complement_low > 0) | (intervals.complement_high < 0))
