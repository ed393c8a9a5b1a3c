"""How strongly categorical features go with clusters: Cramer's V, and a test by circular shifts within lives."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from analysis.lives import Lives
from analysis.statistics.circular_shift import studentised, without_time
from analysis.statistics.inference import (
    FEWEST_EPISODES,
    FEWEST_LIVES,
    LEVEL,
    Inference,
    false_discovery,
    information_p,
)
from analysis.statistics.shifts import ShiftedSums, one_hot, shifted_sums

_ROUNDING = 1e-9
_NAN = float("nan")


@dataclass(frozen=True)
class Association:
    """How one categorical feature goes with all clusters together."""

    name: str
    chi_square: float  # of the table of clusters and options; noise is left out
    shifted_mean: float  # the same with labels shifted in a circle within lives: mean over the permutations
    shifted_largest: float
    v: float  # Cramer's V, 0 to 1, corrected for bias; NaN where there are fewer than two clusters or options
    p: float  # of the test by shifts; NaN where V is, or too few lives carry information
    q: float  # p corrected for all categorical features
    p_given_time: float  # of the same test with tick and age held constant
    q_given_time: float  # the larger of both p-values, corrected for all categorical features

    @property
    def survives(self) -> bool:
        """Whether the association holds with tick and age held constant, after correction."""
        return self.q_given_time <= LEVEL


@dataclass(frozen=True, eq=False)
class EtaSquares:
    """How one categorical feature goes with each of K components; arrays are (K,)."""

    name: str
    value: np.ndarray  # eta-square, the share of a component's variance that lies between options, 0 to 1
    shifted_mean: np.ndarray  # the same with options shifted in a circle within lives, mean over the permutations
    p: np.ndarray  # of the test by shifts; NaN where too few lives carry information
    q_given_time: np.ndarray
    """The larger p of that test and of the one with tick and age held constant, corrected for all components and
    categorical features."""

    @property
    def surviving(self) -> list[int]:
        """The components with which it goes given tick and age, largest eta-square first."""
        order = np.argsort(-self.value, kind="stable")
        return [int(i) for i in order if self.q_given_time[i] <= LEVEL]


@dataclass
class _Totals:
    """What is added up over clusters, for the labels as they are and each of M permutations; F columns."""

    count: np.ndarray  # records in clusters, (M + 1, F)
    squares: np.ndarray  # sum over clusters of squared records over the cluster's size, (M + 1, F)
    score: np.ndarray
    """Sum over clusters of squared t-statistics, with lives as units, (2, M + 1, F): of the columns, and of what tick
    and age leave of them."""
    score_together: np.ndarray  # the same with episodes as units
    informative: np.ndarray  # the most lives in which a shift changes some cluster's sum, (F,)
    informative_together: np.ndarray

    def p(self, given: int, columns: np.ndarray) -> float:
        """Return the p-value of some columns together, of themselves (0) or given tick and age (1); NaN without one."""
        if self.informative[columns].max() < FEWEST_LIVES:
            return _NAN
        if self.informative_together[columns].max() < FEWEST_EPISODES:
            return _NAN
        totals = [score[given][:, columns].sum(axis=1) for score in (self.score, self.score_together)]
        return max(float(information_p(total[0], total[1:])) for total in totals)


def associations(
    codes: Mapping[str, np.ndarray], labels: np.ndarray, lives: Lives, tick: np.ndarray, episode: np.ndarray,
    settings: Inference,
) -> tuple[Association, ...]:  # fmt: skip
    """Measure and test how categorical features go with clusters.

    The chi-square's bias is its mean over the permutations, which keep how long bouts of a cluster and of an option
    last. Bergsma 2013 ("A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean Statistical
    Society 42, 323-328) subtracts what independent records would give, and is followed in the rest.

    The test adds up squared t-statistics of all clusters and options, as `circular_shift_test` makes them one by one,
    and holds the sum against that of the permutations. From `FEWEST_EPISODES` episodes on, the larger of two p-values
    counts: lives shifted independently, and all lives of an episode shifted together.

    Args:
        codes: the option of each record, (B,) int64 from 0, of each categorical feature by name.
    """
    if not codes:
        return ()
    hot = {name: one_hot(code) for name, code in codes.items()}
    ends = np.cumsum([columns.shape[1] for columns in hot.values()])
    totals = _totals(np.concatenate(list(hot.values()), axis=1), labels, lives, tick, episode, settings)
    own = np.split(np.arange(ends[-1]), ends[:-1])
    rows = [_association(name, part, totals, labels) for name, part in zip(hot, own, strict=True)]
    p = np.array([row.p for row in rows])
    given = false_discovery(np.fmax(p, [row.p_given_time for row in rows]))
    return tuple(
        replace(row, q=float(q), q_given_time=float(q_given))
        for row, q, q_given in zip(rows, false_discovery(p), given, strict=True)
    )


def eta_squares(
    scores: np.ndarray, codes: Mapping[str, np.ndarray], lives: Lives, tick: np.ndarray, episode: np.ndarray,
    settings: Inference,
) -> tuple[EtaSquares, ...]:  # fmt: skip
    """Measure how much of each component's variance lies between the options of categorical features, and test it.

    Options are shifted in a circle within lives, as `associations` shifts clusters.

    Args:
        scores: (B, K), finite.
        codes: the option of each record, (B,) int64 from 0, of each categorical feature by name.
    """
    if not codes:
        return ()
    spread = scores.std(axis=0)
    scaled = (scores - scores.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    rows = []
    for name, code in codes.items():
        totals = _totals(scaled, code, lives, tick, episode, settings)
        eta = totals.squares / len(scores)  # (M + 1, K)
        p = [[totals.p(i, np.array([component])) for component in range(scores.shape[1])] for i in range(2)]
        rows.append(EtaSquares(name, eta[0], eta[1:].mean(axis=0), np.array(p[0]), np.fmax(*np.array(p))))
    q = false_discovery(np.array([row.q_given_time for row in rows]).reshape(len(rows), -1))
    return tuple(replace(row, q_given_time=own) for row, own in zip(rows, q, strict=True))


def _totals(
    columns: np.ndarray, labels: np.ndarray, lives: Lives, tick: np.ndarray, episode: np.ndarray, settings: Inference
) -> _Totals:
    worlds = episode if len(np.unique(episode)) >= FEWEST_EPISODES else None
    number, draws = columns.shape[1], settings.permutations + 1
    life_means = np.add.reduceat(columns[lives.order].astype(np.float64), lives.starts, axis=0) / lives.lengths[:, None]
    count, squares = np.zeros((2, draws, number))
    score, together = np.zeros((2, 2, draws, number))
    informative, informative_together = np.zeros((2, number), np.int64)
    both = np.concatenate([columns, without_time(columns, tick, lives)], axis=1)
    for cluster, sums in enumerate(
        shifted_sums(both, labels, lives, settings.permutations, settings.seed, episode=worlds)
    ):
        member = labels == cluster
        inside = np.bincount(lives.index[member], minlength=len(lives))  # (L,)
        # A permutation leaves each life's number of records in the cluster as it is, and so what is expected of it.
        expected = inside @ life_means  # (F,)
        records = sums.total[:, :number] + expected
        count += records
        squares += records**2 / max(1, member.sum())
        score += _scores(sums, number)
        informative = np.maximum(informative, sums.informative[:number])
        if sums.together:
            together += _scores(sums.together, number)
            informative_together = np.maximum(informative_together, sums.together.informative[:number])
    if worlds is None:
        together, informative_together = score, np.full(number, FEWEST_EPISODES)
    return _Totals(count, squares, score, together, informative, informative_together)


def _scores(sums: ShiftedSums, number: int) -> np.ndarray:
    """Return squared t-statistics of the columns and of what tick and age leave of them, (2, M + 1, F)."""
    squared = studentised(sums) ** 2
    return np.stack([squared[:, :number], squared[:, number:]])


def _association(name: str, own: np.ndarray, totals: _Totals, labels: np.ndarray) -> Association:
    size, clusters = int((labels >= 0).sum()), int(labels.max()) + 1
    count, squares = totals.count[:, own], totals.squares[:, own]
    shares = np.divide(squares, count, out=np.zeros_like(squares), where=count > _ROUNDING)
    chi_square = np.maximum(size * (shares.sum(axis=1) - 1), 0)  # (M + 1,)
    options = int((count[0] > _ROUNDING).sum())
    bias = float(chi_square[1:].mean())
    v = _NAN
    if min(clusters, options) >= 2:  # Bergsma 2013, equations 3 to 5
        corrected = [number - (number - 1) ** 2 / (size - 1) for number in (clusters, options)]
        v = float(np.sqrt(np.clip((float(chi_square[0]) - bias) / size / (min(corrected) - 1), 0, 1)))
    p, given = (_NAN if np.isnan(v) else totals.p(i, own) for i in range(2))
    return Association(name, float(chi_square[0]), bias, float(chi_square[1:].max()), v, p, _NAN, given, _NAN)
