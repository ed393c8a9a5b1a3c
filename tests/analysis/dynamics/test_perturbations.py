"""How long things last, on memories whose dynamics are known: leaky averages, a toggle, a counter."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memories.leaky_average import LeakyAverages
from agent_zoo.memories.lstm_memory import LSTM
from analysis.dynamics.fixed_points import find_fixed_points
from analysis.dynamics.jacobians import Probes
from analysis.dynamics.memory_length import lags_up_to, memory_length
from analysis.dynamics.perturbations import distances, lasting
from analysis.dynamics.update import Update
from tests.planted_tracks import states_of, tracks_of

UNITS, LENGTHS = 4, [40, 40, 30, 50]
OPEN, SHUT = 20.0, -20.0


def nothing(share: float) -> None:
    pass


def policy_of(memory: LeakyAverages | LSTM, cell: str) -> RecurrentPolicy:
    units = SimpleNamespace(hidden_size=memory.hidden_size if isinstance(memory, LSTM) else UNITS)
    return cast(RecurrentPolicy, SimpleNamespace(memory=memory, layers=1, cell=cell, policy=units))


@torch.no_grad()
def lstm_with(forget: float, enter: float) -> LSTM:
    """One unit: c' = sigmoid(forget) c + sigmoid(enter) tanh(4 x), h = tanh(c)."""
    memory = LSTM(1, 1)
    for parameter in memory.parameters():
        parameter.zero_()
    memory.weight_ih_l0[2] = 4.0
    memory.bias_ih_l0[:] = torch.tensor([enter, forget, 0.0, OPEN])
    return memory


def test_a_leaky_average_forgets_with_the_half_life_that_it_was_built_with() -> None:
    memory = LeakyAverages(UNITS, 1)
    update = Update(policy_of(memory, "ema"))
    rng = np.random.default_rng(0)
    read = rng.normal(size=(sum(LENGTHS), UNITS))
    tracks = tracks_of(states_of(update, read, LENGTHS), read, LENGTHS)
    some = tracks.with_ticks_around(2, 24)
    found = distances(update, tracks, some, Probes(LSTM_HIDDEN, np.eye(UNITS), np.eye(UNITS)), 24, nothing)
    for number, ticks in enumerate(memory.time_constants[0].tolist()):
        each = lasting(found[number], tracks.lives.index[some], 0)
        np.testing.assert_allclose(each.left, np.exp(-np.arange(25) / ticks), rtol=1e-4)
        expected = ticks * np.log(2)
        if expected < 24:
            assert each.half_life.value == pytest.approx(expected, abs=0.15)
            assert (
                each.half_life.low <= each.half_life.value + 1e-9 and each.half_life.high >= each.half_life.value - 1e-9
            )
        else:
            assert np.isinf(each.half_life.value)


def test_an_lstm_that_counts_never_forgets() -> None:
    """Its forget gate is open: what was added to the cell stays, so half is never left."""
    update = Update(policy_of(lstm_with(OPEN, OPEN), "lstm"))
    read = (np.random.default_rng(1).random((sum(LENGTHS), 1)) < 0.2).astype(float)
    state = states_of(update, read, LENGTHS)
    counts = np.concatenate(
        [np.cumsum(read[end - length : end, 0]) for end, length in zip(np.cumsum(LENGTHS), LENGTHS, strict=True)]
    )
    np.testing.assert_allclose(state[:, 1], counts * np.tanh(4), rtol=1e-6)
    tracks = tracks_of(state, read, LENGTHS, state[:, 1:])
    some = tracks.with_ticks_around(0, 20)
    found = distances(update, tracks, some, Probes(LSTM_CELL, np.ones((1, 1)), np.ones((1, 1))), 20, nothing)
    each = lasting(found[0], tracks.lives.index[some], 0)
    np.testing.assert_allclose(each.left, 1, rtol=1e-5)
    assert np.isinf(each.half_life.value)


@torch.no_grad()
def toggle() -> LSTM:
    """One unit that feeds itself: it settles at a high or at a low value, with an unstable point at 0 between them."""
    memory = lstm_with(0.0, OPEN)
    memory.weight_ih_l0[2] = 0.0
    memory.weight_hh_l0[2] = 3.0
    return memory


def test_the_fixed_points_of_a_toggle_are_found_with_their_stability() -> None:
    update = Update(policy_of(toggle(), "lstm"))
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
    assert points.reached.sum() == 40


def test_the_fixed_point_of_a_leaky_average_is_its_input() -> None:
    memory = LeakyAverages(UNITS, 1)
    update = Update(policy_of(memory, "ema"))
    read = np.array([0.3, -0.2, 0.5, 0.1])
    points = find_fixed_points(update, read, np.random.default_rng(3).normal(size=(12, UNITS)))
    expected = memory.readers[0](torch.from_numpy(read).float()).tanh().detach().numpy()
    assert len(points.state) == 1 and points.reached.tolist() == [12] and points.unstable[0] == 0
    np.testing.assert_allclose(points.state[0], expected, atol=1e-4)


class _Decider:
    """Plays one head from the hidden state: the stand-in is a linear read-out, so that effects are known."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def encode(self, observation: object) -> tuple[None, None]:
        return None, None

    def decode(self, hidden: torch.Tensor, candidates: object, observation: object) -> tuple[object, torch.Tensor]:
        return _Distance(hidden), hidden[:, 0]


class _Distance:
    def __init__(self, hidden: torch.Tensor) -> None:
        self.hidden = hidden

    def divergence(self, other: "_Distance") -> torch.Tensor:
        return (self.hidden - other.hidden).abs().double()


def test_memory_is_as_long_as_it_was_built() -> None:
    """A cell that keeps 80% of itself in each tick: an observation k ticks ago still adds 0.8^k of what it added."""
    update = Update(policy_of(lstm_with(float(np.log(4)), OPEN), "lstm"))
    rng = np.random.default_rng(4)
    read = np.where(np.repeat(np.arange(4) % 2 == 0, LENGTHS), 0.01, -0.01)[:, None] + 1e-4 * rng.normal(size=(160, 1))
    tracks = tracks_of(states_of(update, read, LENGTHS), read, LENGTHS)
    some = tracks.with_ticks_around(25, 0)
    found = memory_length(
        cast(RecurrentPolicy, _Decider()),
        update,
        tracks,
        some,
        cast("object", None),
        24,
        0,
        nothing,  # type: ignore[arg-type]
    )
    assert found.ticks.tolist() == lags_up_to(24).tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    mean = found.value.mean(axis=0)
    slope = np.diff(np.log(mean)) / np.diff(found.ticks)
    np.testing.assert_allclose(np.exp(slope), 0.8, rtol=0.05)
    np.testing.assert_allclose(found.divergence, found.value, atol=1e-6)
    assert (found.whole[:, 1].mean() > mean).all()
