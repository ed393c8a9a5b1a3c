"""Does a feature go with a cluster beyond what smooth features and long bouts give by chance? A test by shifts.

And would a difference be there at the same tick and age? The same test with both held constant.

Correlations of two sets of series within lives are tested likewise: both are smooth in time, so neighbouring ticks say
nearly the same, and a correlation over records would look far surer than it is. A circular shift of one set within each
life keeps how smoothly each moves, and loses which goes with which.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from analysis.lives import Lives
from analysis.statistics.inference import FEWEST_EPISODES, FEWEST_LIVES, Inference, false_discovery, ratio_p
from analysis.statistics.shifts import ShiftedSums, centred, random_shifts, shared_shifts, shifted_sums

_KNOTS = 20
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CircularShiftTest:
    """Tests of K clusters and F features; every array is (K, F)."""

    p: np.ndarray
    """Two-sided; NaN where too few lives or episodes carry information. From `FEWEST_EPISODES` episodes on, the larger
    of two: lives shifted independently, and all lives of an episode shifted together."""
    q: np.ndarray  # p after the correction for all clusters and features
    direction: np.ndarray
    """1 where the feature is higher in the cluster than elsewhere in the same lives, -1 lower, 0 neither."""
    informative_lives: np.ndarray
    """Lives in which a shift changes the cluster's sum: those that enter or leave the cluster, and in which the feature
    varies."""
    informative_episodes: np.ndarray | None = None
    """Episodes of which the same is true; None where there are too few to shift them whole."""


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
    """What tick and age explain of F features, by least squares: a course over ticks and one over ages, added up."""

    ticks: np.ndarray  # that occur, rising, (n,)
    ages: np.ndarray  # likewise, (m,)
    of_tick: np.ndarray  # (n, F) float64
    of_age: np.ndarray  # (m, F) float64; the constant is in it

    def explained(self, tick: np.ndarray, age: np.ndarray) -> np.ndarray:
        """Return what is expected at ticks and ages that occur, (B,) and (B,) to (B, F)."""
        return self.of_tick[np.searchsorted(self.ticks, tick)] + self.of_age[np.searchsorted(self.ages, age)]


def age_of(tick: np.ndarray, lives: Lives) -> np.ndarray:
    """Return the ticks since the first kept record of each record's life, (B,)."""
    return tick - tick[lives.order[lives.starts]][lives.index]


def without_time(features: np.ndarray, tick: np.ndarray, lives: Lives) -> np.ndarray:
    """Return what the course over ticks and the one over ages leave of features, (B, F)."""
    age = age_of(tick, lives)
    return features - time_course(features, tick, age).explained(tick, age)


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
    again = circular_shift_test(
        without_time(features, tick, lives), labels, lives, settings.permutations, settings.seed, episode,
        unit=features.std(axis=0), wanted=surviving,
    )  # fmt: skip
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


@dataclass(frozen=True)
class ShiftedCorrelations:
    """Correlations of K columns with F others; every array is (K, F)."""

    r: np.ndarray
    """Pearson's r of deviations from the life's means; NaN where one of the two never varies within a life."""
    p: np.ndarray
    """Two-sided; NaN where fewer than `FEWEST_LIVES` lives, or `FEWEST_EPISODES` episodes, carry information. With
    `FEWEST_EPISODES` episodes or more, the larger of two: lives shifted independently, and all lives of an episode
    shifted together."""
    q: np.ndarray  # p after the correction for all K x F pairs (Benjamini and Hochberg 1995)
    informative: np.ndarray  # lives in which the sum of products depends on the shift


class _Sums:
    """Sums over units (lives or episodes) of their shares, and of squared shares, for each permutation."""

    def __init__(self, permutations: int, shape: tuple[int, int]):
        self.total, self.squares = np.zeros((2, permutations + 1, *shape))  # (M + 1, K, F) each
        self.power, self.power_squares = np.zeros((2, *shape))
        self.informative = np.zeros(shape, np.int64)

    def add(self, shares: np.ndarray, power: np.ndarray) -> None:
        """Add one unit: its share for each permutation, (M + 1, K, F), and their mean square over all shifts."""
        self.total += shares
        self.squares += shares**2
        self.informative += power > 0
        self.power += power
        self.power_squares += power**2

    def p(self, fewest: int) -> np.ndarray:
        effective = self.power**2 / np.maximum(self.power_squares, np.finfo(float).tiny)
        return _p_values(ShiftedSums(self.total, self.squares, self.informative, effective), fewest)


