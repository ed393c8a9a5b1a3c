"""Behaviours: clusters of short trajectories of the states of one layer, or of several side by side.

Those of several layers are also compared with those of each layer alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from analysis.dynamics.decompositions import Scale
from analysis.dynamics.neighbours import (
    DIMENSIONS,
    STEPS,
    cluster_agreement,
    cluster_floor,
    explained_by,
    resampled_lives,
    ward_labels,
)
from analysis.dynamics.tracks import Tracks
from analysis.labels import NOISE
from analysis.lives import Lives
from analysis.statistics.circular_shift import shifted_correlations
from analysis.statistics.inference import false_discovery
from common.user_error import UserError

_HIGH = 0.95


Space = dict[str, Scale]
"""What is subtracted from the units of each layer, and what they are divided by. With several layers, that is a unit's
standard deviation times the root of the variance of the layer's trajectories in z-scores, so that those of each layer
vary by 1 in all, however many units it has and however fast it moves."""


def points_in(space: Space, activations: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the states of records with all layers side by side, (B, U), from the activations of each, (B, units)."""
    return np.concatenate([scale.z(activations[name]) for name, scale in space.items()], axis=1)


def by_layer(space: Space, of_units: np.ndarray) -> np.ndarray:
    """Add up a number of each column of trajectories, (4 U,), over those of each layer, (layers,)."""
    units = [len(scale.mean) for scale in space.values()]
    own = of_units.reshape(-1, sum(units)).sum(axis=0)  # (U,)
    return np.array([part.sum() for part in np.split(own, np.cumsum(units)[:-1])])


def space_of(tracks: Tracks, layers: Sequence[str], scales: Mapping[str, Scale]) -> Space:
    """Put layers side by side.

    Args:
        scales: of layers whose z-scores are known; those of the others are measured over the tracks.

    Raises:
        UserError: a layer never changes.
    """
    space = {}
    for name in layers:
        activations = tracks.records.activations[name]
        scale = scales[name] if name in scales else Scale.of(activations)
        variance = float(trajectories(tracks, scale.z(activations))[1].var(axis=0).sum())
        if not variance > 0:
            raise UserError(f"{name} is the same in all ticks: it has no behaviours")
        space[name] = Scale(scale.mean, scale.spread * (np.sqrt(variance) if len(layers) > 1 else 1.0))
    return space


