"""Density-based validity is high for lumps apart, low for a cut through one, and undefined where nothing compares."""

import numpy as np

from analysis.statistics.cluster_validity import MOST_RECORDS, cluster_validity


def lumps(separation: float, records: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, records)
    return rng.normal(size=(records, 2)) + separation * np.array([[0, 0], [1, 0], [0, 1]])[labels], labels


def test_lumps_apart_are_valid_and_a_cut_through_one_is_not() -> None:
    points, labels = lumps(12.0)
    apart, clusters = cluster_validity(points, labels, 0)
    cut, _ = cluster_validity(lumps(0.0)[0], labels, 0)
    assert apart.dbcv > 0.7 and (clusters > 0.7).all() and apart.reason == "" and cut.dbcv < -0.3


def test_noise_pulls_the_index_towards_zero() -> None:
    points, labels = lumps(12.0)
    half = np.where(np.arange(300) % 2, labels, -1)
    assert 0.2 < cluster_validity(points, half, 0)[0].dbcv < 0.6


def test_many_records_are_sampled_and_copies_of_a_point_do_no_harm() -> None:
    points, labels = lumps(12.0, 2 * MOST_RECORDS)
    sampled, _ = cluster_validity(points, labels, 0)
    copied, _ = cluster_validity(np.repeat(points[:200], 3, axis=0), np.repeat(labels[:200], 3), 0)
    assert (sampled.records, copied.records) == (MOST_RECORDS, 200) and min(sampled.dbcv, copied.dbcv) > 0.7


def test_one_cluster_only_noise_and_splinters_cannot_be_compared() -> None:
    points, labels = lumps(12.0)
    for alike, count in ((np.zeros(300, np.int64), 1), (np.full(300, -1), 0)):
        overall, clusters = cluster_validity(points, alike, 0)
        assert np.isnan(overall.dbcv) and overall.reason and clusters.shape == (count,)
    splinter = np.where(np.arange(300) < 2, 3, labels)
    assert np.isfinite(cluster_validity(points, splinter, 0)[1]).tolist() == [True, True, True, False]
