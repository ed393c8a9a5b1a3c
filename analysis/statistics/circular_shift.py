"""Does a feature go with a cluster beyond what smooth features and long bouts give by chance? A test by shifts.

And would a difference be there at the same tick and age? The same test with both held constant.
"""

from dataclasses import dataclass, replace

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import FEWEST_EPISODES, FEWEST_LIVES, Inference, false_discovery
from analysis.statistics.permutation_p import ratio_p
from analysis.statistics.shifts import ShiftedSums, shifted_sums

_KNOTS = 20


@dataclass(frozen=True)
class CircularShiftTest:
    """Tests of K clusters and F features; every array is (K, F).

    Attributes:
        p: two-sided; NaN where too few lives or episodes carry information. From `FEWEST_EPISODES` episodes on, the
            larger of two: lives shifted independently, and all lives of an episode shifted together.
        q: p after the correction for all clusters and features.
        direction: 1 where the feature is higher in the cluster than elsewhere in the same lives, -1 lower, 0 neither.
        informative_lives: lives in which a shift changes the cluster's sum: those that enter or leave the cluster, and
            in which the feature varies.
        informative_episodes: episodes of which the same is true; None where there are too few to shift them whole.
    """

    p: np.ndarray
    q: np.ndarray
    direction: np.ndarray
    informative_lives: np.ndarray
    informative_episodes: np.ndarray | None = None


def circular_shift_test(
    features: np.ndarray, labels: np.ndarray, lives: Lives, permutations: int, seed: int,
    episode: np.ndarray | None = None, *, unit: np.ndarray | None = None, wanted: np.ndarray | None = None,
) -> CircularShiftTest:  # fmt: skip
    """Test whether features differ between a cluster's records and the other records of the same lives.

    A life's share of the statistic is the sum, over its records in the cluster, of the feature less its mean in that
    life; the statistic is the sum of the shares over the root of the sum of their squares, a t-statistic with lives as
    units. Its null distribution comes from shifting labels in a circle within lives, independently. The division makes
    the test hold for features and labels that drift through a life too, which a shift cuts and joins the wrong way
    (studentised permutations: Chung and Romano 2013, Annals of Statistics 41, 484-507). Differences between whole lives
    play no part: how much of them is chance, the intervals over lives tell.

    Lives of a world are not independent where something happens to all of them: a night, a raid or a famine may move
    features and labels alike. So from `FEWEST_EPISODES` episodes on a second test shifts all lives of an episode by the
    same number of records, which keeps what they share, and takes episodes as units; the larger p-value counts. With
    fewer episodes nothing tells a cluster's behaviour from what happened to that world.

    Args:
        episode: of each record, (B,); without it lives are only shifted independently.
        unit: of each feature, (F,): what is a millionth of it is a rounding. Its own spread where None.
        wanted: which pairs to test, (K, F) bool; all where None. The others' p is NaN.
    """
    shape = labels.max() + 1, features.shape[1]
    p, direction, informative_lives = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape, np.int64)
    worlds = episode if episode is not None and len(np.unique(episode)) >= FEWEST_EPISODES else None
    informative_episodes = None if worlds is None else np.zeros(shape, np.int64)
    unit = features.std(axis=0) if unit is None else unit
    scaled = (features - features[0]) / np.where(unit > 0, unit, 1.0)
    clusters = shifted_sums(scaled, labels, lives, permutations, seed, episode=worlds, wanted=wanted)
    for cluster, sums in enumerate(clusters):
        own = slice(None) if wanted is None else wanted[cluster]
        p[cluster, own], direction[cluster, own] = _p_values(sums, FEWEST_LIVES), np.sign(sums.total[0])
        informative_lives[cluster, own] = sums.informative
        if informative_episodes is not None and sums.together:
            p[cluster, own] = np.maximum(p[cluster, own], _p_values(sums.together, FEWEST_EPISODES))  # NaN stays NaN
            informative_episodes[cluster, own] = sums.together.informative
    return CircularShiftTest(p, false_discovery(p), direction, informative_lives, informative_episodes)


def studentised(sums: ShiftedSums) -> np.ndarray:
    """Return totals over the roots of their lives' sums of squares, (M + 1, F); 0 where there is no information."""
    with np.errstate(invalid="ignore"):
        return np.where(sums.squares > 0, sums.total / np.sqrt(sums.squares), 0.0)


