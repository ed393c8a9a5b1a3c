"""Clusters that are there are found again with other seeds and other lives; clusters of nothing are not."""

import functools

import numpy as np

from analysis.clusters.clustering import hdbscan_labels
from analysis.statistics.stability import (
    EMBEDDED_ANEW,
    FLOOR_SEEDS,
    SEED_RECORDS,
    SEEDS,
    ClusterMethod,
    adjusted_rand,
    best_overlap,
    bootstrap_stability,
    exceeds,
    overlap,
    projection_stability,
    stability_floor,
    whole_lives,
)
from common.user_error import UserError
from tests.planted_lives import make_lives

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
    agreements, jaccard = bootstrap_stability(points, labels, make_lives(LENGTHS), METHOD, 0)
    assert labels.max() == 2 and min(agreements) > 0.9 and (jaccard > 0.9).all()


def test_clusters_of_nothing_are_not_found_again() -> None:
    points = np.random.default_rng(0).random((1200, 2))
    loose = ClusterMethod(project, functools.partial(hdbscan_labels, min_samples=2), min_cluster_size=15)
    labels = loose.cluster(points)
    agreements, jaccard = bootstrap_stability(points, labels, make_lives(LENGTHS), loose, 0)
    assert labels.max() > 2 and np.mean(agreements) < 0.5 and np.nanmean(jaccard) < 0.5


def test_finding_nothing_again_and_again_is_not_stable() -> None:
    noise, everything = np.full(9, -1), np.zeros(9, np.int64)
    assert np.isnan(adjusted_rand(noise, noise))
    assert adjusted_rand(noise, everything) == adjusted_rand(everything, noise) == 0
    assert adjusted_rand(everything, everything) == 1
    blind, points = ClusterMethod(project, lambda points, **_: np.full(len(points), -1), 50), lumps(14.0)
    nowhere = np.full(len(points), -1)
    assert projection_stability(points, nowhere, make_lives(LENGTHS), blind, 1).over_seeds == (0, 0, 0)
    one = np.zeros(len(points), np.int64)
    agreements, jaccard = bootstrap_stability(points[:, :2], one, make_lives(LENGTHS), blind, 0)
    assert set(agreements) == {0} and jaccard.tolist() == [0]


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


