"""Density-based validity is high for lumps apart, low for a cut through one; persistence is exact against shuffling."""

import numpy as np
import pytest

from analysis.statistics.cluster_validity import MOST_RECORDS, cluster_validity, persistence
from tests.planted_lives import COURSES, labels_of, make_lives, uneven_lengths


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


def test_a_worked_example() -> None:
    lives = make_lives([4, 3])
    labels = np.array([0, 0, 1, -1, 1, 1, 0])
    tick = np.array([0, 10, 20, 30, 5, 15, 25])
    overall, (first, second) = persistence(labels, lives, tick)
    assert (first.pairs, first.same) == (2, 1 / 2)  # 0 0, 0 1
    assert (second.pairs, second.same) == (3, 1 / 3)  # 1 -1, 1 1, 1 0
    assert (overall.pairs, overall.same, overall.lag_ticks) == (5, 2 / 5, 10.0)


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


def test_lives_of_one_record_have_no_neighbours() -> None:
    overall, (one,) = persistence(np.zeros(3, np.int64), make_lives([1, 1, 1]), np.arange(3))
    assert np.isnan([overall.lag_ticks, overall.same, one.same, one.chance_in_life]).all()
    assert (overall.pairs, one.chance_overall) == (0, 1.0)
    nothing, item = persistence(np.full(4, -1), make_lives([4]), np.arange(4))
    assert item == () and np.isnan(nothing.same) and nothing.pairs == 0
