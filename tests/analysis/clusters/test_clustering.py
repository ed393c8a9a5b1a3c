"""Clusters are found where they were planted, and numbered from the largest."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from analysis.clusters.clustering import hdbscan_clusters, largest_first
from analysis.clusters.components import principal_components
from analysis.labels import NOISE


def test_largest_first() -> None:
    labels = np.array([3, 3, 0, 0, 0, NOISE, 7, 7, 7, 7])
    assert largest_first(labels).tolist() == [2, 2, 1, 1, 1, NOISE, 0, 0, 0, 0]


def test_planted_blobs_are_found() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [150, 100, 50])
    points = np.array([[0, 0], [20, 0], [0, 20]])[truth] + rng.normal(size=(300, 2))
    assert adjusted_rand_score(truth, hdbscan_clusters(points, 20, 5).labels) > 0.95
    assert np.bincount(hdbscan_clusters(points, 20, 5).labels + 1)[1:].argmax() == 0


def test_no_structure_is_noise() -> None:
    """50 points cannot form two clusters of 26."""
    points = np.random.default_rng(0).normal(size=(50, 2))
    assert (hdbscan_clusters(points, 26, 5).labels == NOISE).all()


def test_components_explaining_known_variance() -> None:
    rng = np.random.default_rng(0)
    activations = rng.normal(size=(4000, 6)) * np.sqrt([60.0, 25.0, 10.0, 3.0, 1.5, 0.5])
    assert principal_components(activations).needed_for((0.5, 0.9, 0.99)) == {0.5: 1, 0.9: 3, 0.99: 5}
