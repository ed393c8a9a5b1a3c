"""How long things last: on memories whose dynamics are known, in planted groups, and in runs that followed edits."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from nmmo.lib import material
from scipy import stats

from activation_store.directions import Direction, Source, write_directions
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import LSTM, LeakyAverages
from analysis.dynamics.figures import memory_length_figure
from analysis.dynamics.fixed_points import find_fixed_points
from analysis.dynamics.memory_length import (
    BEYOND_MOVED,
    MOVED,
    PHASES,
    SITUATIONS,
    WHOLE_ALIKE,
    MemoryLength,
    _in_random_directions,
    lags_up_to,
    memory_length,
    memory_use,
    situations,
    situations_compared,
)
from analysis.dynamics.perturbations import FollowedEdit, Lasting, compare, distances, lasting, read_followed
from analysis.dynamics.report import _half_life, edit_lines, edit_rows
from analysis.dynamics.stages import Persisting
from analysis.dynamics.tracks import Tracks, Update, tensor
from analysis.runs.run_folder import RunFolder
from analysis.statistics.resampling import Estimate
from common.files import sha256
from tests.command import assert_refuses
from tests.hand_made_lives import HandMade, hand_made
from tests.planted_tracks import nothing, states_of, tracks_of, with_memory

UNITS, LENGTHS = 4, [40, 40, 30, 50]
OPEN, SHUT = 20.0, -20.0


def update_of(memory: LeakyAverages | LSTM) -> Update:
    cell: MemoryCell = "lstm" if isinstance(memory, LSTM) else "ema"
    return Update(with_memory(memory, cell, 1, memory.hidden_size if isinstance(memory, LSTM) else UNITS))


@torch.no_grad()
def lstm_with(forget: float, enter: float) -> LSTM:
    """One unit: c' = sigmoid(forget) c + sigmoid(enter) tanh(4 x), h = tanh(c)."""
    memory = LSTM(1, 1)
    for parameter in memory.parameters():
        parameter.zero_()
    memory.weight_ih_l0[2] = 4.0
    memory.bias_ih_l0[:] = torch.tensor([enter, forget, 0.0, OPEN])
    return memory


def of_noise(update: Update) -> Tracks:
    """Lives of a memory that reads noise."""
    read = np.random.default_rng(0).normal(size=(sum(LENGTHS), UNITS))
    return tracks_of(states_of(update, read, LENGTHS), read, LENGTHS)


def test_a_leaky_average_forgets_in_time_and_an_lstm_that_counts_never() -> None:
    memory = LeakyAverages(UNITS, 1)
    update = update_of(memory)
    tracks = of_noise(update)
    some = tracks.with_ticks_around(2, 24)
    raised = [unit.expand_as for unit in torch.eye(UNITS, dtype=torch.float64)]
    columns = {"hidden": torch.arange(UNITS)}
    result = distances(update, tracks, some, LSTM_HIDDEN, raised, columns, 24, nothing)["hidden"]
    for distance, ticks in zip(result, memory.time_constants[0].tolist(), strict=True):
        one = lasting(distance, tracks.lives.index[some], 0)
        np.testing.assert_allclose(one.left, np.exp(-np.arange(25) / ticks), rtol=1e-4)
        value, low, high = vars(one.half_life).values()
        expected = ticks * np.log(2)
        assert value == (pytest.approx(expected, abs=0.15) if expected < 24 else np.inf)
        assert expected >= 24 or (low <= value + 1e-9 and high >= value - 1e-9)
    once = lasting(result[0], np.zeros(len(some)), 0)
    assert np.isnan(once.half_life.low) and _half_life(once.half_life).endswith("(no interval)")
    # With an open forget gate what was added to the cell stays, so half is never left.
    update = update_of(lstm_with(OPEN, OPEN))
    read = (np.random.default_rng(1).random((sum(LENGTHS), 1)) < 0.2).astype(float)
    state = states_of(update, read, LENGTHS)
    counts = np.concatenate([np.cumsum(own) for own in np.split(read[:, 0], np.cumsum(LENGTHS)[:-1])])
    np.testing.assert_allclose(state[:, 1], counts * np.tanh(4), rtol=1e-6)
    tracks = tracks_of(state, read, LENGTHS, state[:, 1:])
    some = tracks.with_ticks_around(0, 20)
    result = distances(update, tracks, some, LSTM_CELL, [torch.ones_like], {"cell": torch.tensor([1])}, 20, nothing)
    one = lasting(result["cell"][0], tracks.lives.index[some], 0)
    np.testing.assert_allclose(one.left, 1, rtol=1e-5)
    assert np.isinf(one.half_life.value)


