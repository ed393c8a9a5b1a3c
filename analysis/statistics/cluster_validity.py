"""How well clusters are separated by sparse regions: density-based validity."""

import warnings
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Validity:
    """Density-based validity (DBCV), -1 to 1, on the records that were clustered or a sample of them.

    Attributes:
        dbcv: of all clusters, weighted by size; noise counts against it.
        records: it was computed on.
        reason: why it is NaN, else "".
    """

    dbcv: float
    records: int
    reason: str


MOST_RECORDS = 3_000
"""DBCV needs all distances within a cluster: more records are sampled."""

_FEWEST_IN_CLUSTER = 3


def cluster_validity(points: np.ndarray, labels: np.ndarray, seed: int) -> tuple[Validity, np.ndarray]:
    """Return the density-based clustering validation index (Moulavi et al. 2014, SIAM Data Mining, 839-847).

    Between -1 and 1: positive where clusters are denser inside than what separates them. The overall index is the mean
    over clusters, weighted by size, all records counted, so that noise pulls it towards 0.
    """
    from hdbscan.validity import validity_index

    nothing = np.full(labels.max() + 1, np.nan)
    chosen = np.arange(len(labels))
    if len(labels) > MOST_RECORDS:
        chosen = np.sort(np.random.default_rng([seed, 5]).choice(len(labels), MOST_RECORDS, replace=False))
    some, kept = points[chosen].astype(np.float64), labels[chosen].copy()
    some, kept = _without_copies(some, kept)
    sizes = np.bincount(kept[kept >= 0], minlength=len(nothing))
    kept[np.isin(kept, np.flatnonzero(sizes < _FEWEST_IN_CLUSTER))] = -1
    clusters = np.unique(kept[kept >= 0])
    if len(clusters) < 2:
        return Validity(float("nan"), len(kept), "fewer than two clusters can be compared"), nothing
    numbered = np.where(kept >= 0, np.searchsorted(clusters, kept), -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        _, scores = validity_index(some, numbered, per_cluster_scores=True)
    nothing[clusters] = scores
    weights = np.bincount(kept[kept >= 0], minlength=len(nothing))[clusters] / len(kept)
    return Validity(float((weights * scores).sum()), len(kept), ""), nothing


def _without_copies(points: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep one of the points that lie on each other: the index divides by their distances."""
    _, first = np.unique(points, axis=0, return_index=True)
    first.sort()
    return points[first], labels[first]
