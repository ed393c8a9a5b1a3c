"""Bootstrap over seeds and the episodes within them: what one world's agents do is never taken for independent."""

import functools
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Units = tuple[tuple[int, tuple[int, ...]], ...]
"""Seeds, each with the numbers of its episodes; a seed whose file tells no episodes counts as one."""


ENOUGH_EPISODES = 4
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A number and the ends of its confidence interval; both are NaN where the data allow no interval."""

    value: float
    low: float = np.nan
    high: float = np.nan


def as_columns(estimates: Iterable[Estimate]) -> np.ndarray:
    """Return values and the ends of their intervals, (3, estimates)."""
    return np.array([(one.value, one.low, one.high) for one in estimates]).T


@dataclass(frozen=True)
class Draws:
    """How often each resample drew each seed and each episode. R resamples, S seeds, U episodes of all seeds."""

    seeds: np.ndarray  # (R, S) float64; a row sums to S
    episodes: np.ndarray  # (R, U) float32, episodes of the first seed first
    slices: tuple[slice, ...]  # the columns of `episodes` that each seed owns


@dataclass(frozen=True)
class Bootstrap:
    """Settings of all intervals: their confidence, the number of resamples, the seed of the random draws."""

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0

    @functools.lru_cache(maxsize=128)  # noqa: B019 (what is kept alive are settings)
    def draw(self, units: Units) -> Draws:
        """Resample seeds with replacement, then as many episodes of each seed drawn as it has.

        A seed drawn twice has its episodes drawn twice. The same units always give the same draws, so what happened
        in the same worlds is resampled together. They are kept, since policies share their episodes.
        """
        rng = np.random.default_rng([self.seed, zlib.crc32(repr(units).encode())])
        seeds = rng.multinomial(len(units), np.full(len(units), 1 / len(units)), self.resamples)
        sizes = [len(episodes) for _, episodes in units]
        drawn = [
            rng.multinomial(times * size, np.full(size, 1 / size)).astype(np.float32)
            for times, size in zip(seeds.T, sizes, strict=True)
        ]
        ends = np.cumsum(sizes).tolist()
        slices = tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))
        return Draws(seeds.astype(np.float64), np.concatenate(drawn, axis=1), slices)

    def interval(self, resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the percentile interval over the first axis, (R, ...) -> (...) and (...).

        Both ends are NaN where all resamples agree: nothing failed in any episode, say, which does not mean that
        nothing ever will, and resampling cannot tell how likely it is.
        """
        tail = (1 - self.confidence) / 2
        ends = np.quantile(resampled, [tail, 1 - tail], axis=0)
        agree = np.ptp(resampled, axis=0) <= _ROUNDING * np.abs(resampled).max(axis=0)
        low, high = np.where(agree, np.nan, ends)
        return low, high


def unit_count(units: Units) -> int:
    """Return the number of episodes over all seeds."""
    return sum(len(episodes) for _, episodes in units)


def draws_of(units: int, resamples: int, seed: int | list[int]) -> np.ndarray:
    """Return how often each resample with replacement draws each unit, (R, U) int64."""
    return np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), resamples)


def means_over_lives(values: np.ndarray, life: np.ndarray, seed: int | list[int] = 0) -> np.ndarray:
    """Return means of resampled lives, (500, columns), of values (n, columns)."""
    _, number = np.unique(life, return_inverse=True)
    count = np.bincount(number)
    sums = np.stack([np.bincount(number, column) for column in values.T], axis=1)  # (lives, columns)
    draws = draws_of(len(count), 500, seed)
    return (draws @ sums) / (draws @ count)[:, None]


def resampled_units(life: np.ndarray, episode: np.ndarray) -> tuple[str, np.ndarray]:
    """Return what is drawn with replacement, "episode" or "life", and its number of each record, (B,) int64 from 0.

    Lives of one episode share a world. Whole episodes are drawn where at least `ENOUGH_EPISODES` were recorded, and
    intervals then generalise to other worlds; otherwise they generalise only to other lives in these worlds.
    """
    episodes, number = np.unique(episode, return_inverse=True)
    if len(episodes) >= ENOUGH_EPISODES:
        return "episode", number
    return "life", np.unique(life, return_inverse=True)[1]


def jackknife(value: float, without: np.ndarray) -> tuple[float, float, float]:
    """Return the ends of a number's 95% interval, and a two-sided p-value that it is 0.

    Both are Student's on the jackknife's pseudo-values (Tukey 1958).

    Args:
        value: the number, of all units.
        without: the same without one unit, (units,).
    """
    from scipy import stats

    units = len(without)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where all units agree
        test = stats.ttest_1samp(units * value - (units - 1) * without, 0)
    return *test.confidence_interval(), float(test.pvalue)


def folds_of(unit: np.ndarray, most: int = 5) -> np.ndarray:
    """Deal whole units, such as lives or worlds, out to folds of about as many records each, (B,) to (B,) int64."""
    from sklearn.model_selection import GroupKFold

    fold = np.empty(len(unit), np.int64)
    for number, (_, held_out) in enumerate(GroupKFold(min(most, len(np.unique(unit)))).split(unit, groups=unit)):
        fold[held_out] = number
    return fold


def half_life(left: np.ndarray) -> np.ndarray:
    """Return after how many ticks half of the first value is left, (R, ticks) -> (R,); infinite if never.

    Args:
        left: after 0, 1, ... ticks.
    """
    share = left / left[:, :1]
    below = share <= 0.5
    place = below.argmax(axis=1)
    rows = np.arange(len(left))
    before, after = share[rows, place - 1], share[rows, place]
    between = place - 1 + (before - 0.5) / np.where(before > after, before - after, 1)
    return np.where(below.any(axis=1), between, np.inf)
