"""Derivatives of a memory's update: against finite differences, and on memories whose dynamics are known."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import CELLS, LeakyAverages
from analysis.dynamics.fixed_points import layer_jacobian, slow_modes, spectra, time_constants
from analysis.dynamics.jacobians import Probes, mean_jacobians, sign_agreement
from analysis.dynamics.perturbations import lagged_jacobians
from analysis.dynamics.tracks import Tracks, Update, evenly, tensor
from tests.command import assert_refuses
from tests.planted_tracks import nothing, states_of, tracks_of, with_memory

UNITS, LENGTHS = 4, [12, 20, 16]


def policy_of(cell: MemoryCell, layers: int = 1, gain: float = 1.0) -> RecurrentPolicy:
    """The parts of a policy that its update needs, with a memory of random weights."""
    torch.manual_seed(2)
    memory = CELLS[cell](UNITS, layers)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.mul_(gain).add_(0.2 * torch.randn_like(parameter))
    return with_memory(memory, cell, layers, UNITS)


def played(update: Update, seed: int = 0) -> Tracks:
    """Lives of a memory that reads noise."""
    rng = np.random.default_rng(seed)
    read = rng.normal(size=(sum(LENGTHS), UNITS))
    result = states_of(update, read, LENGTHS)
    return tracks_of(result, read, LENGTHS, result[:, update.place(update.states[-1])])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["lstm", "gru", "ema"])
def test_jacobians_are_what_finite_differences_say(cell: MemoryCell, layers: int) -> None:
    update = Update(policy_of(cell, layers))
    tracks, step = played(update), 1e-6
    some = tracks.with_ticks_around(3, 1)[:5]
    state, read = tensor(tracks.state[some]), tensor(tracks.read[tracks.ahead(some, 1)])
    result = update.jacobian(state, read)
    np.testing.assert_allclose(update(state, read).numpy(), tracks.state[tracks.ahead(some, 1)], atol=1e-12)
    for number in range(update.size):
        change = torch.zeros(update.size, dtype=torch.float64)
        change[number] = step
        expected = (update(state + change, read) - update(state - change, read)) / (2 * step)
        np.testing.assert_allclose(result[:, :, number].numpy(), expected.numpy(), atol=1e-8)


@pytest.mark.parametrize("layer", [LSTM_CELL, LSTM_HIDDEN])
def test_components_move_later_components_as_edits_of_the_memory_would(layer: str) -> None:
    update, lags, step = Update(policy_of("lstm", gain=2.0)), 4, 1e-5
    tracks = played(update)
    rng = np.random.default_rng(1)
    patterns = rng.normal(size=(3, UNITS))
    probes = Probes(layer, np.linalg.pinv(patterns).T, patterns)
    some = tracks.with_ticks_around(2, lags)
    result = lagged_jacobians(update, tracks, some, probes, lags, nothing)
    np.testing.assert_allclose(result[:, 0], np.tile(np.eye(3), (len(some), 1, 1)), atol=1e-6)
    for j in range(3):
        ends = []
        for sign in (1, -1):
            change = tensor(np.tile(sign * step * patterns[j], (len(some), 1)))
            state = update.edited(layer, tensor(tracks.state[some]), change)
            for lag in range(1, lags + 1):
                state = update(state, tensor(tracks.read[tracks.ahead(some, lag)]))
            ends.append(state[:, update.place(layer)].numpy() @ probes.read_outs.T)
        np.testing.assert_allclose(result[:, lags, :, j], (ends[0] - ends[1]) / (2 * step), atol=1e-4)


def test_an_edited_cell_has_the_hidden_state_of_an_intervention() -> None:
    update = Update(policy_of("lstm"))
    tracks = played(update)
    state = tensor(tracks.state[[5, 9]])
    change = tensor(np.full((2, UNITS), 0.3))
    hidden, cell = update.edited(LSTM_CELL, state, change).split(UNITS, dim=1)
    own_hidden, own_cell = state.split(UNITS, dim=1)
    np.testing.assert_allclose(cell.numpy(), (own_cell + 0.3).numpy())
    np.testing.assert_allclose(hidden.numpy(), (own_hidden / own_cell.tanh() * cell.tanh()).numpy(), atol=1e-9)
    assert_refuses("feed-forward", Update, cast(RecurrentPolicy, SimpleNamespace(memory=None)))
    message = "lstm_cell is not a state of this policy's memory, which has: lstm_hidden"
    assert_refuses(message, Update(policy_of("gru")).place, LSTM_CELL)


def test_leaky_averages_and_a_planted_matrix_have_their_time_constants() -> None:
    """A linear dynamical system: each unit forgets by itself, with a known time constant."""
    policy = policy_of("ema")
    memory = policy.memory
    assert isinstance(memory, LeakyAverages)
    built = np.sort(memory.time_constants[0].detach().numpy())[::-1]
    update = Update(policy)
    tracks = played(update)
    some = tracks.with_ticks_around(0, 1)
    values = spectra(update, tracks, some, nothing)
    np.testing.assert_allclose(time_constants(values), np.tile(built, (len(some), 1)), rtol=1e-4)
    modes, read_outs = slow_modes(layer_jacobian(update, tracks, some, LSTM_HIDDEN, nothing), UNITS)
    np.testing.assert_allclose(time_constants(modes), built, rtol=1e-4)
    slowest = int(memory.time_constants[0].argmax())
    assert abs(read_outs[0, slowest]) == pytest.approx(1) and np.abs(read_outs[0]).sum() == pytest.approx(1)
    # Two real modes and a pair that turns; the read-out of a mode does not see the others.
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(4, 4))
    blocks = np.zeros((4, 4))
    blocks[0, 0], blocks[3, 3] = 0.95, 0.2
    blocks[1:3, 1:3] = 0.8 * np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    modes, read_outs = slow_modes(basis @ blocks @ np.linalg.inv(basis), 4)
    assert [round(abs(mode), 6) for mode in modes] == [0.95, 0.8, 0.2]
    assert np.angle(modes[1]) == pytest.approx(0.5)
    np.testing.assert_allclose(read_outs[0] @ basis[:, 1:], 0, atol=1e-9)
    np.testing.assert_allclose(time_constants(np.array([0.95, 1.0, 1.2, 0.0])), [19.4957, np.inf, np.inf, 0], rtol=1e-5)


def test_signs_agree_where_components_move_each_other() -> None:
    """Correlations and Jacobians of a linear system, x' = A x + noise, in two behaviours with opposite signs."""
    rng, components, count = np.random.default_rng(4), 8, 400
    moves = rng.normal(size=(2, components, components))
    label = np.arange(count) % 2
    jacobians = np.stack([np.tile(np.eye(components), (count, 1, 1)), moves[label]], axis=1)
    r = np.stack([np.stack([np.eye(components), np.tanh(one)]) for one in moves])
    q = np.where(np.abs(r) > 0.5, 0.001, 0.9)
    rows = sign_agreement(r, q, jacobians, label, 0)
    assert [(row.behaviour, row.lag) for row in rows] == [(0, 1), (1, 1)]
    for row in rows:
        assert row.share == 1 and row.significant == 1 and row.p < 0.01 and row.pairs > 5
        assert 0.4 < row.shuffled_components < 0.6
        assert row.shuffled_behaviours < 0.9
    again = sign_agreement(-r, q, jacobians, label, 0)
    assert all(row.share == 0 and row.p > 0.9 for row in again)
    assert np.isnan(mean_jacobians(jacobians, label, 3)[2]).all()
    three = (np.concatenate([array, array[:1]]) for array in (r, q))
    unknown = sign_agreement(*three, jacobians, label, 0)[2]
    assert np.isnan([unknown.p, unknown.significant]).all(), "nothing is known of a behaviour without states"
    assert unknown.pairs == 0, "so it has no part in the mean over behaviours"


def test_ticks_are_counted_within_lives_and_left_out_everywhere() -> None:
    for count, most in ((350, 200), (90, 48), (5, 48), (0, 3)):
        kept = evenly(np.arange(count), most)
        assert len(kept) == len(set(kept.tolist())) == min(count, most)
        assert not count or (kept[0] == 0 and kept[-1] >= count - 1 - count / most)
    tracks = tracks_of(np.zeros((6, 1)), np.zeros((6, 1)), [2, 4])
    assert tracks.ahead(np.array([0, 1, 2, 5]), 1).tolist() == [1, -1, 3, -1]
    assert tracks.ahead(np.array([1, 2, 5]), -1).tolist() == [0, -1, 4]
    assert tracks.with_ticks_around(1, 1).tolist() == [3, 4]
