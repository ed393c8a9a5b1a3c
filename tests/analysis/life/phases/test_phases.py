"""Shares over life, and a test of phases that finds what was planted and nothing else."""

import numpy as np
import pytest

from analysis.labels import NOISE
from analysis.life.phases.label_sequences import phase_edges, tick_edges
from analysis.life.phases.phases import association, shares
from analysis.statistics.resampling import Bootstrap
from tests.planted_labels import sequences_of

BOOTSTRAP = Bootstrap(resamples=200, seed=1)


def bouts(rng: np.random.Generator, ticks: int, states: int = 3, longest: int = 30) -> list[int]:
    """A life of autocorrelated labels that know nothing of time: bouts of random length, the first one begun before."""
    life: list[int] = []
    while len(life) < 2 * ticks + longest:
        life += [int(rng.integers(states))] * int(rng.integers(1, longest))
    start = int(rng.integers(longest, ticks + longest))
    return life[start : start + ticks]


def test_sequences_are_lives_in_order_with_noise_last() -> None:
    result = sequences_of([[0, 0, NOISE], [2, 2], [NOISE] * 4], episodes=[1, 0, 1], shortest=3)
    assert result.labels.tolist() == [0, NOISE] and result.lengths.tolist() == [3, 4]
    assert result.state.tolist() == [0, 0, 1, 1, 1, 1, 1] and result.tick.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert result.units == ((1, (0, 1)),)
    assert result.counts().tolist() == [[2, 1], [0, 4]]


def test_each_life_weighs_equally_however_long() -> None:
    output = sequences_of([[0] * 10 + [1] * 10, [1] * 200])
    result = shares(output, phase_edges(output, 2), np.linspace(0, 1, 3), BOOTSTRAP)
    np.testing.assert_allclose(result.mean, [[0.5, 0.5], [0.0, 1.0]])
    assert result.lives.tolist() == [2, 2]


def test_a_life_shorter_than_the_bins_is_spread_over_them() -> None:
    output = sequences_of([[0, 1, 1]])
    result = shares(output, phase_edges(output, 6), np.linspace(0, 1, 7), BOOTSTRAP)
    np.testing.assert_allclose(result.mean[:, 0], [1, 1, 0, 0, 0, 0])
    assert np.isnan(result.low).all()
    uneven = shares(output, phase_edges(output, 2), np.linspace(0, 1, 3), BOOTSTRAP)
    np.testing.assert_allclose(uneven.mean[:, 0], [2 / 3, 0])


def test_shares_of_ticks_are_of_the_lives_that_have_them() -> None:
    output = sequences_of([[0] * 4, [1] * 10])
    edges = np.array([0.0, 2.0, 6.0, 10.0])
    result = shares(output, tick_edges(output, edges), edges, BOOTSTRAP)
    np.testing.assert_allclose(result.mean[:, 0], [0.5, 0.5, 0.0])
    assert result.lives.tolist() == [2, 2, 1]


def test_time_in_a_state_is_what_turning_the_labels_gives() -> None:
    """Against the slow way: turn the labels by hand, cut every record into a thousand parts, and count."""
    rng = np.random.default_rng(3)
    output = sequences_of([bouts(rng, ticks) for ticks in (1, 2, 7, 40, 41)])
    shift = rng.integers(output.lengths)
    edges = phase_edges(output, 8)
    for state in range(len(output.labels)):
        result = output.time_in(state, edges, shift)
        for life, (start, length) in enumerate(zip(output.starts, output.lengths, strict=True)):
            turned = np.roll(output.state[start : start + length], -shift[life]) == state
            fine = np.repeat(turned, 1000).reshape(8, -1).sum(axis=1) / 1000
            np.testing.assert_allclose(result[life], fine, atol=1e-9)


def test_bands_hold_the_truth_as_often_as_they_say() -> None:
    """Lives drawn from episodes that differ: the 95% band of a share holds the true one in most repetitions."""
    rng, held = np.random.default_rng(4), 0
    for _ in range(60):
        episodes = np.repeat(np.arange(12), 8)
        chance = np.clip(rng.normal(0.5, 0.15, 12), 0, 1)[episodes]
        lives = [[int(rng.random() < p)] * 10 for p in chance]
        output = sequences_of(lives, episodes.tolist())
        result = shares(output, phase_edges(output, 2), np.linspace(0, 1, 3), BOOTSTRAP)
        held += bool(result.low[0, 1] <= 0.5 <= result.high[0, 1])
    assert 50 <= held <= 60


def test_a_planted_phase_is_found() -> None:
    rng = np.random.default_rng(5)
    lives = [bouts(rng, 60, states=2) + [2] * 20 for _ in range(30)]
    output = sequences_of(lives)
    result = association(output, phase_edges(output, 20), 199, seed=0)
    assert result.p == pytest.approx(1 / 200) and result.explained > 0.4 > 5 * result.chance
    assert result.state_q[2] < 0.05 and result.state_explained[2] > 0.9


def test_a_whole_entropy_is_explained_where_time_decides_everything() -> None:
    output = sequences_of([[0] * 10 + [1] * 10] * 6)
    assert association(output, phase_edges(output, 4), 19, seed=0).explained == pytest.approx(1)


@pytest.mark.slow
def test_autocorrelated_labels_without_phases_are_found_as_seldom_as_they_should() -> None:
    """The circular shifts keep the clinging together of labels, so p is below 0.1 in about a tenth of all cases."""
    rng = np.random.default_rng(6)
    p = []
    for _ in range(120):
        output = sequences_of([bouts(rng, int(rng.integers(50, 120))) for _ in range(8)])
        p.append(association(output, phase_edges(output, 10), 59, seed=int(rng.integers(1000))).p)
    assert 0.02 <= np.mean(np.array(p) <= 0.1) <= 0.2


def test_a_planted_tick_is_found_though_lives_differ_in_length() -> None:
    rng = np.random.default_rng(7)
    lives = []
    for _ in range(40):
        life = bouts(rng, int(rng.integers(60, 200)), states=2)
        life[30:40] = [2] * 10
        lives.append(life)
    output = sequences_of(lives)
    by_tick = association(output, tick_edges(output, np.arange(0, 201, 10.0)), 199, seed=0)
    by_phase = association(output, phase_edges(output, 20), 199, seed=0)
    assert by_tick.p < 0.01 and by_tick.state_explained[2] > by_phase.state_explained[2]


@pytest.mark.parametrize("life", [[NOISE] * 30, [0] * 30, [0]], ids=["all noise", "one cluster", "one tick"])
def test_one_label_only_explains_nothing(life: list[int]) -> None:
    output = sequences_of([life, life])
    for edges in (phase_edges(output, 4), tick_edges(output, np.linspace(0, len(life), 5))):
        result = association(output, edges, 19, seed=0)
        assert np.isnan(result.explained) and result.p == 1 and (result.state_p == 1).all()
