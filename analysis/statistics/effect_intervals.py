"""How far each cluster's features lie from the rest: standardised differences of means between records.

How sure an effect size is: intervals by a bootstrap over lives or, where there are enough of them, over episodes.

From how wide these are, how large a difference must be for a dump to show it. And which features differ between each
cluster and the rest: effect sizes, intervals, tests, and what survives the tests.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from scipy import sparse, special, stats

from analysis.lives import Lives
from analysis.statistics.circular_shift import CircularShiftTest, circular_shift_test, shift_test_given_time
from analysis.statistics.inference import FEWEST_EPISODES, FEWEST_LIVES, LEVEL, POWER, Inference, student_stretch
from analysis.statistics.resampling import draws_of, resampled_units
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


_FEWEST_UNITS = 2.0
_ROUNDING = 1e-10


@dataclass(frozen=True)
class EffectIntervals:
    """Ends of the intervals of K clusters and F features, (K, F) each; NaN where there is none.

    Attributes:
        baseline_low, baseline_high: of Cohen's d against random windows of lives.
        complement_low, complement_high: of Cohen's d against all other records.
        difference_low, difference_high: of the difference of means from all other records, in the feature's unit.
        effective: how many units of equal size would hold each cluster, or the rest where that is in fewer (Kish 1965),
            (K,).
        episodes: episodes that hold records of the cluster and others, (K,) int64.
        agreeing: those whose own difference of means has the sign of that of the whole dump, (K, F) int64.
        unit: what was resampled, "life" or "episode".
        units: how many of them there are.
    """

    baseline_low: np.ndarray
    baseline_high: np.ndarray
    complement_low: np.ndarray
    complement_high: np.ndarray
    difference_low: np.ndarray
    difference_high: np.ndarray
    effective: np.ndarray
    episodes: np.ndarray
    agreeing: np.ndarray
    unit: str
    units: int


@dataclass(frozen=True)
class _Sums:
    """Number of records, and sums of features and of their squares, of U units: (U,), (U, F) and (U, F)."""

    count: np.ndarray
    total: np.ndarray
    squares: np.ndarray

    def weighted(self, weights: np.ndarray) -> "_Sums":
        """Add up units, each as often as it was drawn, (R, U): now every row is a resample."""
        return _Sums(weights @ self.count, weights @ self.total, weights @ self.squares)

    def __sub__(self, other: "_Sums") -> "_Sums":
        return _Sums(self.count - other.count, self.total - other.total, self.squares - other.squares)

    @property
    def mean(self) -> np.ndarray:
        return self.total / self.count[:, None]

    @property
    def effective_units(self) -> float:
        """How many units of equal size would hold the records (Kish 1965); 0 where there are none."""
        return float(self.count.sum() ** 2 / max(1.0, (self.count**2).sum()))

    @property
    def deviations(self) -> np.ndarray:
        """Sums of squared differences from the mean, (U, F); 0 where only roundings differ."""
        sums = self.squares - self.total**2 / self.count[:, None]
        return np.where(sums > _ROUNDING * self.squares, sums, 0.0)


def effect_intervals(
    features: np.ndarray, labels: np.ndarray, lives: Lives, episode: np.ndarray, settings: Inference
) -> EffectIntervals:
    """Resample lives, or whole episodes, with replacement and take the spread of Cohen's d over the resamples.

    Which of both is drawn: see `resampled_units`. The number of episodes that agree in sign is counted as well.

    An interval is the percentile interval, widened about the estimate by Student's t: with few units, plain percentiles
    are too narrow (Efron and Tibshirani 1993, section 12.4). The degrees of freedom are one less than the number of
    units that hold the cluster or, if fewer, the records it is compared with. Where fewer than 2 units of equal
    size would hold either side, there is no interval.
    """
    spread = features.std(axis=0)
    scaled = (features - features[0]) / np.where(spread > 0, spread, 1.0)
    episode_index = np.unique(episode, return_inverse=True)[1]
    unit, unit_index = resampled_units(lives.index, episode)
    whole, episodes = (_sums(scaled, index, index.max() + 1) for index in (unit_index, episode_index))
    weights = draws_of(len(whole.count), settings.bootstraps, [settings.seed, 3]).astype(np.float64)  # (R, U)
    resampled = whole.weighted(weights)
    clusters, number = members(labels)[1:], features.shape[1]
    ends = np.empty((6, len(clusters), number))
    effective, tested = np.empty(len(clusters)), np.empty(len(clusters), np.int64)
    agreeing = np.empty((len(clusters), number), np.int64)
    for place, records in enumerate(clusters):
        theirs = scaled[records]
        cluster = _sums(theirs, unit_index[records], len(whole.count))
        by_episodes = _sums(theirs, episode_index[records], len(episodes.count))
        ends[:, place] = _intervals(cluster, whole, weights, resampled, settings)
        effective[place] = min(cluster.effective_units, (whole - cluster).effective_units)
        tested[place], agreeing[place] = _agreement(by_episodes, episodes)
    ends[4:] *= spread  # back to the features' units
    low, high, low_rest, high_rest, low_difference, high_difference = ends
    return EffectIntervals(
        low, high, low_rest, high_rest, low_difference, high_difference, effective, tested, agreeing,
        unit, len(whole.count),
    )  # fmt: skip


def _intervals(
    cluster: _Sums, whole: _Sums, weights: np.ndarray, resampled: _Sums, settings: Inference
) -> tuple[np.ndarray, ...]:
    """Return the ends of the intervals of d against random windows and against all other records, and of the difference
    of means from the latter, (F,) each.

    Args:
        weights: how often each resample draws each unit, (R, U).
        resampled: `whole` so weighted.
    """
    once = np.ones((1, len(whole.count)))
    drawn, estimate = (cluster.weighted(weights), resampled), (cluster.weighted(once), whole.weighted(once))
    # The side that fewer units hold decides how sure a difference is.
    of_whole, of_rest = (min(cluster.effective_units, side.effective_units) for side in (whole, whole - cluster))
    measures = (
        (of_whole, lambda inside, everyone: _d(inside, everyone, alike=True)),
        (of_rest, lambda inside, everyone: _d(inside, everyone - inside, alike=False)),
        (of_rest, lambda inside, everyone: inside.mean - (everyone - inside).mean),
    )
    ends: list[np.ndarray] = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for effective, measure in measures:
            ends += _interval(measure(*drawn), measure(*estimate)[0], effective, settings)
    return tuple(ends)


def _sums(features: np.ndarray, unit: np.ndarray, units: int) -> _Sums:
    """Add up the records of each unit, (b, F) and (b,) int64 below `units`."""
    records = np.arange(len(unit))
    chosen = sparse.csr_array((np.ones(len(unit)), (unit, records)), shape=(units, len(unit)))
    return _Sums(np.bincount(unit, minlength=units).astype(np.float64), chosen @ features, chosen @ features**2)


def _d(group: _Sums, reference: _Sums, alike: bool) -> np.ndarray:
    """Return Cohen's d for each resample, (R, F); NaN or infinite where a side is empty or nothing varies.

    `alike`: the reference counts as many records as the group has, as random windows do: both variances weigh alike.
    """
    variances = [side.deviations / (side.count - 1)[:, None] for side in (group, reference)]
    weight = 0.5 if alike else ((group.count - 1) / (group.count + reference.count - 2))[:, None]
    pooled = weight * variances[0] + (1 - weight) * variances[1]
    return (group.mean - reference.mean) / np.sqrt(pooled)


def _interval(
    resampled: np.ndarray, estimate: np.ndarray, effective: float, settings: Inference
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stretched percentile interval of each feature, (R, F) and (F,) to (F,) and (F,).

    Where d is infinite, nothing varies on either side and the means differ, and no resample can say otherwise.
    """
    usable = np.isfinite(resampled)
    known = np.isfinite(estimate) & (usable.mean(axis=0) >= settings.confidence)
    ends = np.full((2, len(estimate)), np.nan)
    if effective < _FEWEST_UNITS:
        return ends[0], ends[1]
    tail = (1 - settings.confidence) / 2
    stretch = student_stretch(effective, settings.confidence)
    if known.any():
        ends[:, known] = np.nanquantile(np.where(usable, resampled, np.nan)[:, known], [tail, 1 - tail], axis=0)
    ends[:, known] = estimate[known] + stretch * (ends[:, known] - estimate[known])
    ends[:, np.isinf(estimate)] = estimate[np.isinf(estimate)]
    low, high = ends
    return low, high


