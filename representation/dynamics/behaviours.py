"""Behaviours: clusters of short trajectories of the states of one layer or of several."""

from dataclasses import dataclass

import numpy as np

from analysis.labels import NOISE
from representation.dynamics.behaviour_space import BehaviourSpace, trajectories
from representation.dynamics.neighbours import cluster_agreement, cluster_floor, explained_by, nearest, ward_labels
from representation.dynamics.tracks import Tracks

DIMENSIONS = 64


@dataclass(frozen=True, eq=False)
class Behaviours:
    """The behaviour of each record of some tracks.

    Attributes:
        label: (B,) int64 from 0 in order of decreasing size; `NOISE` for the first ticks of a life, before which there
            is no trajectory.
        explained: share of the variance of trajectories that lies between behaviours.
        agreement: adjusted Rand index with the clusters found again in each bootstrap of lives, (R,).
        agreement_floor: the same numbers of a Gaussian surrogate of the trajectories, (R,).
        kept: share of the variance of each layer's trajectories that lies in the principal components, (layers,).
    """

    label: np.ndarray
    explained: float
    agreement: np.ndarray
    agreement_floor: np.ndarray
    kept: np.ndarray

    @property
    def count(self) -> int:
        """Number of behaviours."""
        return int(self.label.max()) + 1


def find_behaviours(tracks: Tracks, space: BehaviourSpace, count: int, bootstraps: int, seed: int) -> Behaviours:
    """Cluster short trajectories: principal components, then Ward's method on a graph of neighbours.

    Args:
        tracks: recorded lives.
        space: of the states.
        count: behaviours to find.
        bootstraps: of lives, for the agreement.
        seed: of the bootstraps.
    """
    from sklearn.decomposition import PCA

    records, found = trajectories(tracks, space.points(tracks.records.activations))
    model = PCA(min(DIMENSIONS, *found.shape), svd_solver="covariance_eigh").fit(found)
    points = model.transform(found)
    in_components = model.explained_variance_ @ model.components_**2  # (4 U,)
    kept = space.by_layer(in_components) / space.by_layer(found.var(axis=0, ddof=1))
    count = min(count, len(points))
    labels = ward_labels(points, nearest(points), count)
    lives = tracks.lives.of_records(np.isin(np.arange(len(tracks)), records))
    resamples = resampled_lives(lives.index, bootstraps, seed)
    agreement = cluster_agreement(points, labels, count, resamples)
    floor = cluster_floor(points, count, lives, resamples, seed)
    everywhere = np.full(len(tracks), NOISE, np.int64)
    everywhere[records] = labels
    return Behaviours(everywhere, explained_by(labels, points), agreement, floor, kept)


def resampled_lives(life: np.ndarray, bootstraps: int, seed: int, most: int = 5000) -> list[np.ndarray]:
    """Draw lives with replacement; return the records of each draw, at most `most` of them drawn by lot.

    Args:
        life: of each record, (B,).
        bootstraps: draws.
        seed: of the draws.
        most: records of a draw.
    """
    random = np.random.default_rng([seed, 2])
    order = np.argsort(life, kind="stable")
    _, starts, counts = np.unique(life[order], return_index=True, return_counts=True)
    found = []
    for _ in range(bootstraps):
        drawn = random.integers(0, len(starts), len(starts))
        records = np.concatenate([order[starts[each] : starts[each] + counts[each]] for each in drawn])
        found.append(records if len(records) <= most else random.choice(records, most, replace=False))
    return found