def _p_values(sums: ShiftedSums, fewest: int) -> np.ndarray:
    size = np.abs(studentised(sums))
    p = ratio_p(size[0], size[1:], sums.informative, sums.effective)
    return np.where(sums.informative >= fewest, p, np.nan)


@dataclass(frozen=True)
class TimeCourse:
    """What tick and age explain of F features, by least squares: a course over ticks and one over ages, added up.

    Attributes:
        ticks: that occur, rising, (n,).
        ages: likewise, (m,).
        of_tick: (n, F) float64.
        of_age: (m, F) float64; the constant is in it.
    """

    ticks: np.ndarray
    ages: np.ndarray
    of_tick: np.ndarray
    of_age: np.ndarray

    def explained(self, tick: np.ndarray, age: np.ndarray) -> np.ndarray:
        """Return what is expected at ticks and ages that occur, (B,) and (B,) to (B, F)."""
        return self.of_tick[np.searchsorted(self.ticks, tick)] + self.of_age[np.searchsorted(self.ages, age)]


def age_of(tick: np.ndarray, lives: Lives) -> np.ndarray:
    """Return the ticks since the first kept record of each record's life, (B,)."""
    return tick - tick[lives.order[lives.starts]][lives.index]


def time_course(features: np.ndarray, tick: np.ndarray, age: np.ndarray) -> TimeCourse:
    """Fit a course over ticks and one over ages to each feature.

    Courses are cubic splines with up to 20 knots at quantiles; up to 20 different ticks, or ages, each have a value of
    their own. A life's first record has a value of its own besides: where agents appear, much is different at once.
    Features are (B, F), ticks and ages (B,).
    """
    ticks, tick_index, tick_counts = np.unique(tick, return_inverse=True, return_counts=True)
    ages, age_index, age_counts = np.unique(age, return_inverse=True, return_counts=True)
    by_tick, by_age = _basis(ticks, tick_counts), np.column_stack([_basis(ages, age_counts), ages == 0])
    design = np.hstack([by_tick[tick_index], by_age[age_index]])  # (B, columns)
    # Tick and age are often the same: the solution of least norm, of whatever the columns leave open.
    sizes, vectors = np.linalg.eigh(design.T @ design)
    kept = sizes > sizes.max() * len(sizes) * 1e-12
    inverse = (vectors[:, kept] / sizes[kept]) @ vectors[:, kept].T
    weights = inverse @ (design.T @ features)
    return TimeCourse(ticks, ages, by_tick @ weights[: by_tick.shape[1]], by_age @ weights[by_tick.shape[1] :])


def shift_test_given_time(
    features: np.ndarray, labels: np.ndarray, lives: Lives, tick: np.ndarray, episode: np.ndarray,
    test: CircularShiftTest, surviving: np.ndarray, settings: Inference,
) -> CircularShiftTest:  # fmt: skip
    """Test surviving differences again on what tick and age leave of the features.

    q corrects the larger of both p-values for all tests of the first round; a difference that did not survive that
    counts as one with p = 1. `surviving` says which differences to test again, (K, F) bool.
    """
    age = age_of(tick, lives)
    rest = features - time_course(features, tick, age).explained(tick, age)
    again = circular_shift_test(
        rest, labels, lives, settings.permutations, settings.seed, episode, unit=features.std(axis=0), wanted=surviving
    )
    tested = surviving & np.isfinite(again.p)
    both = np.where(tested, np.maximum(test.p, again.p), np.where(np.isfinite(test.p), 1.0, np.nan))
    return replace(again, q=np.where(tested, false_discovery(both), np.nan))


def _basis(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the columns that a course over distinct, rising values is made of, (values, columns)."""
    if len(values) <= _KNOTS:
        return np.eye(len(values))
    from sklearn.preprocessing import SplineTransformer

    ranks = np.searchsorted(np.cumsum(counts), np.linspace(0, 1, _KNOTS) * counts.sum())
    knots = np.unique(values[np.minimum(ranks, len(values) - 1)].astype(np.float64))
    knots[0] = values[0]
    return np.asarray(
        SplineTransformer(degree=3, knots=knots[:, None]).fit_transform(values.astype(np.float64)[:, None])
    )
