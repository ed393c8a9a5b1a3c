"""Clusters that are there are found again, those of nothing are not, and Gaussian surrogates show the difference."""

import functools

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import kurtosis

from analysis.clusters.projection import hdbscan_labels
from analysis.lives import Lives
from analysis.statistics.cluster_validity import MOST_RECORDS, cluster_validity, persistence
from analysis.statistics.stability import (
    EMBEDDED_ANEW,
    FLOOR_SEEDS,
    SEED_RECORDS,
    SEEDS,
    ClusterMethod,
    above_floor,
    adjusted_rand,
    best_overlap,
    bootstrap_stability,
    exceeds,
    gaussian_surrogate,
    overlap,
    projection_stability,
    stability_floor,
    whole_lives,
)
from common.user_error import UserError
from tests.planted_lives import COURSES, labels_of, make_lives, uneven_lengths

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


def test_clusters_are_found_again_in_other_lives_and_those_of_nothing_are_not() -> None:
    points = lumps(14.0)[:, :2]
    labels = METHOD.cluster(points)
    agreements, jaccard = bootstrap_stability(points, labels, make_lives(LENGTHS), METHOD, 0)
    assert labels.max() == 2 and min(agreements) > 0.9 and (jaccard > 0.9).all()
    nothing = np.random.default_rng(0).random((1200, 2))
    loose = ClusterMethod(project, functools.partial(hdbscan_labels, min_samples=2), min_cluster_size=15)
    labels = loose.cluster(nothing)
    agreements, jaccard = bootstrap_stability(nothing, labels, make_lives(LENGTHS), loose, 0)
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