def test_half_lives_of_two_lives_have_intervals_that_hold_that_of_many() -> None:
    """Plain percentiles hold it in half of the cases."""

    def left(rng: np.random.Generator, lives: int) -> np.ndarray:
        return rng.normal(0.8, 0.05, (lives, 1)) ** np.arange(14)

    rng = np.random.default_rng(0)
    truth = lasting(left(rng, 20_000), np.zeros(20_000), 0).half_life.value
    ends = [lasting(left(rng, 2), np.arange(2), seed).half_life for seed in range(60)]
    assert np.mean([one.low <= truth <= one.high for one in ends]) > 0.8


@torch.no_grad()
def toggle() -> LSTM:
    """One unit that feeds itself: it settles at a high or at a low value, with an unstable point at 0 between them."""
    memory = lstm_with(0.0, OPEN)
    memory.weight_ih_l0[2] = 0.0
    memory.weight_hh_l0[2] = 3.0
    return memory


def test_fixed_points_of_a_toggle_and_of_a_leaky_average_are_found() -> None:
    update = update_of(toggle())
    starts = np.random.default_rng(2).uniform(-1.5, 1.5, (40, 2))
    points = find_fixed_points(update, np.zeros(1), starts)
    fixed = points.state[points.fixed]
    assert len(fixed) == 3
    low, middle, high = np.argsort(fixed[:, 1])
    # c = c / 2 + tanh(3 tanh(c)): at the ends both tanh are nearly 1.
    np.testing.assert_allclose(fixed[high, 1], 2 * np.tanh(3 * np.tanh(fixed[high, 1])), atol=1e-6)
    np.testing.assert_allclose(fixed[low], -fixed[high], atol=1e-6)
    np.testing.assert_allclose(fixed[middle], 0, atol=1e-6)
    assert points.unstable[points.fixed][[low, middle, high]].tolist() == [0, 1, 0]
    np.testing.assert_allclose(abs(points.eigenvalues[points.fixed][middle, 0]), 3.5, rtol=1e-5)
    below = int((starts[:, 1] < 0).sum())  # the cell's sign decides to which side it goes
    assert points.settled[points.fixed][[low, middle, high]].tolist() == [below, 0, 40 - below]
    one = find_fixed_points(update, np.zeros(1), np.array([[0.5, 0.5]]))
    assert one.settled[0] == 1 and np.isnan(one.half_spread), "of one start there is no spread"
    memory = LeakyAverages(UNITS, 1)
    read = np.array([0.3, -0.2, 0.5, 0.1])
    points = find_fixed_points(update_of(memory), read, np.random.default_rng(3).normal(size=(12, UNITS)))
    expected = memory.readers[0](torch.from_numpy(read).float()).tanh().detach().numpy()
    assert len(points.state) == 1 and points.settled.tolist() == [12] and points.unstable[0] == 0
    np.testing.assert_allclose(points.state[0], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("ticks", "half", "settled"),
    [(150.0, 150 * np.log(2), [12]), (2000.0, 2000 * np.log(2), []), (np.inf, np.inf, [6, 6])],
)
def test_a_memory_that_leaks_slowly_tells_its_starts_apart_for_long(
    ticks: float, half: float, settled: list[int]
) -> None:
    """Two groups of starts look like two attractors at first. Where the cell keeps everything, they are two."""
    keeps = OPEN if np.isinf(ticks) else float(-np.log(np.expm1(1 / ticks)))  # sigmoid(keeps) = exp(-1 / ticks)
    update = update_of(lstm_with(keeps, SHUT))
    starts = np.repeat([[0.5, 0.5], [-0.5, -0.5]], 6, axis=0)
    points = find_fixed_points(update, np.zeros(1), starts)
    assert points.half_spread == (pytest.approx(half, rel=0.02) if np.isfinite(half) else np.inf)
    assert points.settled[points.settled > 0].tolist() == settled


