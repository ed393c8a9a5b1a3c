"""Would a difference be there at the same tick and age? The test by shifts again, with both held constant."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.lives import Lives
from analysis.statistics.circular_shift import CircularShiftTest, circular_shift_test
from analysis.statistics.inference import Inference, false_discovery

_KNOTS = 20


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
