"""Density clusters of embedded activations."""

import numpy as np

NOISE = -1
"""The label of records that belong to no cluster."""


def hdbscan_labels(points: np.ndarray, min_cluster_size: int, min_samples: int) -> np.ndarray:
    """Cluster points with HDBSCAN (Campello, Moulavi and Sander 2013), excess of mass.

    Args:
        points: (B, dimensions).
        min_cluster_size: smaller groups are noise; from 2 to B.
        min_samples: neighbours that make a region dense, from 1; more call more of the points noise.

    Returns:
        (B,) int64: clusters from 0 in order of falling size, `NOISE` for the rest.
    """
    import hdbscan

    model = hdbscan.HDBSCAN(min_cluster_size=min_cluster_size, min_samples=min_samples, core_dist_n_jobs=1)
    return largest_first(model.fit_predict(points.astype(np.float64)))


def largest_first(labels: np.ndarray) -> np.ndarray:
    """Renumber clusters by falling size, ties by their old number; noise stays noise."""
    clusters, sizes = np.unique(labels[labels != NOISE], return_counts=True)
    renumbered = np.full(len(labels), NOISE, np.int64)
    for rank, cluster in enumerate(clusters[np.argsort(-sizes, kind="stable")]):
        renumbered[labels == cluster] = rank
    return renumbered
