"""Clusters that are there are found again with other seeds and other lives; clusters of nothing are not."""

import functools

import numpy as np

from analysis.clusters.clustering import hdbscan_labels
from analysis.statistics.cluster_method import ClusterMethod
from analysis.statistics.stability import (
    SEED_RECORDS,
    SEEDS,
    adjusted_rand,
    best_overlap,
    bootstrap_stability,
    overlap,
    seed_stability,
    whole_lives,
)
from tests.planted_lives import make_lives
from user_error import UserError

LENGTHS = [20] * 60


def project(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
    """A random plane: what a seed does to clusters shows at once."""
    directions = np.random.default_rng(seed).normal(size=(activations.shape[1], 2))
    return activations @ directions


def fail(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
    raise UserError("cannot embed")


def lumps(separation: float, lives: int = len(LENGTHS)) -> np.ndarray:
    rng, records = np.random.default_rng(0), lives * LENGTHS[0]
    centres = separation * np.array([[0, 0, 0], [1, 0, 1], [0, 1, 1]])
    return centres[rng.integers(0, 3, records)] + rng.normal(size=(records, 3))


METHOD = ClusterMethod(project, functools.partial(hdbscan_labels, min_samples=5), min_cluster_size=50)


def test_lives_are_drawn_whole_and_no_more_records_than_asked_for() -> None:
    lives = make_lives([5, 10, 20, 40], seed=1)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for most, replace in ((40, False), (1_000, True)):
            records = whole_lives(lives, most, rng, replace)
            counts = np.bincount(lives.index[records], minlength=4)
            assert ((counts == 0) | (counts == lives.lengths)).all() and 0 < len(records) <= max(most, 40)
            assert len(np.unique(records)) == len(records)


def test_clusters_that_are_there_are_found_again_in_other_lives() -> None:
    points = lumps(14.0)[:, :2]
    labels = METHOD.cluster(points)
    found = bootstrap_stability(points, labels, make_lives(LENGTHS), METHOD, 0)
    assert labels.max() == 2 and min(found.adjusted_rand) > 0.9 and (found.jaccard > 0.9).all()


def test_clusters_of_nothing_are_not_found_again() -> None:
    points = np.random.default_rng(0).random((1200, 2))
    loose = ClusterMethod(project, functools.partial(hdbscan_labels, min_samples=2), min_cluster_size=15)
    labels = loose.cluster(points)
    found = bootstrap_stability(points, labels, make_lives(LENGTHS), loose, 0)
    assert labels.max() > 2 and np.mean(found.adjusted_rand) < 0.5 and np.nanmean(found.jaccard) < 0.5


def nothing(points: np.ndarray, min_cluster_size: int) -> np.ndarray:
    return np.full(len(points), -1)


def test_finding_nothing_again_and_again_is_not_stable() -> None:
    noise, everything = np.full(9, -1), np.zeros(9, np.int64)
    assert np.isnan(adjusted_rand(noise, noise))
    assert adjusted_rand(noise, everything) == adjusted_rand(everything, noise) == 0
    assert adjusted_rand(everything, everything) == 1
    blind, points = ClusterMethod(project, nothing, 50), lumps(14.0)
    assert seed_stability(points, make_lives(LENGTHS), blind, 1).adjusted_rand == (0, 0, 0)
    found = bootstrap_stability(points[:, :2], np.zeros(len(points), np.int64), make_lives(LENGTHS), blind, 0)
    assert set(found.adjusted_rand) == {0} and found.jaccard.tolist() == [0]


def test_a_sample_looks_for_clusters_of_its_own_scale() -> None:
    asked = []

    def note(points: np.ndarray, min_cluster_size: int) -> np.ndarray:
        asked.append(min_cluster_size)
        return np.zeros(len(points), np.int64)

    for smallest in (200, 15, 4):
        method = ClusterMethod(project, note, smallest)
        for share in (1.0, 0.5, 0.01):
            method.cluster(np.zeros((3, 2)), share)
    assert asked == [200, 100, 15, 15, 15, 15, 4, 4, 4]


def test_other_seeds_are_tried_on_whole_lives() -> None:
    asked = []

    def note(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
        asked.append((len(activations), seed, run_records))
        return project(activations, seed, run_records)

    lengths = [20] * 400
    method = ClusterMethod(note, METHOD.hdbscan, 50)
    found = seed_stability(lumps(6.0, 400), make_lives(lengths), method, seed=2**32 - 1)
    assert asked == [(SEED_RECORDS, seed, sum(lengths)) for seed in (0, 1, 2)]
    assert len(found.adjusted_rand) == SEEDS * (SEEDS - 1) // 2 and found.records == SEED_RECORDS
    assert min(found.adjusted_rand) < 1.0  # planes differ, so what is found in them differs


def test_why_no_other_seed_can_be_tried() -> None:
    fixed = ClusterMethod(fail, METHOD.hdbscan, 50, seeded=False)
    assert seed_stability(lumps(1.0), make_lives(LENGTHS), fixed, 1).reason == "no seed plays a part in these clusters"
    broken = ClusterMethod(fail, METHOD.hdbscan, 50)
    assert seed_stability(lumps(1.0), make_lives(LENGTHS), broken, 1).reason == "cannot embed"


def test_overlaps_of_clusters() -> None:
    labels, others = np.array([0, 0, 0, 1, 1, -1]), np.array([1, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(overlap(labels, others, 2), [[1 / 6, 2 / 3], [2 / 4, 0]])
    np.testing.assert_allclose(best_overlap(labels, others, 3), [2 / 3, 1 / 2, np.nan])
    np.testing.assert_allclose(best_overlap(labels, np.full(6, -1), 2), [0, 0])
