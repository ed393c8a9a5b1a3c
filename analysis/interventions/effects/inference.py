"""Inference over episodes and over random directions: intervals, tests, and how large an effect must be to be found."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from activation_store.interventions import Arm, ArmKind
from analysis.statistics.inference import LEVEL, POWER, Inference, counted_p, ratio_p, student_stretch
from analysis.statistics.resampling import Estimate, draws_of

_GRID = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class Condition:
    """One comparison that an effect must pass: its standard error, and the degrees of freedom of that error."""

    error: float
    freedom: int

    @property
    def known(self) -> bool:
        """Whether the error is known."""
        return bool(np.isfinite(self.error)) and self.freedom > 0


def detectable(conditions: Sequence[Condition], tests: int, smallest_p: float = 0.0) -> float:
    """Return the size of effect that passes all conditions in 80% of runs like this one, which is `POWER`.

    Each condition asks for a two-sided p of at most `LEVEL` / `tests` by Student's t, which is what the correction for
    `tests` tests asks of a single effect. An effect over its standard error follows a noncentral t (Cohen 1988, section
    12.8). Conditions are taken for independent; they share the noise of the effect, so that power is a little higher.
    Errors are themselves estimates, and with few degrees of freedom most are too small, by the median of a chi variable
    over the root of its degrees of freedom, which is divided out.

    Returns:
        In the unit of the errors; infinite if `smallest_p` is too large for anything to be found, NaN if no condition
        has a known error.
    """
    known = [condition for condition in conditions if condition.known]
    if not known or not tests:
        return np.nan
    level = LEVEL / tests
    if smallest_p > level:
        return np.inf
    freedom = np.array([condition.freedom for condition in known], dtype=np.float64)
    error = np.array([condition.error for condition in known]) / np.sqrt(stats.chi2.median(freedom) / freedom)
    quantile = stats.t.isf(level / 2, freedom)
    high = float((quantile * error).max())
    # Over a grid of each error's own distribution, which stays accurate at one degree of freedom and in far tails.
    bar = quantile * np.sqrt(stats.chi2.ppf(_GRID[:, None], freedom) / freedom)  # (grid, conditions)

    def beyond_wanted(size: float) -> float:
        return float(np.prod(special.ndtr(size / error - bar).mean(axis=0))) - POWER

    while beyond_wanted(high) < 0:
        high *= 2
    return float(optimize.brentq(beyond_wanted, 0, high, rtol=1e-4))


FEWEST_FOR_RANK = 19
"""Random directions from which on a rank among them can have a p-value of 5%."""

SAME = 1e-9
"""Of an effect: smaller differences from it are rounding."""


Difference = tuple[Estimate, float, Condition]
"""An effect minus what it is compared with; its two-sided p by Student's t, NaN without an error; and that error."""


def from_one_more(effect: float, draws: np.ndarray, confidence: float) -> Difference:
    """Compare an effect with K draws from the distribution that it would be one more draw of, (K,).

    The standard error is the standard deviation of the draws times the root of 1 + 1/K: it holds the variance of the
    effect itself, as one more draw, and of the mean of the draws. Divided by it, the difference follows Student's t
    with K - 1 degrees of freedom if draws are normal (Crawford and Howell 1998, The Clinical Neuropsychologist 12,
    482-486). Effects of directions that are means over the same episodes differ by what the directions do and by the
    noise of episodes; both are in the spread of the draws, and what the episodes have in common cancels. A single
    draw tells nothing of the spread: there is neither interval nor p then.
    """
    count, value = len(draws), float(effect - draws.mean())
    spread = float(draws.std(ddof=1)) if count > 1 else np.nan
    error = spread * np.sqrt(1 + 1 / count)
    if not error > SAME * max(abs(effect), np.abs(draws).max()):
        return Estimate(value), np.nan, Condition(np.nan, 0)
    half = stats.t.isf((1 - confidence) / 2, count - 1) * error
    p = 2 * stats.t.sf(abs(value) / error, count - 1)
    return Estimate(value, float(value - half), float(value + half)), float(p), Condition(float(error), count - 1)


def ranks_among(effects: np.ndarray) -> np.ndarray:
    """Return p-values of N effects of the first of 1 + K directions by its rank among all, corrected for their number.

    If the first direction is drawn like the others, each is as likely to have the largest effect, whatever the
    distribution of effects and however they depend on each other. So an effect is compared with the largest of all
    N of each other direction (single-step maxT: Westfall and Young 1993, "Resampling-based multiple testing", chapter
    2), after division by the root mean square over directions. No p-value is below 1 / (1 + K).

    Args:
        effects: (1 + K, N); NaN counts as no effect.

    Returns:
        (N,), the chance that any of the N would be called an effect is at most the level.
    """
    size = np.abs(np.nan_to_num(effects))
    typical = np.sqrt((size**2).mean(axis=0))
    scaled = np.divide(size, typical, out=np.zeros_like(size), where=typical > 0)  # (1 + K, N)
    return np.asarray(counted_p(scaled[0], scaled[1:].max(axis=1, keepdims=True, initial=0)))


