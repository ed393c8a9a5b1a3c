"""Shares over life, dwell times and transitions: what was planted is found, nothing else, and figures are whole."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from activation_store.reader import read_dump, read_metadata
from activation_store.schema import Records
from analysis.figures.style import NOISE_COLOUR, cluster_colour
from analysis.labels import NOISE
from analysis.life.life_figure import MOST_COLUMNS, label_colour, life_figure
from analysis.life.phases.figure import life_phase_figure, transitions_figure
from analysis.life.phases.transitions import (
    against_orders,
    association,
    dwelling,
    lagged_persistence,
    memory_of_two,
    shares,
    transitions,
)
from analysis.life.phases.visits import (
    VISITS_A_SPAN,
    LabelSequences,
    phase_edges,
    random_orders,
    spans,
    tick_edges,
    ticks_of_spans,
    visits,
)
from analysis.life.timeline import FEATURES_SHOWN, TickClusters, Timeline, timeline_of
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import Bootstrap
from tests.analysis.figures.test_figures import texts
from tests.planted import planted_dump
from tests.planted_labels import (
    FREQUENCIES,
    chain,
    drifting_odds,
    favoured_pair,
    labels_at_random,
    lasting_labels,
    memory_of_two_steps,
    sequences_of,
)
from tests.recorded import Recording

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


def test_lives_that_others_have_too_have_the_states_of_others() -> None:
    """Numbers of each state are read by its place, also where a label occurs in other lives only."""
    every, long = (sequences_of([[1, 1], [0, 2, 2, NOISE], [3] * 4], shortest=ticks) for ticks in (1, 3))
    result = every.of_lives(long)
    assert result.labels.tolist() == long.labels.tolist() == [0, 2, 3, NOISE]
    assert result.state.tolist() == long.state.tolist() == [0, 1, 1, 3, 2, 2, 2, 2]
    fewer = sequences_of([[0, 2, 2, 2], [3] * 4], episodes=[1, 2])
    fewer = replace(fewer, key=long.key)
    assert fewer.of_lives(long).state.tolist() == [0, 1, 1, 1, 2, 2, 2, 2]
    assert len(fewer.of_lives(long).labels) == 4
    assert every.of_lives(replace(long, key=long.key[:0])).state.shape == (0,)


def test_each_life_weighs_equally_and_ticks_are_of_lives_that_have_them() -> None:
    output = sequences_of([[0] * 10 + [1] * 10, [1] * 200])
    result = shares(output, phase_edges(output, 2), np.linspace(0, 1, 3), BOOTSTRAP)
    np.testing.assert_allclose(result.mean, [[0.5, 0.5], [0.0, 1.0]])
    assert result.lives.tolist() == [2, 2]
    output = sequences_of([[0] * 4, [1] * 10])
    edges = np.array([0.0, 2.0, 6.0, 10.0])
    result = shares(output, tick_edges(output, edges), edges, BOOTSTRAP)
    np.testing.assert_allclose(result.mean[:, 0], [0.5, 0.5, 0.0])
    assert result.lives.tolist() == [2, 2, 1]
    output = sequences_of([[0, 1, 1]])
    names = ("state", "tick", "starts", "lengths", "key")
    empty = replace(output, **{name: getattr(output, name)[:0] for name in names})
    assert tick_edges(empty, np.array([0.0, 10.0])).shape == (0, 2)


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
    output = sequences_of([[0] * 10 + [1] * 10] * 6)  # time decides everything
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


def test_one_label_only_explains_nothing() -> None:
    for life in ([NOISE] * 30, [0] * 30, [0]):
        output = sequences_of([life, life])
        for edges in (phase_edges(output, 4), tick_edges(output, np.linspace(0, len(life), 5))):
            result = association(output, edges, 19, seed=0)
            assert np.isnan(result.explained) and result.p == 1 and (result.state_p == 1).all()
            assert np.isnan(shares(output, edges, np.linspace(0, 1, 5), BOOTSTRAP).low).all(), "of one episode"


@pytest.fixture(scope="module")
def chains() -> LabelSequences:
    rng = np.random.default_rng(0)
    to = np.array([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]])
    return sequences_of([chain(rng, int(rng.integers(30, 90)), [0.05, 0.2, 0.5], to) for _ in range(200)])


def test_visits_are_cut_at_lives_and_at_missing_ticks() -> None:
    output = sequences_of([[0, 0, 1], [1, 1]])
    gap = replace(output, tick=np.array([0, 1, 2, 0, 5]))
    result = visits(output)
    assert result.ticks.tolist() == [2, 1, 2] and result.left.tolist() == [True, False, False]
    result = visits(gap)
    assert result.ticks.tolist() == [2, 1, 1, 1] and result.left.tolist() == [True, False, False, False]
    assert result.begun.tolist() == [True, True, True, False] and result.stretch.tolist() == [1, 1, 2, 3]


def test_a_visit_lasts_at_least_a_tick_also_if_leaving_had_no_memory() -> None:
    output = sequences_of([[0, 1, 1, 1, 0, 1, 1, 0, 1]] * 3)
    result = dwelling(output, visits(output), BOOTSTRAP)
    assert result.mean.tolist() == [1, 3] and result.memoryless.tolist() == [1, 2]


def test_mean_dwell_times_are_right_and_chance_is_what_shuffling_gives(
    chains: LabelSequences,
) -> None:
    """The naive mean over whole visits would say about 13 for the first state instead of 20."""
    result = dwelling(chains, visits(chains), BOOTSTRAP)
    np.testing.assert_allclose(result.mean, [20, 5, 2], rtol=0.12)
    assert (result.low < [20, 5, 2]).all() and (result.high > [20, 5, 2]).all()
    np.testing.assert_allclose(result.median, result.memoryless, atol=2)
    output = visits(chains)
    assert output.ticks[(output.state == 0) & output.left].mean() < 16
    assert (result.visits - result.censored).sum() == output.left.sum() and result.ticks.sum() == len(chains.state)
    rng, means = np.random.default_rng(1), []
    for _ in range(30):
        order = np.lexsort((rng.random(len(chains.state)), chains.life))
        shuffled = replace(chains, state=chains.state[order])
        means.append(dwelling(shuffled, visits(shuffled), BOOTSTRAP).mean)
    np.testing.assert_allclose(result.chance, np.mean(means, axis=0), rtol=0.03)


def test_persistence_falls_to_chance_with_the_lag_and_is_chance_without_memory(chains: LabelSequences) -> None:
    near, far = lagged_persistence(chains, 1, BOOTSTRAP), lagged_persistence(chains, 40, BOOTSTRAP)
    same = ((np.diff(chains.state) == 0) & (np.diff(chains.life) == 0)).sum()
    assert near.pairs == (chains.lengths - 1).sum() and near.same == pytest.approx(same / near.pairs)
    assert near.low < near.beyond_chance < near.high and near.beyond_chance > 0.6
    assert abs(far.beyond_chance) < 0.15
    rng = np.random.default_rng(2)
    without_memory = sequences_of([rng.integers(0, 3, 60).tolist() for _ in range(60)])
    result = lagged_persistence(without_memory, 1, BOOTSTRAP)
    assert result.low <= 0 <= result.high and abs(result.beyond_chance) < 0.05


def test_planted_successions_are_found(chains: LabelSequences) -> None:
    result = transitions(chains, visits(chains), 199, seed=0)
    assert result.share[0, 1] == 1 and result.share[1, 2] == 1 and result.count[0, 2] == 0
    assert result.share[2, 0] == pytest.approx(0.5, abs=0.06)
    for case in (result.given_age, result.any_age):
        assert case.q[0, 1] < 0.05 and case.q[1, 0] < 0.05 and case.q[1, 2] < 0.05
        assert np.isnan(np.diag(case.q)).all()
    assert (np.diag(result.count) == 0).all()


@pytest.mark.slow
def test_at_most_one_in_twenty_dumps_without_order_has_a_finding() -> None:
    """Frequencies alone decide what follows what. `benchmarks.null_rates` has 200 runs a case, and intervals."""
    pairs, memories, runs = [], [], 10
    for name, frequencies in FREQUENCIES.items():
        states = len(frequencies)
        for run in range(runs):
            output = labels_at_random(np.random.default_rng([31, run]), frequencies, lives=10)
            result = transitions(output, visits(output), 99, seed=run)
            memory = memory_of_two(visits(output), states, 99, seed=run)
            pairs += [name] * sum(bool((q <= LEVEL).any()) for q in (result.given_age.q, result.any_age.q))
            memories += [name] * sum(bool((q <= LEVEL).any()) for q in (memory.given_age.q, memory.any_age.q))
            assert states > 2 or np.isnan(result.any_age.q).all()
    assert len(pairs) <= 2 * LEVEL * runs * len(FREQUENCIES), pairs
    assert len(memories) <= 2 * LEVEL * runs * len(FREQUENCIES), memories


@pytest.mark.parametrize("states", [3, 4, 5, 6])
def test_one_favoured_pair_is_singled_out_among_all(states: int) -> None:
    """99 orders suffice: counted for each pair alone, no p-value among 30 could be small enough to be corrected."""
    output = favoured_pair(np.random.default_rng([32, states]), states, times=4, lives=40)
    result = transitions(output, visits(output), 99, seed=0)
    for against in (result.given_age, result.any_age):
        assert against.q[0, 1] <= LEVEL and result.share[0, 1] > against.chance[0, 1] + 0.05


def test_pairs_are_judged_by_the_orders_of_all_pairs_together() -> None:
    """Against the slow way: deviances of every pair in every order, ranked in one list."""
    rng = np.random.default_rng(33)
    weights = np.array([[0, 0.7, 0.3], [0.02, 0, 0.98], [0.5, 0.5, 0]])
    counts = rng.multinomial([40, 60, 25], weights, size=(50, 3))
    result = against_orders(counts)
    share = counts / counts.sum(axis=2, keepdims=True)
    chance = share.mean(axis=0)
    np.testing.assert_allclose(result.chance, chance)
    rows = counts.sum(axis=2, keepdims=True)
    scale = ((counts - rows * chance) ** 2 / np.where(np.eye(3), 1, rows * chance * (1 - chance))).mean(axis=0)
    off = ~np.eye(3, dtype=bool)
    deviance = np.zeros(counts.shape)
    for order, a, b in np.argwhere(np.broadcast_to(off, counts.shape)):
        c, n = counts[order, a, b], counts[order, a].sum()
        deviance[order, a, b] = -2 * (binom.logpmf(c, n, chance[a, b]) - binom.logpmf(c, n, c / n))
    values = (deviance / np.where(off, scale, 1))[:, off]  # (orders, pairs)
    further = np.array([(values >= value - 1e-9).sum() for value in values[0]]) / len(counts)
    as_many = np.array([(values[0] >= value - 1e-9).sum() for value in values[0]])
    q = [min(1, (further / as_many)[values[0] <= value + 1e-9].min()) for value in values[0]]
    np.testing.assert_allclose(result.q[off], q)
    np.testing.assert_allclose(result.p[off], (values >= values[0] - 1e-9).mean(axis=0))
    assert np.isnan(result.q[~off]).all() and np.isnan(result.p[~off]).all()


def test_orders_are_as_likely_as_when_all_are_listed() -> None:
    """Of all orders of the inner visits those in which no state follows itself are drawn equally often."""
    life = [0, 1, 0, 2, 0, 1, 2, 1]
    result = visits(sequences_of([life, [0, 1, 0, 1], [2], [1, 2]]))
    drawn = np.array([state.copy() for state in random_orders(result, result.stretch, 1_500, seed=0)])
    assert (drawn[:, 8:] == result.state[8:]).all()  # no other order has the same ends
    listed = {(0, *inner, 1) for inner in itertools.permutations(life[1:-1])}
    possible = sorted(item for item in listed if all(a != b for a, b in itertools.pairwise(item)))
    orders, times = np.unique(drawn[:, :8], axis=0, return_counts=True)
    assert orders.tolist() == [list(item) for item in possible] and len(possible) > 10
    np.testing.assert_allclose(times / len(drawn), 1 / len(possible), atol=0.03)


def test_spans_cut_stretches_evenly_and_keep_their_visits_and_ticks() -> None:
    life = [state for state in (0, 1, 2) * 12 for _ in range(2)]
    result = visits(sequences_of([life, [0, 1], [0], life[:50]]))
    span = spans(result)
    assert (np.diff(span) >= 0).all() and len(np.unique(result.stretch * 1000 + span)) == span[-1] + 1
    assert np.bincount(span).tolist() == [9, 9, 9, 9, 2, 1, 8, 8, 9] and np.ptp(np.bincount(span)[:4]) <= 1
    assert np.bincount(span)[:4].min() >= VISITS_A_SPAN - 1 and ticks_of_spans(result).sum() == result.ticks.sum()
    fixed = np.append(True, np.diff(span) > 0) | np.append(np.diff(result.stretch) > 0, True)
    moved = np.zeros(len(span), bool)
    for state in random_orders(result, span, 200, seed=0):
        assert (np.bincount(span * 3 + state) == np.bincount(span * 3 + result.state)).all()
        moved |= state != result.state
    assert not moved[fixed].any() and moved[: np.argmax(result.stretch > 1)][~fixed[: len(life) // 2]].all()


@pytest.mark.parametrize("test", ["pairs", "memory"])
def test_states_that_drift_over_a_life_have_no_order_given_age(test: str) -> None:
    """Common at the same age, they seem to follow each other: without age, nearly every dump has a finding."""
    given = anyhow = 0
    for run in range(5):
        output = drifting_odds(np.random.default_rng([36, run]), states=5 if test == "pairs" else 3)
        seen = visits(output)
        result = transitions(output, seen, 99, seed=run) if test == "pairs" else memory_of_two(seen, 3, 99, seed=run)
        given += bool((result.given_age.q <= LEVEL).any())
        anyhow += bool((result.any_age.q <= LEVEL).any())
    assert given <= 1 and anyhow >= 4


def test_where_lives_begin_is_not_what_follows_what() -> None:
    """Rare states begin two of three lives: moving first visits about took that for a finding in 39% of such dumps."""
    result = 0
    for run in range(10):
        output = lasting_labels(np.random.default_rng([35, run]), FREQUENCIES["three states"])
        result += bool((transitions(output, visits(output), 99, seed=run).any_age.q <= LEVEL).any())
    assert result == 0


@pytest.mark.parametrize("states", [3, 4, 5, 6])
def test_memory_of_order_two_is_found(states: int) -> None:
    """More visits lead back to where they came from than would by chance: single steps are even, two are not."""
    back = 1 / (states - 1) + 0.25
    output = memory_of_two_steps(np.random.default_rng([34, states]), states, back)
    result = memory_of_two(visits(output), states, 199, seed=0)
    assert (result.any_age.q <= LEVEL).all() and (result.explained > result.any_age.chance).all()
    sure = result.given_age.q <= LEVEL  # of many states few excursions are of one age: some are missed
    assert sure.all() if states <= 4 else sure.any()


def test_a_chain_of_order_one_has_no_memory_of_order_two() -> None:
    rng, to = np.random.default_rng(9), np.array([[0, 0.9, 0.1], [0.3, 0, 0.7], [0.8, 0.2, 0]])
    output = sequences_of([chain(rng, 80, [0.3, 0.5, 0.7], to) for _ in range(40)])
    assert (transitions(output, visits(output), 99, seed=0).any_age.q[0, 1:] < 0.05).all()
    assert (memory_of_two(visits(output), 3, 199, seed=0).any_age.q > 0.05).all()


def test_two_states_have_nothing_to_test_and_one_has_no_transition() -> None:
    rng = np.random.default_rng(6)
    output = sequences_of([rng.integers(0, 2, 40).tolist() for _ in range(10)])
    pairs, memory = transitions(output, visits(output), 19, seed=0), memory_of_two(visits(output), 2, 19, seed=0)
    for case in (pairs.given_age, pairs.any_age, memory.given_age, memory.any_age):
        assert np.isnan(case.q).all()
    output = sequences_of([[0] * 5, [0] * 3])
    result, dwell = transitions(output, visits(output), 19, seed=0), dwelling(output, visits(output), BOOTSTRAP)
    assert result.count.tolist() == [[0]] and np.isnan(result.given_age.q).all() and np.isnan(result.any_age.q).all()
    assert np.isnan(dwell.mean[0]) and np.isnan(dwell.median[0]) and dwell.censored[0] == 2
    assert np.isnan(lagged_persistence(output, 1, BOOTSTRAP).beyond_chance)
    assert lagged_persistence(output, 100, BOOTSTRAP).pairs == 0


HEADING = "a_policy_with_a_rather_long_name_and_$dollars$_200M_seed_7: agent 123, episode 45"
BANDS = Bootstrap(resamples=100)


@pytest.fixture(scope="module")
def records(recording: Recording) -> Records:
    return read_dump(recording.dump, layers=[])


@pytest.fixture(scope="module")
def timeline(records: Records, recording: Recording) -> Timeline:
    return timeline_of(records, read_metadata(recording.dump))


def longest(timeline: Timeline) -> Timeline:
    return timeline.life(int(np.argmax(timeline.lives.lengths)))


def strip_of(life: Timeline, states: int) -> TickClusters:
    label = np.arange(len(life)) % (states + 1) - 1
    return label, np.arange(len(life)) % 10 == 0


def test_the_timeline_has_every_column_at_every_tick(timeline: Timeline, records: Records) -> None:
    assert len(timeline) == len(records) and set(timeline.columns) == {*FEATURES_SHOWN, "reward", "value"}
    assert all(np.isfinite(column).all() for column in timeline.columns.values())
    order = np.lexsort((records.tick, records.episode, records.agent_id, records.env_id))
    np.testing.assert_array_equal(timeline.columns["value"], records.value[order])
    life = timeline.life(5)
    number = timeline.number_of((life.records.env_id[0], life.records.agent_id[0], life.records.episode[0]))
    assert number == 5 and (np.diff(life.records.tick) == 1).all() and life.events.record.max() < len(life)
    with pytest.raises(ValueError, match="no life"):
        timeline.number_of((0, 1, 999))


@pytest.mark.parametrize("states", [0, 3, 30])
def test_a_life_shows_all_panels(timeline: Timeline, states: int) -> None:
    life = longest(timeline)
    written = texts(life_figure(life, HEADING, "64 ticks", strip_of(life, states)))
    for word in ("health", "food", "water", "level", "items", "gold", "value", "moving", "drank", "labels of the run"):
        assert word in written
    assert ("and 19 rarer" in written) == (states == 30) and any(text.startswith("noise (") for text in written)
    assert label_colour(3) == cluster_colour(3) and label_colour(NOISE) == NOISE_COLOUR, "those of the analysis"


def test_a_life_of_one_tick_one_that_lacks_ticks_and_a_very_long_one(timeline: Timeline, recording: Recording) -> None:
    life, metadata = longest(timeline), read_metadata(recording.dump)
    for ticks in ([3], [3, 4, 5, 20, 21, 40]):
        some = timeline_of(life.records.take(np.isin(life.records.tick, ticks)), metadata).life(0)
        assert "health" in texts(life_figure(some, HEADING, "short", strip_of(some, 2)))
    planted = planted_dump(agents=1, episodes=1, ticks=MOST_COLUMNS + 900, layers={"action_decoder": 2})
    long = timeline_of(planted.records, planted.metadata).life(0)
    assert "moving" in texts(life_figure(long, HEADING, f"{len(long)} ticks", strip_of(long, 3)))


def test_what_is_not_recorded_is_left_out_and_said(records: Records, recording: Recording) -> None:
    """Like a dump of the original tools: no reward, no value, and no labels from the engine."""
    nothing = np.full(len(records), np.nan, np.float32)
    original = replace(records, reward=nothing, value=nothing, columns={})
    life = longest(timeline_of(original, read_metadata(recording.dump)))
    written = texts(life_figure(life, HEADING, "64 ticks"))
    assert "reward" not in written and any("does not record reward and value" in text for text in written)
    half = replace(records, value=nothing)
    written = texts(life_figure(longest(timeline_of(half, read_metadata(recording.dump))), HEADING, "64 ticks"))
    assert "reward" in written and "value" not in written


RANDOM = np.random.default_rng(0)
LIVES = {
    "normal": [bouts(RANDOM, 50) for _ in range(12)], "one life": [bouts(RANDOM, 50)],
    "one label": [[0] * 20, [0] * 30], "all noise": [[NOISE] * 20, [NOISE] * 30],
    "40 clusters": [bouts(RANDOM, 400, states=40, longest=5) for _ in range(6)],
    "lives of one tick": [[0], [1], [0]],
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case == "40 clusters" else ()) for case in LIVES]
)
def test_phases_and_transitions_draw(case: str) -> None:
    output = sequences_of(LIVES[case], list(range(len(LIVES[case]))))
    edges = phase_edges(output, 5)
    result = shares(output, edges, np.linspace(0, 1, 6), BANDS)
    tested = association(output, edges, 19, seed=0)
    written = texts(life_phase_figure(result, tested, output.labels, "share of the life elapsed", HEADING, "lives"))
    assert ("29 rarer" in written or "28 rarer" in written) == (case == "40 clusters")
    seen = visits(output)
    moves, dwell = transitions(output, seen, 19, seed=0), dwelling(output, seen, BANDS)
    texts(transitions_figure(moves, dwell, output.labels, HEADING, "from one tick to the next"))
