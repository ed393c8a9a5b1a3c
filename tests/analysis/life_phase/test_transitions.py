"""Dwell times, persistence and transitions, against chains whose answers are known."""

import numpy as np
import pytest

from analysis.life_phase.label_sequences import LabelSequences
from analysis.life_phase.transitions import dwelling, lagged_persistence, transitions, visits
from analysis.statistics.resampling import Bootstrap
from tests.analysis.life_phase.test_phases import sequences_of

BOOTSTRAP = Bootstrap(resamples=200, seed=1)


def chain(rng: np.random.Generator, ticks: int, leave: list[float], to: np.ndarray) -> list[int]:
    """A Markov chain: each state is left with its own chance, for another by its row of `to`."""
    states = [int(rng.integers(len(leave)))]
    while len(states) < ticks:
        now = states[-1]
        states.append(int(rng.choice(len(leave), p=to[now])) if rng.random() < leave[now] else now)
    return states


@pytest.fixture(scope="module")
def chains() -> LabelSequences:
    rng = np.random.default_rng(0)
    to = np.array([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]])
    return sequences_of([chain(rng, int(rng.integers(30, 90)), [0.05, 0.2, 0.5], to) for _ in range(200)])


def test_visits_are_cut_at_lives_and_at_missing_ticks() -> None:
    told = sequences_of([[0, 0, 1], [1, 1]])
    gap = LabelSequences(told.labels, told.state, np.array([0, 1, 2, 0, 5]), told.starts, told.lengths, told.key)
    found = visits(told)
    assert found.ticks.tolist() == [2, 1, 2] and found.left.tolist() == [True, False, False]
    found = visits(gap)
    assert found.ticks.tolist() == [2, 1, 1, 1] and found.left.tolist() == [True, False, False, False]
    assert found.begun.tolist() == [True, True, True, False] and found.stretch.tolist() == [1, 1, 2, 3]


def test_mean_dwell_times_are_right_though_lives_cut_visits_off(chains: LabelSequences) -> None:
    """The naive mean over whole visits would say about 13 for the first state instead of 20."""
    found = dwelling(chains, visits(chains), BOOTSTRAP)
    np.testing.assert_allclose(found.mean, [20, 5, 2], rtol=0.12)
    assert (found.low < [20, 5, 2]).all() and (found.high > [20, 5, 2]).all()
    np.testing.assert_allclose(found.median, found.memoryless, atol=2)
    told = visits(chains)
    assert told.ticks[(told.state == 0) & told.left].mean() < 16
    assert (found.visits - found.censored).sum() == told.left.sum() and found.ticks.sum() == len(chains.state)


def test_chance_dwell_is_what_shuffling_ticks_gives(chains: LabelSequences) -> None:
    rng, means = np.random.default_rng(1), []
    for _ in range(30):
        order = np.lexsort((rng.random(len(chains.state)), chains.life))
        shuffled = LabelSequences(
            chains.labels, chains.state[order], chains.tick, chains.starts, chains.lengths, chains.key
        )
        means.append(dwelling(shuffled, visits(shuffled), BOOTSTRAP).mean)
    found = dwelling(chains, visits(chains), BOOTSTRAP)
    np.testing.assert_allclose(found.chance, np.mean(means, axis=0), rtol=0.03)


def test_persistence_falls_to_chance_with_the_lag(chains: LabelSequences) -> None:
    near, far = lagged_persistence(chains, 1, BOOTSTRAP), lagged_persistence(chains, 40, BOOTSTRAP)
    same = sum(
        int((chains.state[s : s + n - 1] == chains.state[s + 1 : s + n]).sum())
        for s, n in zip(chains.starts, chains.lengths, strict=True)
    )
    assert near.pairs == (chains.lengths - 1).sum() and near.same == pytest.approx(same / near.pairs)
    assert near.low < near.beyond_chance < near.high and near.beyond_chance > 0.6
    assert abs(far.beyond_chance) < 0.15


def test_labels_without_memory_do_not_persist() -> None:
    rng = np.random.default_rng(2)
    told = sequences_of([rng.integers(0, 3, 60).tolist() for _ in range(60)])
    found = lagged_persistence(told, 1, BOOTSTRAP)
    assert found.low <= 0 <= found.high and abs(found.beyond_chance) < 0.05


def test_planted_successions_are_found(chains: LabelSequences) -> None:
    found = transitions(chains, visits(chains), 199, seed=0)
    assert found.share[0, 1] == 1 and found.share[1, 2] == 1 and found.count[0, 2] == 0
    assert found.share[2, 0] == pytest.approx(0.5, abs=0.06)
    assert found.q[0, 1] < 0.05 and found.q[1, 0] < 0.05 and found.q[1, 2] < 0.05
    assert (np.diag(found.count) == 0).all() and np.isnan(np.diag(found.q)).all()


def test_random_successions_are_not_found() -> None:
    """Visits in random order, two like ones never side by side but by chance: few pairs look like findings."""
    rng, p = np.random.default_rng(3), []
    for _ in range(20):
        lives = [np.repeat(rng.integers(0, 4, 25), rng.integers(1, 6, 25)).tolist() for _ in range(10)]
        told = sequences_of(lives)
        found = transitions(told, visits(told), 99, seed=int(rng.integers(1000)))
        p += found.p[np.isfinite(found.p)].tolist()
    assert np.mean(np.array(p) <= 0.1) < 0.2


def test_one_state_has_no_transitions_and_no_end() -> None:
    told = sequences_of([[0] * 5, [0] * 3])
    found, dwell = transitions(told, visits(told), 19, seed=0), dwelling(told, visits(told), BOOTSTRAP)
    assert found.count.tolist() == [[0]] and np.isnan(found.q).all()
    assert np.isnan(dwell.mean[0]) and np.isnan(dwell.median[0]) and dwell.censored[0] == 2
    assert np.isnan(lagged_persistence(told, 1, BOOTSTRAP).beyond_chance)
    assert lagged_persistence(told, 100, BOOTSTRAP).pairs == 0