def _agreement(cluster: _Sums, whole: _Sums) -> tuple[int, np.ndarray]:
    """Count the episodes with records on both sides, and those whose difference has the sign of all together."""
    rest = whole - cluster
    both = (cluster.count > 0) & (rest.count > 0)
    if not both.any():
        return 0, np.zeros(cluster.total.shape[1], np.int64)
    everything = np.ones((1, len(both)))
    overall = np.sign(cluster.weighted(everything).mean - rest.weighted(everything).mean)
    with np.errstate(invalid="ignore", divide="ignore"):
        signs = np.sign(cluster.mean - rest.mean)[both]
    return int(both.sum()), ((signs == overall) & (overall != 0)).sum(axis=0)


def detectable(intervals: EffectIntervals, confidence: float) -> np.ndarray:
    """Return the |d| against the complement at which 80% of dumps would have an interval without 0, (K, F); or NaN.

    An interval reaches to either side by a standard error times the quantile of Student's t for its confidence. The
    estimate over its standard error exceeds that quantile with the power `POWER` if it follows a noncentral t with the
    noncentrality that is solved for here (Cohen 1988, section 12.8). The standard error is itself estimated: with few
    units most dumps have one that is too small, by the median of a chi variable over the root of its degrees of
    freedom, which is divided out. One difference at a time: the correction for many tests asks for more.
    """
    freedom = np.maximum(intervals.effective - 1, 1.0)[:, None]  # an interval has at least that
    known = np.isfinite(intervals.complement_low) & np.isfinite(intervals.complement_high)
    width = np.subtract(
        intervals.complement_high, intervals.complement_low, out=np.full(known.shape, np.nan), where=known
    )
    quantile = stats.t.isf((1 - confidence) / 2, freedom)
    noncentrality = special.nctdtrinc(freedom, 1 - POWER, quantile)
    too_small = np.sqrt(stats.chi2.median(freedom) / freedom)
    return width / 2 / quantile * noncentrality / too_small


@dataclass(frozen=True)
class Differences:
    """Differences between K clusters and the rest in F features."""

    effects: EffectSizes
    intervals: EffectIntervals
    test: CircularShiftTest
    given_time: CircularShiftTest  # the same test of surviving differences, with tick and age held constant
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