class _Decider:
    """Plays one head from the hidden state: the stand-in is a linear read-out, so that effects are known."""

    def encode(self, observation: object) -> tuple[None, None]:
        return None, None

    def decode(self, hidden: torch.Tensor, candidates: object, observation: object) -> tuple[object, torch.Tensor]:
        return _Distance(hidden), hidden[:, 0]


class _Distance:
    heads = (SimpleNamespace(name="Move.Direction"),)

    def __init__(self, hidden: torch.Tensor) -> None:
        self.hidden = hidden

    def divergence(self, other: "_Distance") -> torch.Tensor:
        return (self.hidden - other.hidden).abs().double()


def test_memory_is_as_long_as_it_was_built() -> None:
    """A cell that keeps 80% of itself in each tick: an observation k ticks ago still adds 0.8^k of what it added."""
    update = update_of(lstm_with(float(np.log(4)), OPEN))
    rng = np.random.default_rng(4)
    read = np.where(np.repeat(np.arange(4) % 2 == 0, LENGTHS), 0.01, -0.01)[:, None] + 1e-4 * rng.normal(size=(160, 1))
    tracks = tracks_of(states_of(update, read, LENGTHS), read, LENGTHS)
    some = tracks.with_ticks_around(25, 0)
    policy, observation = cast(RecurrentPolicy, _Decider()), cast(Any, None)
    situation = np.zeros((len(tracks), len(SITUATIONS)), bool)
    situation[:, 0] = tracks.lives.index % 2 == 0  # lives that read the same
    situation[:, 1] = tracks.lives.index == 0
    result = memory_length(policy, update, tracks, situation, some, observation, 24, 0, nothing)
    assert result.ticks.tolist() == lags_up_to(24).tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    mean = result.value.mean(axis=0)
    slope = np.diff(np.log(mean)) / np.diff(result.ticks)
    np.testing.assert_allclose(np.exp(slope), 0.8, rtol=0.05)
    np.testing.assert_allclose(result.divergence, result.value, atol=1e-6)
    assert (result.whole[:, 1].mean() > mean).all()
    held = result.situation[:, 0]
    assert (held == (result.life % 2 == 0)).all() and (result.age == tracks.place[some]).all()
    assert result.alike[held, 0].mean() < 0.2 * result.whole[held].mean(), "another life's memory holds the same"
    assert np.isnan(result.alike[~held, 0]).all()
    assert np.isnan(result.alike[:, 1:]).all(), "no other life is in the situation"
    assert (np.isnan(result.moved) == np.isnan(result.alike)).all()


def test_random_directions_are_as_long_in_each_state_and_lie_everywhere() -> None:
    way = torch.from_numpy(np.random.default_rng(5).normal(size=(4000, 6)) * [1, 1, 1, 9, 9, 9])
    drawn = _in_random_directions(way, 3, np.random.default_rng(6))
    for own in (slice(0, 3), slice(3, 6)):
        length = way[:, own].norm(dim=1)
        np.testing.assert_allclose(drawn[:, own].norm(dim=1), length)
        cosine = (drawn[:, own] * way[:, own]).sum(dim=1) / length**2
        # On a sphere all cosines are equally likely.
        assert stats.kstest(cosine, "uniform", (-1, 2)).pvalue > 0.001


LIVES, EACH = 40, 30