def rank_threshold(effects: np.ndarray) -> np.ndarray:
    """Return how large each of N effects must be to be found by `ranks_among` at 5%, (1 + K, N) -> (N,); inf if never.

    Effects of the K other directions are taken as they are.
    """
    others = np.abs(np.nan_to_num(effects[1:]))  # (K, N)
    if len(others) < FEWEST_FOR_RANK:
        return np.full(effects.shape[1], np.inf)
    typical = np.sqrt((others**2).mean(axis=0))
    scaled = np.divide(others, typical, out=np.zeros_like(others), where=typical > 0).max(axis=1)
    may_be_larger = (1 + len(others)) // (1 + FEWEST_FOR_RANK) - 1
    return np.asarray(np.sort(scaled)[len(others) - 1 - may_be_larger] * typical)


_ROUNDING = 1e-12
_EXACT_UP_TO = 12  # episodes: 4,096 ways to flip them

COUNTED_UP_TO = 6
"""Episodes up to which sign flips are so few that no p-value can be below 2 / their number."""


class OverEpisodes:
    """Estimates over episodes, the unit of sampling: agents of one episode share a world.

    Intervals come from a bootstrap over episodes: percentiles of the resampled means, stretched about the mean by
    Student's t. Plain percentiles are too narrow with as few episodes as people play, and t intervals ignore that
    rare outcomes, such as a cause of death, are skewed.
    tests/analysis/interventions/effects/test_inference.py measures the coverage with 6 to 20 episodes.
    """

    def __init__(self, settings: Inference):
        self.settings = settings
        self._drawn: dict[int, np.ndarray] = {}

    def estimate(self, values: np.ndarray) -> Estimate:
        """Return the mean over episodes and its interval; episodes that are NaN are left out, (E,).

        There is no interval with fewer than two episodes, nor where all agree: resampling them cannot tell how far
        others may be from them.
        """
        known = values[np.isfinite(values)]
        if not len(known):
            return Estimate(np.nan)
        mean = float(known.mean())
        if len(known) < 2 or np.ptp(known) <= _ROUNDING * np.abs(known).max():
            return Estimate(mean)
        low, high = self.interval(mean, self._weights(len(known)) @ known, len(known))
        return Estimate(mean, float(low), float(high))

    def error(self, values: np.ndarray) -> tuple[float, int]:
        """Return the standard error of the mean over episodes, (E,), and its degrees of freedom; NaN and 0 if unknown.

        Episodes that are NaN are left out.
        """
        known = values[np.isfinite(values)]
        if len(known) < 2 or np.ptp(known) <= _ROUNDING * np.abs(known).max():
            return np.nan, 0
        return float(known.std(ddof=1) / np.sqrt(len(known))), len(known) - 1

    def difference(self, values: np.ndarray) -> Difference:
        """Return the mean over episodes of a difference, (E,), tested by Student's t; NaN are left out."""
        error, freedom = self.error(values)
        estimate = self.estimate(values)
        p = 2 * float(stats.t.sf(abs(estimate.value) / error, freedom)) if freedom else np.nan
        return estimate, p, Condition(error, freedom)

    def smallest_p(self, values: np.ndarray) -> float:
        """Return the smallest p-value that `sign_flip_p` can give over these episodes, (E,), whatever their values."""
        known = int(np.isfinite(values).sum())
        return 2.0 ** (1 - known) if known <= COUNTED_UP_TO else 0.0

    def resampled_means(self, values: np.ndarray) -> np.ndarray:
        """Return the means of resampled episodes, (E, ...) -> (resamples, ...); none may be NaN."""
        return np.tensordot(self._weights(len(values)), values, axes=1) if len(values) else np.full_like(values, np.nan)

    def interval(self, value: np.ndarray | float, resampled: np.ndarray, episodes: int) -> np.ndarray:
        """Return the ends of the interval of a statistic of so many episodes, (resamples, ...) -> (2, ...).

        Stretched as in `estimate`; NaN with fewer than two episodes.
        """
        if episodes < 2:
            return np.full((2, *resampled.shape[1:]), np.nan)
        tail = (1 - self.settings.confidence) / 2
        ends = np.quantile(resampled, [tail, 1 - tail], axis=0)
        return np.asarray(value + student_stretch(episodes, self.settings.confidence) * (ends - value))

    def sign_flip_p(self, values: np.ndarray) -> float:
        """Return the two-sided p-value of a mean over episodes of 0, (E,); episodes that are NaN are left out.

        If episodes are as likely to have a value as its negative, flipping signs changes nothing (Fisher 1935, "The
        design of experiments", section 21). With few episodes all flips are tried, with many a random sample; from 7
        episodes on, p-values too small to be counted follow Student's tail (`ratio_p`). NaN with fewer than two
        episodes, or where nothing differs from 0.
        """
        known = values[np.isfinite(values)]
        if len(known) < 2 or not known.any():
            return np.nan
        size, count = np.sqrt((known**2).sum()), np.array([len(known)])
        null = np.abs(_flips(len(known), self.settings) @ known)[:, None] / size
        return float(ratio_p(np.abs(known.sum(keepdims=True)) / size, null, count, count)[0])

    def _weights(self, episodes: int) -> np.ndarray:
        """Return the weight of each episode in each resample, (R, E); each row sums to 1."""
        if episodes not in self._drawn:
            draws = draws_of(episodes, self.settings.bootstraps, [self.settings.seed, episodes, 0])
            self._drawn[episodes] = draws / episodes
        return self._drawn[episodes]


