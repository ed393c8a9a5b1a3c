"""Do components that follow each other also move each other? Lagged correlations beside Jacobians."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.lives import Lives
from analysis.statistics.inference import false_discovery
from analysis.statistics.shifted_correlations import shifted_correlations
from representation.dynamics.behaviours import Behaviours
from representation.dynamics.tracks import Tracks

LEVEL = 0.05
_SHUFFLES = 200


@dataclass(frozen=True, eq=False)
class LaggedCorrelations:
    """Of B behaviours at L lags from 0, between K components i, later, and K components j, earlier.

    Attributes:
        r: Pearson's r of deviations from life means, (B, L, K i, K j); NaN where one of the two never varies.
        q: of two-sided tests by circular shifts, corrected for all of them, (B, L, K, K).
    """

    r: np.ndarray
    q: np.ndarray


@dataclass(frozen=True)
class Agreement:
    """How often correlation and Jacobian have the same sign, among pairs of different components.

    Attributes:
        behaviour: its number.
        lag: in ticks.
        share: of pairs with the same sign.
        significant: the same among pairs whose correlation has q < 0.05; NaN if there are none.
        pairs: with such a correlation.
        shuffled_behaviours: mean share if behaviours are dealt to states at random, for the Jacobians only.
        shuffled_components: mean share if the components of the Jacobian are renamed at random: about one half.
        p: one-sided, share against renamed components.
    """

    behaviour: int
    lag: int
    share: float
    significant: float
    pairs: int
    shuffled_behaviours: float
    shuffled_components: float
    p: float


def lagged_correlations(
    tracks: Tracks, scores: np.ndarray, behaviours: Behaviours, lags: int, permutations: int, seed: int,
    progress: Callable[[float], None],
) -> LaggedCorrelations:  # fmt: skip
    """Correlate components with later components of the same lives, in each behaviour.

    A record counts for the behaviour of its earlier tick.

    Args:
        tracks: recorded lives.
        scores: of the components, (B, K).
        behaviours: of the records.
        lags: the largest, in ticks.
        permutations: circular shifts of each test.
        seed: of the shifts.
        progress: called with the share done.
    """
    count, components = behaviours.count, scores.shape[1]
    r = np.full((count, lags + 1, components, components), np.nan)
    p = r.copy()
    for lag in range(lags + 1):
        earlier = tracks.with_ticks_around(0, lag)
        later = tracks.ahead(earlier, lag)
        kept = np.zeros(len(tracks), bool)
        kept[earlier] = True
        lives: Lives = tracks.lives.of_records(kept)
        for number in range(count):
            inside = behaviours.label[earlier] == number
            found = shifted_correlations(
                scores[earlier], scores[later], lives, permutations, seed, episode=tracks.records.episode[earlier],
                inside=inside,
            )  # fmt: skip
            r[number, lag], p[number, lag] = found.r.T, found.p.T
            progress((lag * count + number + 1) / ((lags + 1) * count))
    return LaggedCorrelations(r, false_discovery(p))


def mean_jacobians(jacobians: np.ndarray, label: np.ndarray, count: int) -> np.ndarray:
    """Average the Jacobians, (n, L, K, K), of each behaviour: (B, L, K, K); NaN for one without states."""
    weights = (label == np.arange(count)[:, None]).astype(np.float64)  # (B, n)
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.einsum("bn,nlij->blij", weights, jacobians, optimize=True) / total[:, None, None, None]


def sign_agreement(
    correlations: LaggedCorrelations, jacobians: np.ndarray, label: np.ndarray, seed: int
) -> list[Agreement]:
    """Compare the signs of correlations and of mean Jacobians at lags from 1.

    Args:
        correlations: of all behaviours.
        jacobians: of n states, (n, L, K, K).
        label: behaviour of each of these states, (n,).
        seed: of the shuffles.
    """
    count, lags, components, _ = correlations.r.shape
    random = np.random.default_rng([seed, 3])
    apart = ~np.eye(components, dtype=bool)
    means = mean_jacobians(jacobians, label, count)
    dealt = [mean_jacobians(jacobians, random.permutation(label), count) for _ in range(_SHUFFLES // 10)]
    renamed = [random.permutation(components) for _ in range(_SHUFFLES)]
    found = []
    for number in range(count):
        for lag in range(1, lags):
            r, own = correlations.r[number, lag], means[number, lag]
            sure = apart & (correlations.q[number, lag] < LEVEL)
            share = _same_sign(r, own, apart)
            others = np.array([_same_sign(r, own[np.ix_(order, order)], apart) for order in renamed])
            found.append(
                Agreement(
                    number, lag, share, _same_sign(r, own, sure), int(sure.sum()),
                    float(np.mean([_same_sign(r, each[number, lag], apart) for each in dealt])), float(others.mean()),
                    float((1 + (others >= share).sum()) / (1 + len(others))),
                )
            )  # fmt: skip
    return found


def _same_sign(r: np.ndarray, jacobian: np.ndarray, pairs: np.ndarray) -> float:
    known = pairs & np.isfinite(r) & np.isfinite(jacobian)
    return float((np.sign(r[known]) == np.sign(jacobian[known])).mean()) if known.any() else float("nan")
