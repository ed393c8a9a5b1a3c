"""What neighbours in state space say, in resampled lives too: outliers, Ward clusters on their graph, a t-SNE plane."""

import warnings

import numpy as np

from analysis.labels import largest_first
from analysis.lives import Lives
from analysis.statistics.stability import gaussian_surrogate

NEIGHBOURS = 15
STEPS = (2, 4, 6)
"""Ticks over which differences of the state are taken, for trajectories that are divided into behaviours: up to
`tracks.BEFORE`."""
DIMENSIONS = 64
"""Principal components of trajectories that are kept."""
_OUTLIER_DEVIATIONS = 2.0


def nearest(points: np.ndarray, count: int = NEIGHBOURS) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest other points of each of B points, (B, dimensions), by Euclidean distance; exact.

    Returns:
        Distances, (B, k), and which points they are, (B, k) int64, nearest first.
    """
    from sklearn.neighbors import NearestNeighbors

    points = np.ascontiguousarray(points, np.float32)
    model = NearestNeighbors(n_neighbors=min(count, len(points) - 1), algorithm="brute").fit(points)
    distance, index = model.kneighbors()
    return distance, index


def median_distance(points: np.ndarray) -> np.ndarray:
    """Return the median distance of each point to its nearest neighbours, (B,)."""
    return np.median(nearest(points)[0], axis=1)


def outliers(median: np.ndarray) -> np.ndarray:
    """Return which records lie far from all others, (B,) bool: `median_distance` above its mean plus two deviations."""
    return median > median.mean() + _OUTLIER_DEVIATIONS * median.std()


def ward_labels(points: np.ndarray, clusters: int, neighbours: int = NEIGHBOURS) -> np.ndarray:
    """Merge neighbouring records into clusters of least variance (Ward 1963) along the graph of nearest neighbours.

    Args:
        points: (B, dimensions).

    Returns:
        (B,) int64, from 0 in order of decreasing size.
    """
    from scipy.sparse import csr_array
    from sklearn.cluster import AgglomerativeClustering

    _, index = nearest(points, neighbours)
    count, k = index.shape
    ends = np.arange(0, count * k + 1, k)
    graph = csr_array((np.ones(count * k), index.ravel(), ends), shape=(count, count))
    with warnings.catch_warnings():
        # Parts that no neighbour connects are common in states; scikit-learn connects the nearest ones.
        warnings.filterwarnings("ignore", message="the number of connected components", category=UserWarning)
        labels = AgglomerativeClustering(clusters, linkage="ward", connectivity=graph).fit_predict(points)
    return largest_first(labels.astype(np.int64))


def explained_by(labels: np.ndarray, points: np.ndarray) -> float:
    """Return the share of the points' variance that lies between clusters.

    Args:
        points: (B, dimensions), with all dimensions of which something is to be said: principal components in which
            clusters were found hold less of the variance, and a larger share of that lies between clusters.
    """
    count, between, total = np.bincount(labels), 0.0, 0.0
    for column in points.T:
        sums = np.bincount(labels, column)
        mean = sums.sum() / len(column)
        between += float((count * (sums / np.maximum(count, 1) - mean) ** 2).sum())
        total += float(((column - mean) ** 2).sum())
    return between / total


def resampled_lives(life: np.ndarray, bootstraps: int, seed: int, most: int = 5000) -> list[np.ndarray]:
    """Draw the lives, (B,), of records with replacement; return the records of each draw, at most `most` at random."""
    random = np.random.default_rng([seed, 2])
    order = np.argsort(life, kind="stable")
    _, starts = np.unique(life[order], return_index=True)
    of_lives = np.split(order, starts[1:])
    samples = []
    for _ in range(bootstraps):
        records = np.concatenate([of_lives[drawn] for drawn in random.integers(0, len(starts), len(starts))])
        samples.append(records if len(records) <= most else random.choice(records, most, replace=False))
    return samples


def cluster_agreement(points: np.ndarray, labels: np.ndarray, clusters: int, resamples: list[np.ndarray]) -> np.ndarray:
    """Cluster again in resampled lives; return the adjusted Rand index of each refit with `labels`, (R,).

    1 is the same clusters, 0 what chance gives (Hubert and Arabie 1985).

    Args:
        points, labels: (B, dimensions) and (B,).
        resamples: records of each bootstrap of lives; each distinct record is used once.
    """
    from sklearn.metrics import adjusted_rand_score

    distinct = map(np.unique, resamples)
    return np.array([
        adjusted_rand_score(labels[own], ward_labels(points[own], min(clusters, len(own)))) for own in distinct
    ])  # fmt: skip


def cluster_floor(
    points: np.ndarray, clusters: int, lives: Lives, resamples: list[np.ndarray], seed: int
) -> np.ndarray:
    """Return the `cluster_agreement` of a Gaussian surrogate of the points, (B, dimensions), clustered alike, (R,)."""
    drawn = gaussian_surrogate(points, lives, np.random.default_rng([seed, 7]))
    return cluster_agreement(drawn, ward_labels(drawn, clusters), clusters, resamples)


def plane_agreement(plane: np.ndarray, other: np.ndarray) -> float:
    """Return the mean share of a record's nearest `NEIGHBOURS` in one plane, (n, 2), that are so in another too."""
    (_, one), (_, two) = nearest(plane, NEIGHBOURS), nearest(other, NEIGHBOURS)
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(one, two, strict=True)]) / one.shape[1])
