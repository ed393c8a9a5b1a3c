"""Gradients of a simulation are those of finite differences, and cutting them leaves the policy's own memory."""

import numpy as np
import pytest
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from agent_zoo.soft_path import soft_tick
from analysis.world_model.derivatives import Patterns, Taps, slopes
from analysis.world_model.imagination import imagine
from analysis.world_model.model import WorldModel

LAGS, UNITS = 3, 16


@pytest.fixture(scope="module")
def model(recorded) -> WorldModel:
    """Weights are larger than those of a new model, so that what passes through the world is no rounding error."""
    result = recorded.model(seed=1)
    with torch.no_grad():
        for part in (result.network.say_own, result.network.say_vitals, result.network.enter, result.policy.memory):
            for weight in part.parameters():
                weight.mul_(2)
    return result


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    """One component of the cell, one of the hidden state, one of both."""
    units, nothing = torch.eye(UNITS), torch.zeros(UNITS)
    cell = torch.stack([units[1] + units[2], nothing, units[4]])
    return {LSTM_HIDDEN: torch.stack([nothing, units[3], units[5]]), LSTM_CELL: cell}


def number(tick) -> torch.Tensor:
    return tick.choices.value + tick.choices.log_probabilities["Move.Direction"][:, 1] + tick.memory.cell[-1][:, 6]


def finite_difference(model, start, patterns, inputs: str, lag: int, column: int, far: float = 0.01) -> np.ndarray:
    result = []
    for sign in (1, -1):
        taps = Taps(patterns, start, LAGS + 1, True)
        with torch.no_grad():
            getattr(taps, inputs)[LAGS - lag][:, column] = sign * far
            *_, last = imagine(model, start, LAGS + 1, None, (), taps, taps.shown, soft=True)
            result.append(number(last))
    return ((result[0] - result[1]) / (2 * far)).numpy()


def test_gradients_are_those_of_finite_differences(model, start, patterns) -> None:
    """Of the whole path, through memory and world, in simulations in which nothing is drawn."""
    both = (Taps(patterns, start, LAGS + 1, through) for through in (True, False))
    result, cut = (slopes(model, start, number, taps, 0, soft=True) for taps in both)
    assert result["components"].shape == (len(start), LAGS + 1, 3)
    np.testing.assert_array_equal(result["number"], cut["number"])
    through_world = np.zeros((3, LAGS + 1))
    for column in range(3):
        for lag in range(LAGS + 1):
            wanted = finite_difference(model, start, patterns, "strengths", lag, column)
            # A state that crosses the edge of a rectifier within the step has other differences with half the step.
            half = finite_difference(model, start, patterns, "strengths", lag, column, far=0.005)
            smooth = np.isclose(wanted, half, rtol=0, atol=5e-5)
            assert smooth.sum() >= len(smooth) - 1
            np.testing.assert_allclose(result["components"][smooth, lag, column], wanted[smooth], atol=1e-4)
            through_world[column, lag] = np.abs(cut["components"][:, lag, column] - wanted).max()
    # What passes through the world differs in size with the recorded states, so the largest is asserted.
    assert through_world[:, 0].max() < 1e-4 and through_world.max() > 2e-4
    # Vitals are read in levels, and so are no smooth inputs. Of the others, the one that matters most.
    sizes = np.abs(result["own"]).mean(axis=(0, 1))
    sizes[[*model.network.vitals, *(model.network.position or ())]] = 0
    column = int(sizes.argmax())
    for lag in range(LAGS + 1):
        wanted = finite_difference(model, start, patterns, "own", lag, column)
        # The median, since a step may lead over a kink: another entity that is among the most probable, say.
        assert np.median(np.abs(result["own"][:, lag, column] - wanted)) < 1e-4
        if lag:
            assert np.median(np.abs(cut["own"][:, lag, column] - wanted)) > 1e-3


def test_cut_gradients_are_those_of_the_memory_alone(model, start, patterns) -> None:
    """The policy reads the same simulated scenes again, while only its memory passes gradients on."""
    result = slopes(model, start, number, Taps(patterns, start, LAGS + 1, through_world=False), 5)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        views = []
        for tick in imagine(model, start, LAGS + 1, generator):
            views.append(tick.view.observation)
            torch.rand(len(start), generator=generator)
    taps = Taps(patterns, start, LAGS + 1, True)
    memory = start.memory
    for place, view in enumerate(views):
        taps.begin(memory, place, start.scene.own)
        with model.policy.hooked(taps.hooks(memory)):
            choices, memory = soft_tick(model.policy, view, memory)
    value = choices.value + choices.log_probabilities["Move.Direction"][:, 1] + memory.cell[-1][:, 6]
    np.testing.assert_allclose(result["number"], value.detach().numpy(), atol=1e-5)
    for lag, wanted in enumerate(torch.autograd.grad(value.sum(), taps.strengths)[::-1]):
        np.testing.assert_allclose(result["components"][:, lag], wanted.numpy(), atol=1e-6)
