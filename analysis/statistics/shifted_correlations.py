"""Correlations of two sets of series within lives, tested by circular shifts.

Both sets are smooth in time, so neighbouring ticks say nearly the same, and a correlation over records would look far
surer than it is. A circular shift of one set within each life keeps how smoothly each moves, and loses which goes with
which.
"""

from dataclasses import dataclass

import numpy as np
from scipy import fft

from analysis.lives import Lives
from analysis.statistics.circular_shift import age_of, time_course
from analysis.statistics.inference import FEWEST_EPISODES, FEWEST_LIVES, false_discovery
from analysis.statistics.permutation_p import ratio_p
from analysis.statistics.shifts import centred, random_shifts, shared_shifts

_ROUNDING = 1e-9


@dataclass(frozen=True)
class ShiftedCorrelations:
    """Correlations of K columns with F others; every array is (K, F).

    Attributes:
        r: Pearson's r of deviations from the life's means; NaN where one of the two never varies within a life.
        p: two-sided; NaN where fewer than `FEWEST_LIVES` lives, or `FEWEST_EPISODES` episodes, carry information. With
            `FEWEST_EPISODES` episodes or more, the larger of two: lives shifted independently, and all lives of an
            episode shifted together.
        q: p after the correction for all K x F pairs (Benjamini and Hochberg 1995).
        informative: lives in which the sum of products depends on the shift.
    """

    r: np.ndarray
    p: np.ndarray
    q: np.ndarray
    informative: np.ndarray


@dataclass
class _Sums:
    """Sums over units (lives or episodes) of their shares, and of squared shares, for each permutation."""

    total: np.ndarray  # (M + 1, K, F)
    squares: np.ndarray
    informative: np.ndarray  # (K, F)
    power: np.ndarray
    power_squares: np.ndarray

    @classmethod
    def empty(cls, permutations: int, shape: tuple[int, int]) -> "_Sums":
        total, squares = (np.zeros((permutations + 1, *shape)) for _ in range(2))
        return cls(total, squares, np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape))

    def add(self, shares: np.ndarray, power: np.ndarray) -> None:
        """Add one unit: its share for each permutation, (M + 1, K, F), and their mean square over all shifts."""
        self.total += shares
        self.squares += shares**2
        self.informative += power > 0
        self.power += power
        self.power_squares += power**2

    def p(self, fewest: int) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            size = np.where(self.squares > 0, np.abs(self.total) / np.sqrt(self.squares), 0.0)
            effective = self.power**2 / np.maximum(self.power_squares, np.finfo(float).tiny)
        return np.where(self.informative >= fewest, ratio_p(size[0], size[1:], self.informative, effective), np.nan)


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
    of_lives = _Sums.empty(permutations, shape)
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
        of_episodes = _Sums.empty(permutations, shape)
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
    age = age_of(tick, lives)
    rest = right - time_course(right, tick, age).explained(tick, age)
    plain, again = (
        shifted_correlations(left, columns, lives, permutations, seed, episode=episode) for columns in (right, rest)
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