def noting() -> tuple[ClusterMethod, list[tuple[int, int, int]]]:
    """A method, and the list in which it notes what it is asked to embed."""
    asked: list[tuple[int, int, int]] = []

    def note(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
        asked.append((len(activations), seed, run_records))
        return project(activations, seed, run_records)

    return ClusterMethod(note, METHOD.hdbscan, 50), asked


def test_other_seeds_and_other_lives_are_embedded_anew_and_held_against_the_run() -> None:
    method, asked = noting()
    lengths, activations = [20] * 400, lumps(6.0, 400)
    labels, seed = METHOD.cluster(activations), 2**32 - 1
    result = projection_stability(activations, labels, make_lives(lengths), method, seed)
    assert asked[:SEEDS] == [(SEED_RECORDS, case, sum(lengths)) for case in (0, 1, 2)]
    assert len(asked) == SEEDS + EMBEDDED_ANEW and {case for _, case, _ in asked[SEEDS:]} == {seed}
    assert all(4_000 < records <= SEED_RECORDS for records, _, _ in asked[SEEDS:])
    assert len(result.over_seeds) == SEEDS and len(result.over_lives) == EMBEDDED_ANEW
    assert result.records == SEED_RECORDS and min(result.over_seeds) < 1.0  # planes differ, so what is found does


def test_a_projection_that_makes_the_clusters_itself_is_called_out() -> None:
    """All seeds agree with each other on islands that have nothing to do with the run's: the run is the odd one."""

    def islands(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        return 20 * rng.integers(0, 3, (len(activations), 1)) + rng.normal(size=(len(activations), 2))

    labels = np.random.default_rng(1).integers(0, 3, 1200)
    method = ClusterMethod(islands, METHOD.hdbscan, 50)
    result = projection_stability(lumps(1.0), labels, make_lives(LENGTHS), method, 1)
    assert max(result.over_seeds) < 0.1 and max(result.over_lives) < 0.1


def test_why_no_other_seed_can_be_tried() -> None:
    labels = METHOD.cluster(lumps(14.0)[:, :2])
    fixed = ClusterMethod(lambda activations, seed, run_records: activations[:, :2], METHOD.hdbscan, 50, seeded=False)
    result = projection_stability(lumps(14.0), labels, make_lives(LENGTHS), fixed, 1)
    assert result.reason == "these clusters do not depend on a seed" and result.over_seeds == ()
    assert len(result.over_lives) == EMBEDDED_ANEW and min(result.over_lives) > 0.9
    broken = ClusterMethod(fail, METHOD.hdbscan, 50)
    assert projection_stability(lumps(1.0), labels, make_lives(LENGTHS), broken, 1).reason == "cannot embed"


def test_planted_clusters_are_beyond_a_gaussian_and_a_gaussian_is_not() -> None:
    """Two groups along the widest axis; and a Gaussian that the same axis cuts in two just as stably."""

    def widest(states: np.ndarray, seed: int, run_records: int) -> np.ndarray:
        return states @ np.linalg.svd(states - states.mean(axis=0), full_matrices=False)[2][0]

    halves = ClusterMethod(widest, lambda points, **_: (points > points.mean()).astype(np.int64), 50, seeded=False)
    lives, rng = make_lives(LENGTHS, seed=1), np.random.default_rng(0)
    wide = rng.normal(size=(len(lives.index), 3)) * [9, 1, 1]
    plane = halves.embed(wide, seed=0, run_records=0)
    labels = halves.cluster(plane)
    agreements, _ = bootstrap_stability(plane, labels, lives, halves, 0)
    floor = stability_floor(wide, lives, halves, 0)
    assert min(agreements) > 0.8, "stable, as the index alone has it"
    assert not exceeds(agreements, floor.over_bootstraps)

    points = lumps(14.0)
    method = ClusterMethod(lambda states, seed, run_records: states[:, :2], METHOD.hdbscan, 50, seeded=False)
    labels = method.cluster(points[:, :2])
    lives = make_lives(LENGTHS)
    result, floor = projection_stability(points, labels, lives, method, 0), stability_floor(points, lives, method, 0)
    assert len(floor.over_lives) == EMBEDDED_ANEW and floor.over_seeds == ()
    assert max(floor.over_lives) < 0.75 and exceeds(result.over_lives, floor.over_lives)


def test_what_a_floor_asks_for() -> None:
    method, asked = noting()
    lives, activations = make_lives([20] * 400), lumps(6.0, 400)
    floor = stability_floor(activations, lives, method, 2**32 - 1)
    assert asked[:FLOOR_SEEDS] == [(SEED_RECORDS, case, 8_000) for case in (2**32 - 1, 0, 1)]
    assert len(asked) == FLOOR_SEEDS + EMBEDDED_ANEW - 1 and len(floor.over_lives) == 2
    assert len(floor.over_seeds) == 3 and len(floor.over_bootstraps) == 12
    assert stability_floor(activations, lives, ClusterMethod(fail, METHOD.hdbscan, 50), 0).over_lives == ()


def test_three_of_three_are_needed_and_nothing_is_asked_without_a_floor() -> None:
    assert exceeds((0.5, 0.6, 0.7), (0.2, 0.3, 0.4)) and not exceeds((0.5, 0.6, 0.7), (0.2, 0.3, 0.5))
    assert not exceeds((0.1,), ())
    rng = np.random.default_rng(0)
    assert np.mean([exceeds(rng.random(3), tuple(rng.random(3))) for _ in range(200)]) < 0.1


def test_overlaps_of_clusters() -> None:
    labels, others = np.array([0, 0, 0, 1, 1, -1]), np.array([1, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(overlap(labels, others, 2), [[1 / 6, 2 / 3], [2 / 4, 0]])
    np.testing.assert_allclose(best_overlap(labels, others, 3), [2 / 3, 1 / 2, np.nan])
    np.testing.assert_allclose(best_overlap(labels, np.full(6, -1), 2), [0, 0])
