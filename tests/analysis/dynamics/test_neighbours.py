"""Clusters, outliers and planes of planted points."""

import numpy as np
import pytest

from analysis.dynamics.neighbours import (
    cluster_agreement,
    explained_by,
    median_distance,
    nearest,
    outliers,
    plane_agreement,
    ward_labels,
)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], [90, 60, 30])
    return 30 * np.eye(3)[label] + rng.normal(size=(180, 3)), label


def test_neighbours_are_the_nearest_others(blobs) -> None:
    points, _ = blobs
    near, _ = nearest(points, 4)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_allclose(near, np.sort(distance, axis=1)[:, :4], rtol=1e-3)


def test_planted_clusters_are_found_even_if_no_neighbour_connects_them(blobs) -> None:
    points, label = blobs
    result = ward_labels(points, 3, neighbours=8)
    assert (result == label).all()
    assert explained_by(result, points) > 0.95 and explained_by(np.zeros(180, np.int64), points) == 0
    resamples = [np.random.default_rng(seed).integers(0, 180, 180) for seed in range(3)]
    assert (cluster_agreement(points, result, 3, resamples) == 1).all()


def test_clusters_of_noise_are_not_found_again() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(300, 6))
    result = ward_labels(points, 12)
    resamples = [rng.integers(0, 300, 300) for _ in range(3)]
    assert cluster_agreement(points, result, 12, resamples).mean() < 0.6


def test_a_planted_outlier_is_marked(blobs) -> None:
    points = np.concatenate([blobs[0], [[300.0, 300.0, 300.0]]])
    result = outliers(median_distance(points))
    assert result[-1] and result.sum() == 1


def test_agreement_of_planes() -> None:
    plane = np.random.default_rng(2).normal(size=(200, 2))
    turned = plane @ np.array([[0.0, -1.0], [1.0, 0.0]]) * 3 + 7
    assert plane_agreement(plane, turned) == pytest.approx(1)
    assert plane_agreement(plane, np.random.default_rng(3).normal(size=(200, 2))) < 0.3