def trajectories(tracks: Tracks, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scaled states, (B, U), beside their differences from those 2, 4 and 6 ticks before.

    Returns:
        The records with `max(STEPS)` ticks before them, (n,), and their trajectories, (n, 4 U).
    """
    records = tracks.with_ticks_around(max(STEPS), 0)
    parts = [points[records], *(points[records] - points[tracks.ahead(records, -step)] for step in STEPS)]
    return records, np.concatenate(parts, axis=1)


@dataclass(frozen=True, eq=False)
class Behaviours:
    """The behaviour of each record of some tracks."""

    # label: (B,) int64 from 0 in order of decreasing size; `NOISE` for the first ticks of a life, before which there is
    # no trajectory
    label: np.ndarray
    explained: float  # share of the variance of trajectories that lies between behaviours
    agreement: np.ndarray  # adjusted Rand index with the clusters found again in each bootstrap of lives, (R,)
    agreement_floor: np.ndarray  # the same numbers of a Gaussian surrogate of the trajectories, (R,)
    # kept: share of the variance of each layer's trajectories that lies in the principal components, (layers,)
    kept: np.ndarray

    @property
    def count(self) -> int:
        """Number of behaviours."""
        return int(self.label.max()) + 1


def find_behaviours(tracks: Tracks, space: Space, count: int, bootstraps: int, seed: int) -> Behaviours:
    """Cluster short trajectories: principal components, then Ward's method on a graph of neighbours."""
    from sklearn.decomposition import PCA

    records, trajectory = trajectories(tracks, points_in(space, tracks.records.activations))
    model = PCA(min(DIMENSIONS, *trajectory.shape), svd_solver="covariance_eigh").fit(trajectory)
    points = model.transform(trajectory)
    in_components = model.explained_variance_ @ model.components_**2  # (4 U,)
    kept = by_layer(space, in_components) / by_layer(space, trajectory.var(axis=0, ddof=1))
    count = min(count, len(points))
    labels = ward_labels(points, count)
    lives = tracks.lives.of_records(np.isin(np.arange(len(tracks)), records))
    resamples = resampled_lives(lives.index, bootstraps, seed)
    agreement = cluster_agreement(points, labels, count, resamples)
    floor = cluster_floor(points, count, lives, resamples, seed)
    everywhere = np.full(len(tracks), NOISE, np.int64)
    everywhere[records] = labels
    return Behaviours(everywhere, explained_by(labels, trajectory), agreement, floor, kept)


@dataclass(frozen=True)
class BehaviourPair:
    """How far two divisions of the same ticks agree.

    The reference takes the labels of one of them from another life at the same age: how behaviours follow from each
    other and depend on age is kept, and which goes with which is lost. Labels shifted in a circle within their own life
    would not do: where a short life is all one behaviour, that changes nothing.
    """

    one: str  # one, other: layers of the two divisions
    other: str
    ticks: int
    information: float  # normalised mutual information (arithmetic mean of the entropies): 1 for the same division
    dealt_information: float  # the same with labels from other lives: mean
    dealt_information_high: float  # 95% of the draws are below
    rand: float  # adjusted Rand index: 1 for the same division, 0 by chance
    dealt_rand: float  # the same with labels from other lives: mean
    dealt_rand_high: float  # 95% of the draws are below


def pairs_of(
    behaviours: Mapping[str, Behaviours], tracks: Tracks, draws: int, seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> list[BehaviourPair]:  # fmt: skip
    """Compare every two divisions of the ticks into behaviours."""
    there = next(iter(behaviours.values())).label >= 0
    lives = tracks.lives.of_records(there)
    pairs = list(combinations(behaviours, 2))
    rows = []
    for number, (one, other) in enumerate(pairs):
        first, second = behaviours[one].label[there], behaviours[other].label[there]
        information, rand = measures(first, second)
        dealt = np.array([measures(first, shuffled) for shuffled in _dealt(second, lives, draws, seed)])  # (draws, 2)
        high = np.quantile(dealt, _HIGH, axis=0)
        means = dealt.mean(axis=0)
        rows.append(
            BehaviourPair(one, other, len(first), information, means[0], high[0], rand, means[1], high[1])
        )  # fmt: skip
        progress((number + 1) / len(pairs))
    return rows


def lagged_correlations(
    tracks: Tracks, scores: np.ndarray, label: np.ndarray, count: int, lags: int, permutations: int, seed: int,
    progress: Callable[[float], None],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Correlate components with later components of the same lives, in each behaviour, (B,), of so many.

    A record counts for the behaviour of its earlier tick.

    Args:
        scores: of the components, (B, K).

    Returns:
        Pearson's r of deviations from life means, (behaviours, lags + 1, K i later, K j earlier), NaN where one of the
        two never varies; and q of two-sided tests by circular shifts, corrected for all of them, likewise.
    """
    components = scores.shape[1]
    r = np.full((count, lags + 1, components, components), np.nan)
    p = r.copy()
    for lag in range(lags + 1):
        earlier = tracks.with_ticks_around(0, lag)
        later = tracks.ahead(earlier, lag)
        kept = np.zeros(len(tracks), bool)
        kept[earlier] = True
        lives = tracks.lives.of_records(kept)
        for number in range(count):
            inside = label[earlier] == number
            correlations = shifted_correlations(
                scores[earlier], scores[later], lives, permutations, seed, episode=tracks.records.episode[earlier],
                inside=inside,
            )  # fmt: skip
            r[number, lag], p[number, lag] = correlations.r.T, correlations.p.T
            progress((lag * count + number + 1) / ((lags + 1) * count))
    return r, false_discovery(p)


def measures(label: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the normalised mutual information and the adjusted Rand index of two divisions of records, (B,) each."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return float(normalized_mutual_info_score(label, other)), float(adjusted_rand_score(label, other))


def _dealt(label: np.ndarray, lives: Lives, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the labels that other lives have at the same age; a shorter life begins again."""
    ordered = label[lives.order]
    life = lives.index_in_order
    age = np.arange(len(ordered)) - lives.starts[life]
    random = np.random.default_rng([seed, 12])
    for _ in range(draws):
        other = random.permutation(len(lives))[life]
        dealt = np.empty_like(label)
        dealt[lives.order] = ordered[lives.starts[other] + age % lives.lengths[other]]
        yield dealt
