"""Behaviours: clusters of short trajectories of a layer's states."""

from dataclasses import dataclass

import numpy as np

from analysis.labels import NOISE
from representation.dynamics.neighbours import cluster_agreement, explained_by, nearest, ward_labels
from representation.dynamics.tracks import Tracks

STEPS = (2, 4, 6)
"""Ticks over which differences of the state are taken."""
DIMENSIONS = 64


@dataclass(frozen=True, eq=False)
class Behaviours:
    """The behaviour of each record of some tracks.

    Attributes:
        label: (B,) int64 from 0 in order of decreasing size; `NOISE` for the first ticks of a life, before which there
            is no trajectory.
        explained: share of the variance of trajectories that lies between behaviours.
        agreement: adjusted Rand index with the clusters found again in each bootstrap of lives, (R,).
    """

    label: np.ndarray
    explained: float
    agreement: np.ndarray

    @property
    def count(self) -> int:
        """Number of behaviours."""
        return int(self.label.max()) + 1


def trajectories(tracks: Tracks, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each state beside its differences from those 2, 4 and 6 ticks before.

    Args:
        tracks: recorded lives.
        z: z-scores of the layer at each record, (B, U).

    Returns:
        The records with `max(STEPS)` ticks before them, (n,), and their trajectories, (n, 4 U).
    """
    records = tracks.with_ticks_around(max(STEPS), 0)
    parts = [z[records], *(z[records] - z[tracks.ahead(records, -step)] for step in STEPS)]
    return records, np.concatenate(parts, axis=1)


def find_behaviours(tracks: Tracks, z: np.ndarray, count: int, bootstraps: int, seed: int) -> Behaviours:
    """Cluster short trajectories: principal components, then Ward's method on a graph of neighbours.

    Args:
        tracks: recorded lives.
        z: z-scores of the layer at each record, (B, U).
        count: behaviours to find.
        bootstraps: of lives, for the agreement.
        seed: of the bootstraps.
    """
    from sklearn.decomposition import PCA

    records, found = trajectories(tracks, z)
    points = PCA(min(DIMENSIONS, *found.shape), svd_solver="covariance_eigh").fit_transform(found)
    labels = ward_labels(points, nearest(points), min(count, len(points)))
    resamples = resampled_lives(tracks.lives.index[records], bootstraps, seed)
    agreement = cluster_agreement(points, labels, min(count, len(points)), resamples)
    everywhere = np.full(len(tracks), NOISE, np.int64)
    everywhere[records] = labels
    return Behaviours(everywhere, explained_by(labels, points), agreement)


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