@pytest.fixture
def length() -> MemoryLength:
    """In behaviour 1 the memory counts three times as much as in behaviour 0; the value goes with age instead."""
    random = np.random.default_rng(0)
    noise = random.uniform(0.5, 1.5, (LIVES * EACH, 3))
    strength = np.where(behaviour() == 1, 3.0, 1.0)
    whole = np.stack([strength * noise[:, 0], age() * noise[:, 1], strength * noise[:, 2]], axis=1)
    effects = whole[:, :, None] * [0.5, 0.1]  # (n, 3, L)
    alike, situation = np.full((len(whole), len(SITUATIONS), 3), np.nan), np.zeros((len(whole), len(SITUATIONS)), bool)
    situation[:, 2] = behaviour() == 1
    situation[:, 3] = behaviour() == 0
    alike[situation[:, 2], 2] = whole[situation[:, 2]] / 2
    moved = np.where(situation[:, :, None], 0.1 * noise[:, None, ::-1], np.nan)
    life = np.repeat(np.arange(LIVES), EACH)
    return MemoryLength(np.array([1, 4]), effects[:, 0], effects[:, 1], whole, alike, moved, situation, life, age())


def behaviour() -> np.ndarray:
    return np.tile(np.repeat([0, 1], EACH // 2), LIVES)


def age() -> np.ndarray:
    return np.tile(np.random.default_rng(1).permutation(EACH), LIVES)


def test_effects_are_those_of_the_group_and_few_lives_have_no_interval(length: MemoryLength) -> None:
    uses = memory_use(length, behaviour())
    rows = {(row.group, row.outcome, row.ticks_ago): row for row in uses if row.replaced not in (WHOLE_ALIKE, MOVED)}
    assert len(rows) == (1 + 2 + 3 + 2) * (2 * 3 + 1) and len(uses) == len(rows) + 3 + 2 * 3
    for group, outcome, wanted in (
        ("all", "kl", 2.0), ("behaviour 0", "kl", 1.0), ("behaviour 1", "kl", 3.0), (PHASES[0], "value", 4.5),
        (PHASES[2], "value", 24.5),
    ):  # fmt: skip
        row = rows[group, outcome, 0]
        assert row.value == pytest.approx(wanted, rel=0.05) and row.low < wanted < row.high
        assert row.replaced == "whole memory" and row.lives == LIVES
        for ticks, left in ((1, 0.5), (4, 0.1)):
            assert rows[group, outcome, ticks].value == pytest.approx(left * row.value)
            assert rows[group, outcome, ticks].replaced == "observation"
    (alike,) = (row for row in uses if row.replaced == WHOLE_ALIKE and row.outcome == "kl")
    assert alike.group == "in combat" and alike.value == pytest.approx(rows["in combat", "kl", 0].value / 2)
    assert rows["in combat", "kl", 0].value == rows["behaviour 1", "kl", 0].value
    assert rows["not in combat", "kl", 4].value == rows["behaviour 0", "kl", 4].value
    assert (rows[PHASES[2], "kl", 0].first_tick, rows[PHASES[2], "kl", 0].last_tick) == (20, 29)
    few = length.life < 4
    some = replace(length, **{name: part[few] for name, part in vars(length).items() if name != "ticks"})
    assert all(np.isnan([row.low, row.high]).all() for row in memory_use(some, behaviour()[few]))


def test_bands_are_drawn_of_as_many_lives_as_have_intervals_in_the_table(length: MemoryLength) -> None:
    for lives, bands in ((LIVES, True), (4, False)):
        few = replace(length, life=length.life % lives)
        shown = Persisting(np.empty(0), [], np.empty(0), {}, few)
        figure = memory_length_figure(shown, "heading")
        assert figure is not None
        drawn = [band.get_paths() for axes in figure.axes for band in axes.collections]
        assert [any(np.isfinite(path.vertices).all() and len(path) for path in paths) for paths in drawn] == [bands] * 2


def test_situations_are_compared_within_lives(length: MemoryLength) -> None:
    alone = length.life < 10  # not in combat only
    length.alike[length.situation[:, 3], 3] = length.whole[length.situation[:, 3]] / 2
    length.alike[alone, 2] = np.nan
    compared = situations_compared(length)
    kl, value, moves = (use for use in compared if use.replaced == WHOLE_ALIKE)
    assert kl.group == "in combat, less not in combat" and kl.outcome == "kl" and kl.lives == LIVES - 10
    assert kl.low < 1 < kl.high and kl.value == pytest.approx(1, rel=0.1) and kl.p < 1e-9
    ages = [age()[(length.life >= 10) & (behaviour() == number)].mean() / 2 for number in (0, 1)]
    assert value.value == pytest.approx(ages[1] - ages[0], rel=0.2) and moves.value == pytest.approx(1, rel=0.1)
    assert {(row.group, row.p) for row in memory_use(length, behaviour()) if np.isfinite(row.p)} == {
        (row.group, row.p) for row in compared
    }
    length.alike[length.life > 13] = np.nan
    assert not situations_compared(length), "four lives that were in both"


def test_what_is_easily_changed_is_told_from_what_the_memory_changes(length: MemoryLength) -> None:
    """In combat the memory counts three times as much. So do random directions, or they do not."""
    in_combat, not_in_combat = length.situation[:, 2], length.situation[:, 3]
    length.alike[not_in_combat, 3] = length.whole[not_in_combat] / 2
    for sensitive, factor in ((1.0, 3.0), (3.0, 1.0)):
        length.moved[in_combat, 2] *= sensitive
        (times,) = (use for use in situations_compared(length) if (use.replaced, use.outcome) == (BEYOND_MOVED, "kl"))
        assert times.value == pytest.approx(factor, rel=0.1)
        assert times.low < factor < times.high and (times.p < 1e-9) == (factor > 1)
    length.moved[in_combat, 2] = 0.0
    times = next(use for use in situations_compared(length) if use.replaced == BEYOND_MOVED)
    assert np.isnan([times.value, times.p]).all(), "nothing that it could be a multiple of"


def test_nothing_is_said_of_situations_that_do_not_matter() -> None:
    """Neither where all counts alike nor, compared with random directions, where everything counts twice as much."""
    random = np.random.default_rng(3)
    difference, times = [], []
    for _ in range(200):
        n = LIVES * EACH
        situation = np.zeros((n, len(SITUATIONS)), bool)
        situation[:, 0] = random.random(n) < 0.3
        situation[:, 1] = ~situation[:, 0]
        life = np.repeat(np.arange(LIVES), EACH)
        whole, moved = random.exponential(1 + np.arange(LIVES)[life, None] / LIVES, (2, n, 3))
        alike, moved = (np.where(situation[:, :, None], effect[:, None], np.nan) for effect in (whole, moved))
        length = MemoryLength(np.array([]), whole, whole, whole, alike, moved, situation, life, life)
        difference += [use.p for use in situations_compared(length) if use.replaced == WHOLE_ALIKE]
        alike[:, 0] *= 2
        moved[:, 0] *= 2
        times += [use.p for use in situations_compared(length) if use.replaced == BEYOND_MOVED]
    for p in (difference, times):
        assert len(p) == 600 and 0.02 < np.mean(np.array(p) < 0.05) < 0.09


def test_situations_are_what_the_game_says_of_the_agent() -> None:
    own = {"food": [19, 20, 90, 90, 90], "water": [90, 20, 19, 90, 90], "latest_combat_tick": [0, 0, 0, 3, 3]}
    records, metadata = hand_made([HandMade(row=[30] * 5, col=[30] * 5, own=own)])
    records.tile[4, 7, 2] = material.Water.index
    holds = dict(zip(SITUATIONS, situations(records, metadata).T.tolist(), strict=True))
    assert holds[SITUATIONS[0]] == [True, False, True, False, False]
    assert holds["in combat"] == [False, False, False, True, True]
    assert holds["water in view"] == [False, False, False, False, True]
    for held, without in zip(SITUATIONS[::2], SITUATIONS[1::2], strict=True):
        assert [not there for there in holds[held]] == holds[without]


POLICY = "a" * 64


def direction(weight: np.ndarray) -> Direction:
    source = Source("independent component", "run", "dump", "planted", POLICY)
    return Direction("ic_1", LSTM_HIDDEN, weight.astype(np.float32), 0.5, "x", 0.25, 2.0, 9, 3, 1, source)


def intervention(folder: Path, **changed: object) -> Path:
    """A finished run that followed an edit, as intervene.py leaves it."""
    file = folder.with_suffix(".safetensors")
    write_directions(file, [direction(np.eye(UNITS)[1])])
    arguments = {"edit": "steer", "direction": "ic_1", "change": False, "directions": str(file), "further": []}
    number = {"value": 3.5, "low": 3.0, "high": None}
    persistence = {"policy": "trained", "what": "hidden", "left": [{"value": 1.0}, {"value": 0.8}], "half_life": number}
    arms = [{"kind": "edit", "dose": 1.5}, {"kind": "edited once", "dose": 1.5}]
    input_ = {"policy": POLICY, "directions": sha256(file)}
    with RunFolder(folder, {"arguments": {**arguments, **changed}, "input": input_, "seed": 0}) as run:
        persistences = [{**persistence, "policy": "untrained"}, persistence]
        run.save_json("effects.json", {"persistences": persistences, "arms": arms, "summary": []})
    return folder


def test_what_an_intervention_measured_is_read_and_other_runs_are_refused(tmp_path: Path) -> None:
    run = str(intervention(tmp_path / "run"))
    (result,) = read_followed(run, POLICY)
    assert result.dose == 1.5 and result.held_at == 0.25 + 1.5 * 2.0
    half_life = result.measured["hidden"].half_life
    assert (half_life.value, half_life.high) == (3.5, np.inf)
    assert result.measured["hidden"].left.tolist() == [1.0, 0.8]
    assert read_followed("", POLICY) == []
    assert_refuses("edited another policy", read_followed, run, "b" * 64)
    assert_refuses("intervene.py", read_followed, str(tmp_path), POLICY)
    cases: tuple[tuple[dict[str, object], str], ...] = (
        ({"edit": "clear", "direction": None}, "made another edit"), ({"direction": "ic_1,ic_2"}, "made another edit"),
        ({"further": [{"edit": "steer"}]}, "made another edit"), ({"change": True}, "--change"),
        ({"along": "covariance"}, "--along"), ({"features": "features.safetensors"}, "sparse feature"),
        ({"directions": "nowhere.safetensors"}, "which is not there"), ({"direction": "ic_9"}, "holds no direction"),
    )  # fmt: skip
    for place, (changed, message) in enumerate(cases):
        assert_refuses(message, read_followed, str(intervention(tmp_path / str(place), **changed)), POLICY)


def test_the_computed_half_life_is_that_of_the_memory() -> None:
    memory = LeakyAverages(UNITS, 1)
    update = update_of(memory)
    tracks = of_noise(update)
    constants = memory.time_constants[0].detach().numpy()
    unit = int(np.argmin(constants))
    along = direction(np.eye(UNITS)[unit])
    edit = FollowedEdit(Path("run"), along, 3.25, 1.5, {"hidden": Lasting(np.ones(1), Estimate(3.5, 3.0, np.inf))})
    states = tensor(tracks.state[:50])
    moved = states + edit.change(states)
    np.testing.assert_allclose(moved.numpy() @ along.weight + along.bias, 3.25)
    others = np.delete(np.arange(UNITS), unit)
    np.testing.assert_allclose(moved.numpy()[:, others], states.numpy()[:, others])
    (result,) = compare([edit], update, tracks, tracks.with_ticks_around(2, 24), 24, 0, lambda _: None)
    computed = result.computed["hidden"]
    np.testing.assert_allclose(computed.left, np.exp(-np.arange(25) / constants[unit]), rtol=1e-4)
    (row,) = edit_rows([result])
    assert row["measured"] == 3.5 and row["computed"] == pytest.approx(constants[unit] * np.log(2), abs=0.15)
    assert "ic_1, dose +1.5, hidden states: measured 3.5 (3.0 to not reached)" in edit_lines([result])[-1]
    update = update_of(lstm_with(0.0, OPEN))
    rng = np.random.default_rng(5)
    read = rng.normal(size=(160, 1))
    tracks = tracks_of(states_of(update, read, LENGTHS), read, LENGTHS)
    along = replace(direction(np.ones(1)), layer=LSTM_HIDDEN)
    edit = FollowedEdit(Path("run"), along, 0.9, 1.5, {})
    (result,) = compare([edit], update, tracks, tracks.with_ticks_around(2, 8), 8, 0, lambda _: None)
    assert result.computed.keys() == {"hidden"}