def test_other_seeds_and_other_lives_are_embedded_anew_for_the_run_and_its_floor() -> None:
    asked: list[tuple[int, int, int]] = []

    def note(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
        asked.append((len(activations), seed, run_records))
        return project(activations, seed, run_records)

    method = ClusterMethod(note, METHOD.hdbscan, 50)
    lengths, activations = [20] * 400, lumps(6.0, 400)
    labels, seed = METHOD.cluster(activations), 2**32 - 1
    result = projection_stability(activations, labels, make_lives(lengths), method, seed)
    assert asked[:SEEDS] == [(SEED_RECORDS, case, sum(lengths)) for case in (0, 1, 2)]
    assert len(asked) == SEEDS + EMBEDDED_ANEW and {case for _, case, _ in asked[SEEDS:]} == {seed}
    assert all(4_000 < records <= SEED_RECORDS for records, _, _ in asked[SEEDS:])
    assert len(result.over_seeds) == SEEDS and len(result.over_embeddings) == EMBEDDED_ANEW
    assert result.seed_records == SEED_RECORDS and min(result.over_seeds) < 1.0  # planes differ, so what is found does
    asked.clear()
    lives = make_lives(lengths)
    floor = stability_floor(activations, lives, method, seed)
    assert asked[:FLOOR_SEEDS] == [(SEED_RECORDS, case, 8_000) for case in (seed, 0, 1)]
    assert len(asked) == FLOOR_SEEDS + EMBEDDED_ANEW - 1 and len(floor.over_lives) == 2
    assert len(floor.over_seeds) == 3 and len(floor.over_bootstraps) == 12
    assert stability_floor(activations, lives, ClusterMethod(fail, METHOD.hdbscan, 50), 0).over_lives == ()


def test_a_projection_that_makes_the_clusters_itself_is_called_out() -> None:
    """All seeds agree with each other on islands that have nothing to do with the run's: the run is the odd one."""

    def islands(activations: np.ndarray, seed: int, run_records: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        return 20 * rng.integers(0, 3, (len(activations), 1)) + rng.normal(size=(len(activations), 2))

    labels = np.random.default_rng(1).integers(0, 3, 1200)
    method = ClusterMethod(islands, METHOD.hdbscan, 50)
    result = projection_stability(lumps(1.0), labels, make_lives(LENGTHS), method, 1)
    assert max(result.over_seeds) < 0.1 and max(result.over_embeddings) < 0.1
    labels = METHOD.cluster(lumps(14.0)[:, :2])
    fixed = ClusterMethod(lambda activations, seed, run_records: activations[:, :2], METHOD.hdbscan, 50, seeded=False)
    result = projection_stability(lumps(14.0), labels, make_lives(LENGTHS), fixed, 1)
    assert result.reason == "these clusters do not depend on a seed" and result.over_seeds == ()
    assert len(result.over_embeddings) == EMBEDDED_ANEW and min(result.over_embeddings) > 0.9
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
    assert max(floor.over_lives) < 0.75 and exceeds(result.over_embeddings, floor.over_lives)


def test_overlaps_and_what_passes_a_floor() -> None:
    assert exceeds((0.5, 0.6, 0.7), (0.2, 0.3, 0.4)) and not exceeds((0.5, 0.6, 0.7), (0.2, 0.3, 0.5))
    assert not exceeds((0.1,), ())
    rng = np.random.default_rng(0)
    assert np.mean([exceeds(rng.random(3), tuple(rng.random(3))) for _ in range(200)]) < 0.1
    labels, others = np.array([0, 0, 0, 1, 1, -1]), np.array([1, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(overlap(labels, others, 2), [[1 / 6, 2 / 3], [2 / 4, 0]])
    np.testing.assert_allclose(best_overlap(labels, others, 3), [2 / 3, 1 / 2, np.nan])
    np.testing.assert_allclose(best_overlap(labels, np.full(6, -1), 2), [0, 0])
    rng = np.random.default_rng(0)
    passed = [(above_floor(rng.random(16), rng.random((20, 16))) <= 0.05).any() for _ in range(1000)]
    assert 0 < np.mean(passed) < 0.07
    floor = np.linspace(0.2, 0.8, 320).reshape(20, 16)
    values = np.full(16, 0.5)
    values[3] = 0.81
    assert (above_floor(values, floor) <= 0.05).nonzero()[0].tolist() == [3]
    values[3] = 0.8  # as high as the highest
    assert not (above_floor(values, floor) <= 0.05).any()
    assert np.isnan(above_floor(np.array([0.9]), np.empty((0, 0)))).all()
    assert np.isnan(above_floor(np.array([np.nan, 0.9]), floor)).tolist() == [True, False]


def flat_lumps(separation: float, records: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, records)
    return rng.normal(size=(records, 2)) + separation * np.array([[0, 0], [1, 0], [0, 1]])[labels], labels


def test_lumps_apart_are_valid_and_cuts_noise_and_splinters_are_not() -> None:
    points, labels = flat_lumps(12.0, 2 * MOST_RECORDS)
    sampled, _ = cluster_validity(points, labels, 0)
    copied, _ = cluster_validity(np.repeat(points[:200], 3, axis=0), np.repeat(labels[:200], 3), 0)
    assert (sampled.records, copied.records) == (MOST_RECORDS, 200) and min(sampled.dbcv, copied.dbcv) > 0.7
    points, labels = flat_lumps(12.0)
    for alike, count in ((np.zeros(300, np.int64), 1), (np.full(300, -1), 0)):
        overall, clusters = cluster_validity(points, alike, 0)
        assert np.isnan(overall.dbcv) and overall.reason and clusters.shape == (count,)
    splinter = np.where(np.arange(300) < 2, 3, labels)
    assert np.isfinite(cluster_validity(points, splinter, 0)[1]).tolist() == [True, True, True, False]
    apart, clusters = cluster_validity(points, labels, 0)
    cut, _ = cluster_validity(flat_lumps(0.0)[0], labels, 0)
    assert apart.dbcv > 0.7 and (clusters > 0.7).all() and apart.reason == "" and cut.dbcv < -0.3
    half = np.where(np.arange(300) % 2, labels, -1)
    assert 0.2 < cluster_validity(points, half, 0)[0].dbcv < 0.6


def test_persistence_of_a_worked_example_and_of_lives_of_one_record() -> None:
    lives = make_lives([4, 3])
    labels = np.array([0, 0, 1, -1, 1, 1, 0])
    tick = np.array([0, 10, 20, 30, 5, 15, 25])
    overall, (first, second) = persistence(labels, lives, tick)
    assert (first.pairs, first.same) == (2, 1 / 2)  # 0 0, 0 1
    assert (second.pairs, second.same) == (3, 1 / 3)  # 1 -1, 1 1, 1 0
    assert (overall.pairs, overall.same, overall.lag_ticks) == (5, 2 / 5, 10.0)
    overall, (one,) = persistence(np.zeros(3, np.int64), make_lives([1, 1, 1]), np.arange(3))
    assert np.isnan([overall.lag_ticks, overall.same, one.same, one.chance_in_life]).all()
    assert (overall.pairs, one.chance_overall) == (0, 1.0)
    nothing, item = persistence(np.full(4, -1), make_lives([4]), np.arange(4))
    assert item == () and np.isnan(nothing.same) and nothing.pairs == 0


def test_chance_is_the_mean_over_random_orders() -> None:
    rng = np.random.default_rng(0)
    lengths = uneven_lengths(rng, 20)
    lives, labels = make_lives(lengths, seed=1), labels_of(COURSES["smooth"], rng, lengths)
    tick = np.empty(len(labels), np.int64)
    tick[lives.order] = np.concatenate([np.arange(length) for length in lengths])
    overall, item = persistence(labels, lives, tick)
    same, first = np.zeros(3), np.zeros(3)
    for _ in range(300):
        ordered = labels[lives.order[np.lexsort((rng.random(len(labels)), lives.index_in_order))]]
        inside = np.diff(lives.index_in_order) == 0
        for k in range(3):
            first[k] += ((ordered[:-1] == k) & inside).sum()
            same[k] += ((ordered[:-1] == k) & (ordered[1:] == k) & inside).sum()
    for k, one in enumerate(item):
        assert one.chance_in_life == pytest.approx(same[k] / first[k], rel=0.03)
    assert overall.chance_in_life == pytest.approx(same.sum() / first.sum(), rel=0.03)
    shuffled, _ = persistence(rng.permutation(labels), lives, tick)
    assert shuffled.same == pytest.approx(overall.chance_overall, abs=0.04)


UNEVEN = [7, 30, 55, 80, 28, 1] * 20
SPEEDS = np.array([0.0, 0.5, 0.9, -0.6])
MIXING = np.random.default_rng(7).normal(size=(4, 6))


def bursts(lives: Lives, seed: int) -> np.ndarray:
    """Sources with rare bursts that fade at `SPEEDS` within lives, mixed: (B, 6)."""
    rng, states = np.random.default_rng(seed), np.empty((len(lives.index), 4))
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        shocks = rng.exponential(size=(length + 60, 4)) * (rng.random((length + 60, 4)) < 0.05)
        result = np.stack([lfilter([1], [1, -speed], shocks[:, i]) for i, speed in enumerate(SPEEDS)], axis=1)
        states[lives.order[start : start + length]] = result[60:]
    return 3 + states @ MIXING


def autocorrelation(values: np.ndarray, lives: Lives, lag: int) -> np.ndarray:
    """Within lives, around the mean of all records, (columns,)."""
    ordered, life = values[lives.order] - values.mean(axis=0), lives.index_in_order
    same = life[lag:] == life[:-lag]
    return (ordered[lag:] * ordered[:-lag])[same].mean(axis=0) / values.var(axis=0)


@pytest.mark.parametrize("more", [0, 1])  # an even and an odd number of records
def test_mean_and_covariance_are_kept_exactly(more: int) -> None:
    lives = make_lives([*UNEVEN, 10 + more], seed=1)
    states = bursts(lives, 2)
    drawn = gaussian_surrogate(states, lives, np.random.default_rng(3))
    np.testing.assert_allclose(drawn.mean(axis=0), states.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(states.T), rtol=1e-9, atol=1e-9)
    assert np.abs(np.corrcoef(drawn[:, 0], states[:, 0])[0, 1]) < 0.15, "it is another draw, not the states"


def test_autocorrelation_within_lives_is_kept_it_is_gaussian_along_every_source_and_draws_differ() -> None:
    lives = make_lives(UNEVEN, seed=1)
    states = bursts(lives, 2)
    unmix = np.linalg.pinv(MIXING)
    drawn = [gaussian_surrogate(states, lives, np.random.default_rng(seed)) for seed in (3, 4)]
    for lag in (1, 2, 4):
        own, again = (autocorrelation((case - 3) @ unmix, lives, lag) for case in (states, drawn[0]))
        np.testing.assert_allclose(again, own, atol=0.1)
    assert own[2] > 0.4, "there is some to keep"
    assert (kurtosis((states - 3) @ unmix) > 5).all()
    assert (np.abs(kurtosis((drawn[0] - 3) @ unmix)) < 0.6).all()
    assert np.abs(np.corrcoef(drawn[0][:, 0], drawn[1][:, 0])[0, 1]) < 0.2


def test_surrogate_lives_are_in_another_order_and_keep_their_precision() -> None:
    """Neighbours of the dump, such as lives of one world, are not neighbours of the series end to end."""
    lives = make_lives([40] * 40)
    level = np.repeat(np.arange(40) % 2 * 2.0 - 1, 40)[:, None]  # the lives take turns
    drawn = [gaussian_surrogate(level, lives, np.random.default_rng(seed)) for seed in range(40)]
    means = np.reshape(drawn, (40, 40, 40)).mean(axis=2)  # (draws, lives)
    assert np.corrcoef(means[:, :-1].ravel(), means[:, 1:].ravel())[0, 1] > -0.4
    lives = make_lives([5, 6])
    states = np.random.default_rng(0).normal(size=(11, 20))
    double = gaussian_surrogate(states, lives, np.random.default_rng(1))
    single = gaussian_surrogate(states.astype(np.float32), lives, np.random.default_rng(1))
    assert double.dtype == np.float64 and single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-5)
