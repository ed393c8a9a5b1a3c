"""Lives with known time courses: smooth, drifting, bursting or different in each life, in any combination."""

from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter
from scipy.stats import norm

from analysis.lives import Lives

Course = Callable[[np.random.Generator, int, int], np.ndarray]
"""A function from a generator, records and columns to one life's values, (records, columns)."""


def make_lives(lengths: list[int], seed: int | None = None) -> Lives:
    """Return lives of the given lengths; with a seed, their records are scattered through the dump."""
    count = sum(lengths)
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    index = np.empty(count, np.int64)
    index[order] = np.repeat(np.arange(len(lengths)), lengths)
    sizes = np.array(lengths)
    return Lives(index, order, np.cumsum(sizes) - sizes, sizes)


def uneven_lengths(rng: np.random.Generator, lives: int) -> list[int]:
    """Lengths as in a subsampled dump: mostly short, some a hundred records, some a single one."""
    return np.clip(rng.lognormal(2.6, 1.0, lives).astype(int), 1, 103).tolist()


def smooth(rng: np.random.Generator, records: int, columns: int, correlation: float = 0.9) -> np.ndarray:
    """AR(1) with this correlation from record to record."""
    noise = rng.normal(size=(records, columns)) * np.sqrt(1 - correlation**2)
    noise[0] = rng.normal(size=columns)
    return lfilter([1], [1, -correlation], noise, axis=0)


def slow(rng: np.random.Generator, records: int, columns: int) -> np.ndarray:
    """Like a passing event in a world."""
    return smooth(rng, records, columns, 0.95)


def drifting(rng: np.random.Generator, records: int, columns: int) -> np.ndarray:
    """A linear plus curved trend over the life, with a random slope in each life."""
    time = np.linspace(-1, 1, records)[:, None]
    slopes, bends = rng.normal(size=(2, columns))
    return 2 * time * slopes + time**2 * bends + 0.3 * rng.normal(size=(records, columns))


def wandering(rng: np.random.Generator, records: int, columns: int) -> np.ndarray:
    """A random walk."""
    return np.cumsum(rng.normal(size=(records, columns)), axis=0)


def bursting(rng: np.random.Generator, records: int, columns: int) -> np.ndarray:
    """Mostly 0, with bursts of 1 that last a few records."""
    bursts = [np.repeat(rng.random(records) < 0.15, rng.integers(2, 9, records))[:records] for _ in range(columns)]
    return np.stack(bursts, axis=1) + 0.01 * rng.normal(size=(records, columns))


def life_levels(rng: np.random.Generator, records: int, columns: int) -> np.ndarray:
    """A constant level per life, plus little noise."""
    return 2 * rng.normal(size=columns) + 0.5 * rng.normal(size=(records, columns))


COURSES: dict[str, Course] = {
    "smooth": smooth, "drifting": drifting, "wandering": wandering, "bursting": bursting, "life_levels": life_levels,
}  # fmt: skip


def values_of(course: Course, rng: np.random.Generator, lengths: list[int], columns: int) -> np.ndarray:
    """Values of all lives, concatenated, (records, columns)."""
    return np.concatenate([course(rng, length, columns) for length in lengths])


def labels_of(course: Course, rng: np.random.Generator, lengths: list[int], clusters: int = 3) -> np.ndarray:
    """Clusters and noise that follow a course: the label is the index of the largest hidden value."""
    return values_of(course, rng, lengths, clusters + 1).argmax(axis=1) - 1


def shared_shocks(
    rng: np.random.Generator, episodes: int, lives: int, ticks: int
) -> tuple[np.ndarray, np.ndarray, Lives, np.ndarray]:
    """One feature and one cluster that follow separate slow shocks, each common to all lives of an episode.

    Returns:
        Features (B, 1), labels (B,), lives, and the episode of each record (B,).
    """
    episode = np.repeat(np.arange(episodes), lives)
    lengths = rng.integers(ticks // 3, ticks + 1, len(episode))
    shocks = [slow(rng, ticks, 2) for _ in range(episodes)]
    values = np.concatenate([shocks[e][:n] for e, n in zip(episode, lengths, strict=True)])
    values += 0.5 * rng.normal(size=values.shape)
    return values[:, :1], np.where(values[:, 1] > 0.5, 0, -1), make_lives(lengths.tolist()), np.repeat(episode, lengths)


def drifting_together(
    rng: np.random.Generator, lift: float = 0.0, lives: int = 40, ticks: int = 50
) -> tuple[np.ndarray, np.ndarray, Lives, np.ndarray]:
    """A cluster whose share rises from .18 to .48 with the tick, and a feature that falls with it.

    Args:
        lift: how much higher the feature is inside the cluster.

    Returns:
        Features (B, 1), labels (B,), lives, and the tick of each record (B,).
    """
    lengths = [ticks] * lives
    tick = np.tile(np.arange(ticks), lives)
    state, feature = values_of(smooth, rng, lengths, 2).T
    labels = np.where(norm.cdf(state) < 0.18 + 0.3 * tick / ticks, 0, -1)
    values = feature - 0.04 * tick + lift * (labels == 0)
    return values[:, None], labels, make_lives(lengths), tick
