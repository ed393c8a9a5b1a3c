"""The memory by component: patterns are found again, and attribution goes to the component that matters, alone."""

import numpy as np
import pytest
import torch

from activation_store.directions import Direction, Directions, Source
from agent_zoo.base import RecurrentPolicy
from analysis.attribution.components import chosen_components, fitted_components
from analysis.attribution.methods import attribute, average_baseline
from analysis.attribution.settings import Method
from analysis.attribution.targets import ReadOut
from analysis.attribution.windows import LifeWindows
from tests.analysis.attribution.test_methods import COUNT, METHODS, by, policy_and_windows
from tests.command import assert_refuses
from tests.recorded_policy import RecordedPolicy

UNITS = 16
SOURCE = Source("independent component", "run", "dump", "small", "a" * 64)


def direction(name: str, weight: np.ndarray, layer: str = "lstm_cell") -> Direction:
    return Direction(name, layer, weight.astype(np.float32), 0.0, "x", 0.0, 1.0, 9, 3, 1, SOURCE)


def flat(windows: LifeWindows) -> dict[str, np.ndarray]:
    return {"lstm_hidden": windows.memory.hidden[0].numpy(), "lstm_cell": windows.memory.cell[0].numpy()}


@torch.no_grad()
def keeping(policy: RecurrentPolicy) -> RecurrentPolicy:
    """The same policy with an LSTM that keeps its cell state and takes nothing in."""
    for parameter in policy.lstm.parameters():
        parameter.zero_()
    policy.lstm.bias_ih_l0[:UNITS] = -50.0  # nothing in
    policy.lstm.bias_ih_l0[UNITS : 2 * UNITS] = 50.0  # nothing forgotten
    return policy


def varied(windows: LifeWindows) -> LifeWindows:
    generator = torch.Generator().manual_seed(0)
    for state in (windows.memory.hidden, windows.memory.cell):
        state.copy_(torch.randn(state.shape, generator=generator))
    return windows


def test_patterns_of_planted_sources_are_found_again(recorded: RecordedPolicy) -> None:
    policy, _, _ = policy_and_windows(recorded, 1)
    random = np.random.default_rng(0)
    sources, mixing = random.laplace(size=(4000, 3)), random.normal(size=(3, UNITS))
    states = sources @ mixing + 5.0
    read_outs = np.linalg.pinv(mixing).T  # what an analysis writes: rows that undo the mixing
    chosen = [direction(f"ic_{number + 1}", row) for number, row in enumerate(read_outs)]
    recorded_states = {"lstm_hidden": np.zeros((4000, UNITS)), "lstm_cell": states}
    result = fitted_components(chosen, policy, recorded_states)
    np.testing.assert_allclose(result.pattern[:, UNITS:].numpy(), mixing, atol=1e-4)
    assert not result.pattern[:, :UNITS].any() and not result.read_out[:, :UNITS].any()
    memory = torch.from_numpy(np.concatenate([np.zeros_like(states), states], axis=1).astype(np.float32))
    np.testing.assert_allclose(result.strengths(memory).numpy(), sources - sources.mean(axis=0), atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_attribution_goes_to_the_component_that_is_read(recorded: RecordedPolicy, method: Method) -> None:
    policy, windows, _ = policy_and_windows(recorded, 1)
    policy, windows = keeping(policy), varied(windows)
    chosen = [direction(f"ic_{unit + 1}", 2.0 * np.eye(UNITS)[unit]) for unit in range(4)]
    # Whitened states, so that patterns are the units themselves.
    cell = windows.memory.cell[0]
    left, _, right = torch.linalg.svd(cell[:, :4] - cell[:, :4].mean(dim=0), full_matrices=False)
    cell[:, :4] = (left @ right) * 3 + 1.0
    components = fitted_components(chosen, policy, flat(windows))
    target = ReadOut("ic_3", chosen[2])
    baseline = average_baseline(policy, windows, components)
    maps = attribute(by(method, noise=1e-6), policy, windows, target, baseline, components)
    strengths = 2.0 * (cell[:, 2] - cell[:, 2].mean())
    np.testing.assert_allclose(maps.components[:, 2].numpy(), strengths.numpy(), atol=1e-3)
    assert maps.components[:, [0, 1, 3]].abs().max() < 1e-3


def test_a_complete_basis_shares_out_the_memory(recorded: RecordedPolicy) -> None:
    policy, windows, _ = policy_and_windows(recorded)
    windows = varied(windows)
    chosen = [direction(f"unit_{unit}", np.eye(UNITS)[unit]) for unit in range(UNITS)]
    states = {name: np.random.default_rng(0).normal(size=(500, UNITS)) for name in ("lstm_hidden", "lstm_cell")}
    components = fitted_components(chosen, policy, states)
    value = ReadOut("hidden", direction("all", np.ones(UNITS), "lstm_hidden"))
    baseline = average_baseline(policy, windows, components)
    maps = attribute(by("integrated"), policy, windows, value, baseline, components)
    cells = maps.memory[:, UNITS:].sum(dim=1)
    assert cells.abs().max() > 1e-3
    np.testing.assert_allclose(maps.components.sum(dim=1).numpy(), cells.numpy(), atol=1e-5)
    parts = (maps.tiles, maps.entities, maps.own, maps.inventory, maps.task, maps.memory)
    total = sum(one.flatten(1).sum(dim=1) for one in parts)  # components are no further part
    np.testing.assert_allclose((total - maps.change).numpy(), maps.error.numpy(), atol=1e-5)
    assert maps.components.shape == (COUNT, UNITS)


def test_components_are_named_and_refused(recorded: RecordedPolicy) -> None:
    policy, _, _ = policy_and_windows(recorded, 1)
    eye = np.eye(UNITS)
    there = [direction("ic_1", eye[0]), direction("ic_2", eye[1]), direction("food", eye[2], "encoder_output")]
    file = Directions(recorded.dump / "directions.safetensors", tuple(there))
    assert [one.name for one in chosen_components("ic", file, policy, "a" * 64)] == ["ic_1", "ic_2"]
    assert [one.name for one in chosen_components("ic_2,ic_1", file, policy, "a" * 64)] == ["ic_2", "ic_1"]
    for text, checkpoint, message in (
        ("ic_3", "a", "holds no direction 'ic_3'"), ("food", "a", "is no state of the memory"),
        ("ic", "b", "belongs to another checkpoint"), (",", "a", "name at least one"),
    ):  # fmt: skip
        assert_refuses(message, chosen_components, text, file, policy, checkpoint * 64)
    states = {name: np.random.default_rng(0).normal(size=(50, UNITS)) for name in ("lstm_hidden", "lstm_cell")}
    alike = [there[0], direction("twin", 2 * eye[0])]
    assert_refuses("combinations of each other", fitted_components, alike, policy, states)
