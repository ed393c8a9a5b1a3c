"""Persistence is what neighbours in a life show, and chance is what random orders give."""

import numpy as np
import pytest

from analysis.statistics.persistence import persistence
from tests.planted_lives import COURSES, labels_of, make_lives, uneven_lengths


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
    overall, each = persistence(labels, lives, tick)
    same, first = np.zeros(3), np.zeros(3)
    for _ in range(300):
        ordered = labels[lives.order[np.lexsort((rng.random(len(labels)), lives.index_in_order))]]
        inside = np.diff(lives.index_in_order) == 0
        for k in range(3):
            first[k] += ((ordered[:-1] == k) & inside).sum()
            same[k] += ((ordered[:-1] == k) & (ordered[1:] == k) & inside).sum()
    for k, one in enumerate(each):
        assert one.chance_in_life == pytest.approx(same[k] / first[k], rel=0.03)
    assert overall.chance_in_life == pytest.approx(same.sum() / first.sum(), rel=0.03)
    shuffled, _ = persistence(rng.permutation(labels), lives, tick)
    assert shuffled.same == pytest.approx(overall.chance_overall, abs=0.04)


def test_lives_of_one_record_have_no_neighbours() -> None:
    overall, (one,) = persistence(np.zeros(3, np.int64), make_lives([1, 1, 1]), np.arange(3))
    assert np.isnan([overall.lag_ticks, overall.same, one.same, one.chance_in_life]).all()
    assert (overall.pairs, one.chance_overall) == (0, 1.0)
    nothing, each = persistence(np.full(4, -1), make_lives([4]), np.arange(4))
    assert each == () and np.isnan(nothing.same) and nothing.pairs == 0
