"""How well clusters are separated by sparse regions, and whether they last."""

import warnings
from dataclasses import dataclass

import numpy as np

from analysis.lives import Lives

MOST_RECORDS = 3_000
"""DBCV needs all distances within a cluster: more records are sampled."""
_FEWEST_IN_CLUSTER = 3


@dataclass(frozen=True)
class Validity:
    """Density-based validity (DBCV), -1 to 1, on the records that were clustered or a sample of them."""

    dbcv: float  # of all clusters, weighted by size; noise counts against it
    records: int  # it was computed on
    reason: str  # why it is NaN, else ""


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
    _, first = np.unique(some, axis=0, return_index=True)  # of points on each other: it divides by their distances
    some, kept = some[np.sort(first)], kept[np.sort(first)]
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


@dataclass(frozen=True)
class Persistence:
    """How often the next kept record of the same life is in the same cluster; shares are 0 to 1."""

    lag_ticks: float  # median ticks between a record and the next one kept
    pairs: int  # of neighbours whose first is in the cluster; in any cluster, for the overall row
    same: float  # share of them whose second is in the same cluster
    chance_in_life: float  # the same share if every life's labels came in random order
    chance_overall: float  # the same share if the labels of the whole dump came in random order


def persistence(labels: np.ndarray, lives: Lives, tick: np.ndarray) -> tuple[Persistence, tuple[Persistence, ...]]:
    """Return the persistence of all clusters together, noise left out, and of each cluster.

    Chance is exact, without drawing: a life's labels in random order put one of its n_k records of a cluster next to
    another one n_k (n_k - 1) / n times, n its records; those of the whole dump (n_k - 1) / (N - 1) of the time. Labels,
    (B,), are negative for noise; ticks are (B,).
    """
    ordered = labels[lives.order]
    same_life = np.diff(lives.index_in_order) == 0
    counts = _counts(ordered, same_life, lives)
    gaps = np.diff(tick[lives.order])[same_life]
    lag = float(np.median(gaps)) if len(gaps) else float("nan")
    sizes = np.bincount(labels[labels >= 0], minlength=labels.max() + 1)
    single = [_persistence(counts, slice(i, i + 1), sizes, len(labels), lag) for i in range(len(sizes))]
    return _persistence(counts, slice(None), sizes, len(labels), lag), tuple(single)


def _counts(ordered: np.ndarray, same_life: np.ndarray, lives: Lives) -> np.ndarray:
    """Count neighbours in a life that start in each cluster and that end in it too, and both by chance, (4, K)."""
    clusters = ordered.max() + 1
    starts = same_life & (ordered[:-1] >= 0)
    stays = starts & (ordered[:-1] == ordered[1:])
    inside = ordered >= 0
    pair, records = np.unique(lives.index_in_order[inside] * clusters + ordered[inside], return_counts=True)
    cluster, length = pair % clusters, lives.lengths[pair // clusters]  # of each life and cluster that it enters
    return np.stack([
        np.bincount(ordered[:-1][starts], minlength=clusters), np.bincount(ordered[:-1][stays], minlength=clusters),
        np.bincount(cluster, (length - 1) * records / length, minlength=clusters),
        np.bincount(cluster, records * (records - 1) / length, minlength=clusters),
    ])  # fmt: skip


def _persistence(counts: np.ndarray, chosen: slice, sizes: np.ndarray, records: int, lag: float) -> Persistence:
    size, (first, both, first_by_chance, both_by_chance) = sizes[chosen], counts[:, chosen].sum(axis=1).tolist()
    chance_overall = _share((size * (size - 1)).sum(), size.sum() * (records - 1))
    same, chance_in_life = _share(both, first), _share(both_by_chance, first_by_chance)
    return Persistence(lag, int(first), same, chance_in_life, chance_overall)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