def excludes_zero(estimate: Estimate) -> bool:
    """Return whether an estimate has an interval, and 0 is outside it."""
    return estimate.low > 0 or estimate.high < 0


def _flips(episodes: int, settings: Inference) -> np.ndarray:
    """Return signs of episodes, +1 or -1, (flips, episodes); if all, without the one that flips nothing."""
    if episodes <= _EXACT_UP_TO:
        return 1.0 - 2.0 * ((np.arange(1, 2**episodes)[:, None] >> np.arange(episodes)) & 1)
    rng = np.random.default_rng([settings.seed, episodes, 1])
    return rng.choice([-1.0, 1.0], (settings.permutations, episodes))


PAIRED_SPREAD = 240.0
"""Ticks lived by which lives of edited agents differ from the same in the twin, as a standard deviation: from how
effects of 66 edits of shipped policies vary over episodes (quartiles 170 to 320)."""

LIFE = 240.0
"""Ticks that agents of shipped policies live (220 to 245 on average): no edit can take more."""

OUTCOMES = 16
"""Outcomes in behaviour whose tests are corrected together, for each edit."""

_WANTED = (50, 25)
_MOST_EPISODES = 100_000


def planned_lines(arms: Sequence[Arm], episodes: int, drawn: int, agents: int, horizon: int) -> list[str]:
    """Say how large an effect on the ticks lived a run would find, and how many episodes would find a smaller one.

    It is the best case: random directions are taken not to differ in what they do. Of episodes of so few ticks that
    most lives outlast them nothing is known.
    """
    edits = [arm for arm in arms if arm.is_studied]
    if not edits:
        return []
    kinds: tuple[ArmKind, ...] = ("random direction", "same variance")
    played = [sum(arm.kind == kind and arm.matches(edits[0]) for arm in arms) for kind in kinds]
    draws = [draw for draw in played if draw]
    if not draws or 1 in draws:
        why = "a single random arm is not a control" if draws else "no random arm is played to compare with"
        return [f"CAN ONLY BE UNDECIDED: {why}; give --controls 5 or more"]
    tests = OUTCOMES * len(edits)
    whole, size = horizon >= LIFE, _size(episodes, drawn, draws, tests)
    if whole:
        wanted = [(ticks, episodes_needed(ticks, drawn, draws, tests)) for ticks in _WANTED]
        most = f"more than {_MOST_EPISODES:,}"
        takes = " and ".join(
            f"{ticks} ticks take {f'about {needed:,}' if needed <= _MOST_EPISODES else most} episodes"
            for ticks, needed in wanted
        )
        lines = [
            f"detectable in 80% of such runs, as lives of shipped policies vary: a change of the ticks lived of "
            f"{f'about {size:.0f}' if size < 1000 else 'more than 1,000'} or more; {takes}"
        ]
    else:
        lines = [
            f"what this run can detect is not known in advance: episodes of {horizon} ticks end before most lives do"
        ]
    if drawn == agents and episodes <= COUNTED_UP_TO and 2.0 ** (1 - episodes) * tests > LEVEL:
        lines.append(
            f"CAN ONLY BE UNDECIDED: with every agent edited, {episodes} episodes can be flipped in too few ways for "
            f"{tests} tests; {COUNTED_UP_TO + 1} are enough"
        )
    elif whole and size > LIFE:
        lines.append(f"CAN ONLY BE UNDECIDED on the ticks lived: that is more than the {LIFE:.0f} ticks of a life")
    return lines


def episodes_needed(ticks: float, drawn: int, draws: Sequence[int], tests: int) -> int:
    """Return the fewest episodes that find an effect on the ticks lived in 80% of runs; arguments as in `_size`.

    A number above 100,000 says that it takes more than these.
    """
    counts = range(2, _MOST_EPISODES + 1)
    return 2 + bisect_left(counts, True, key=lambda episodes: _size(episodes, drawn, draws, tests) <= ticks)


def _size(episodes: int, drawn: int, draws: Sequence[int], tests: int) -> float:
    """Return the detectable effect in ticks, given the number of arms of each kind of random directions."""
    error = PAIRED_SPREAD / np.sqrt(drawn * episodes)
    directions = [Condition(error * np.sqrt(1 + 1 / count), count - 1) for count in draws if count > 1]
    return detectable([Condition(error, episodes - 1), *directions], tests)