def shifted_correlations(
    left: np.ndarray, right: np.ndarray, lives: Lives, permutations: int, seed: int, *,
    episode: np.ndarray | None = None, inside: np.ndarray | None = None,
) -> ShiftedCorrelations:  # fmt: skip
    """Correlate every column of `left` with every column of `right` within lives.

    A life's share of the statistic is its sum of products of deviations; the statistic is the sum of the shares over
    the root of the sum of their squares, as in `analysis.statistics.circular_shift`.

    Args:
        left: (B, K), finite.
        right: (B, F), finite.
        permutations: shifts of each life.
        episode: of each record, (B,), to shift all lives of an episode together as well.
        inside: which records count, (B,) bool; the others only take part in the shifts of `right`. All where None.
    """
    x, y = centred(left, lives), centred(right, lives)  # (B, K), (B, F), in order of lives
    kept = np.ones(len(x), bool) if inside is None else inside[lives.order]
    x = np.where(kept[:, None], x - x[kept].mean(axis=0) if kept.any() else x, 0.0)
    shape = x.shape[1], y.shape[1]
    of_lives = _Sums(permutations, shape)
    worlds = episode if episode is not None and len(np.unique(episode)) >= FEWEST_EPISODES else None
    shared = None if worlds is None else shared_shifts(lives, worlds, permutations, seed)
    together = None if shared is None else np.zeros((shared.episode.max() + 1, permutations + 1, *shape))
    shifts = random_shifts(lives, permutations, seed)
    for life, (start, length) in enumerate(zip(lives.starts, lives.lengths, strict=True)):
        own = slice(start, start + length)
        if not kept[own].any() or length < 2:
            continue
        table = _all_shifts(x[own], y[own])  # (length, K, F)
        of_lives.add(table[shifts[:, life]], (table**2).mean(axis=0))
        if shared is not None and together is not None:
            number = shared.episode[life]
            together[number] += table[shared.shifts[:, number] % length]
    p = of_lives.p(FEWEST_LIVES)
    if together is not None:
        of_episodes = _Sums(permutations, shape)
        for shares in together:
            of_episodes.add(shares, np.where(np.ptp(shares, axis=0) > _ROUNDING, (shares**2).mean(axis=0), 0.0))
        p = np.maximum(p, of_episodes.p(FEWEST_EPISODES))  # NaN stays NaN
    return ShiftedCorrelations(_pearson(x, y, kept), p, false_discovery(p), of_lives.informative)


def correlations_given_time(
    left: np.ndarray, right: np.ndarray, lives: Lives, tick: np.ndarray, permutations: int, seed: int,
    episode: np.ndarray,
) -> ShiftedCorrelations:  # fmt: skip
    """Correlate as `shifted_correlations`, and test once more what tick and age leave of `right`; the larger p counts.

    `left` and `right` are finite, (B, K) and (B, F); `tick` and `episode` are of each record, (B,).
    """
    plain, again = (
        shifted_correlations(left, columns, lives, permutations, seed, episode=episode)
        for columns in (right, without_time(right, tick, lives))
    )
    p = np.maximum(plain.p, again.p)  # NaN stays NaN
    return ShiftedCorrelations(plain.r, p, false_discovery(p), plain.informative)


def _all_shifts(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the sum over t of x[t] y[t + s] for every circular shift s, (n, K) and (n, F) to (n, K, F)."""
    spectrum = fft.rfft(x, axis=0).conj()[:, :, None] * fft.rfft(y, axis=0)[:, None, :]
    table = fft.irfft(spectrum, len(x), axis=0)
    table[np.abs(table) < _ROUNDING * len(x)] = 0
    return table


def _pearson(x: np.ndarray, y: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return Pearson's r over the kept records of columns centred by life, (K, F)."""
    if not kept.any():
        return np.full((x.shape[1], y.shape[1]), np.nan)
    own, others = x[kept], y[kept] - y[kept].mean(axis=0)
    lengths = np.sqrt((own**2).sum(axis=0))[:, None] * np.sqrt((others**2).sum(axis=0))
    return np.divide(own.T @ others, lengths, out=np.full(lengths.shape, np.nan), where=lengths > _ROUNDING)
