"""A policy's steps, the effects of hooks between them, and its layers and memory read while it runs."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import agent_zoo
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, layer_names, memory_names
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import ALL_LAYERS, capture, memory_from_layers, run_with_layers
from agent_zoo.checkpoint import load_checkpoint
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout, PackedObservation, pack
from common.user_error import UserError
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.tiny_policies import save_policies

UNITS = 8
AGENTS = 30
AGENT_LAYERS = [("neurips23_start_kit", 1), ("yaofeng", 3), ("takeru", 0)]
LENGTHS = torch.tensor([3, 1, 5, 2])
EDITED = torch.arange(AGENTS) < AGENTS // 2


@pytest.fixture(params=AGENT_LAYERS, ids=lambda param: param[0])
def policy(request, layout: ObservationLayout) -> RecurrentPolicy:
    return build(*request.param, layout)


@pytest.fixture
def deep(layout: ObservationLayout) -> RecurrentPolicy:
    """Three LSTM layers, and a decoder that reads rectified units."""
    return build("yaofeng", 3, layout)


def build(agent: str, layers: int, layout: ObservationLayout) -> RecurrentPolicy:
    torch.manual_seed(0)
    module = agent_zoo.load(agent)
    policy = module.Recurrent(module.Policy(layout, hidden_size=UNITS), layers).double()
    for name, parameter in policy.memory.named_parameters() if policy.memory else ():
        if name.startswith("bias"):
            nn.init.normal_(parameter)
    return policy


def some_memory(policy: RecurrentPolicy, agents: int = AGENTS) -> MemoryState:
    generator = torch.Generator().manual_seed(7)
    shape = (policy.layers, agents, UNITS)
    return MemoryState(*(torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2)))


def lstm_cell_of(policy: RecurrentPolicy, layer: int) -> nn.LSTMCell:
    """Return one layer alone as torch's cell for a single tick."""
    cell = nn.LSTMCell(UNITS, UNITS).double()
    for parameter, weight in zip(cell.parameters(), policy.lstm.all_weights[layer], strict=True):
        parameter.data = weight.data
    return cell


def log_probabilities(distribution) -> torch.Tensor:
    return torch.cat(distribution.log_probabilities, dim=1)


def one_by_one(
    policy: RecurrentPolicy, segments: PackedObservation, lengths: torch.Tensor, memory: MemoryState
) -> tuple[torch.Tensor, torch.Tensor]:
    """Play segments tick by tick; return values, (rows,), and log-probabilities of all options, (rows, options)."""
    values, by_option, first = [], [], 0
    for segment, length in enumerate(lengths.tolist()):
        state = memory.take(torch.tensor([segment]))
        for row in range(first, first + length):
            distribution, value, state = policy(segments.take(torch.tensor([row])), state)
            values.append(value)
            by_option.append(log_probabilities(distribution))
        first += length
    return torch.cat(values), torch.cat(by_option)


@torch.no_grad()
def test_watching_every_layer_changes_nothing(policy: RecurrentPolicy, observation: PackedObservation) -> None:
    memory, watched = some_memory(policy), {}
    plain, value, after = policy(observation, memory)
    hooks = {name: lambda tensor, name=name: watched.update({name: tensor}) for name in layer_names(policy.layers)}
    with policy.hooked(hooks):
        distribution, watched_value, watched_after = policy(observation, memory)
    assert torch.equal(log_probabilities(plain), log_probabilities(distribution)) and torch.equal(value, watched_value)
    assert torch.equal(after.hidden, watched_after.hidden) and torch.equal(after.cell, watched_after.cell)
    encoded, candidates = policy.encode(observation)
    hidden, _ = policy.remember(encoded, memory)
    expected = {"encoder_output": encoded, "action_decoder": policy.policy.decoder_input(hidden)}
    for kind, states in ((LSTM_HIDDEN, after.hidden), (LSTM_CELL, after.cell)):
        expected |= dict(zip(memory_names(kind, policy.layers), states, strict=True))
    assert watched.keys() == expected.keys() == policy.layer_units.keys()
    for name, tensor in expected.items():
        assert torch.equal(watched[name], tensor) and tensor.shape == (AGENTS, policy.layer_units[name]), name
    decoded, _ = policy.decode(hidden, candidates, observation)
    assert torch.equal(log_probabilities(decoded), log_probabilities(plain))


@torch.no_grad()
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", [LSTM_HIDDEN, LSTM_CELL])
def test_an_edited_state_is_kept_and_reaches_all_that_depends_on_it(
    deep: RecurrentPolicy, observation: PackedObservation, kind: str, layer: int
) -> None:
    """Compared with torch's own cells; agents that were not edited keep every bit."""
    memory = some_memory(deep)
    encoded, _ = deep.encode(observation)
    _, plain = deep.remember(encoded, memory)
    replacement = torch.where(EDITED.unsqueeze(1), 0.3, (plain.hidden if kind == LSTM_HIDDEN else plain.cell)[layer])
    with deep.hooked({memory_names(kind, 3)[layer]: lambda _: replacement}):
        read, after = deep.remember(encoded, memory)
    assert torch.equal(read, after.hidden[-1])
    hidden, cell = plain.hidden[layer].clone(), plain.cell[layer].clone()
    if kind == LSTM_HIDDEN:
        hidden = replacement
    else:
        hidden = hidden / cell.tanh() * replacement.tanh()  # o * tanh(c) with the output gate of this tick
        cell = replacement
    for above in range(layer + 1, 4):
        torch.testing.assert_close(after.hidden[above - 1], hidden)
        torch.testing.assert_close(after.cell[above - 1], cell)
        if above < 3:
            hidden, cell = lstm_cell_of(deep, above)(hidden, (memory.hidden[above], memory.cell[above]))
    for mine, plains in ((after.hidden, plain.hidden), (after.cell, plain.cell)):
        assert torch.equal(mine[:, ~EDITED], plains[:, ~EDITED]) and torch.equal(mine[:layer], plains[:layer])
    assert not torch.isclose(after.hidden[-1][EDITED], plain.hidden[-1][EDITED]).all(dim=1).any()


@torch.no_grad()
def test_replacing_what_lies_around_the_memory(policy: RecurrentPolicy, observation: PackedObservation) -> None:
    memory = some_memory(policy)
    plain, _, plain_after = policy(observation, memory)
    with policy.hooked({"encoder_output": torch.neg}):
        _, _, after = policy(observation, memory)
        encoded, _ = policy.encode(observation)
    assert torch.equal(encoded, -policy.encode(observation)[0])
    expected = policy.remember(encoded, memory)[1]
    assert torch.equal(after.hidden, expected.hidden) and torch.equal(after.cell, expected.cell)

    other = torch.randn(AGENTS, UNITS, dtype=torch.float64)
    with policy.hooked({"action_decoder": lambda _: other}):
        distribution, value, after = policy(observation, memory)
    assert torch.equal(after.hidden, plain_after.hidden)
    direct, direct_value = policy.policy.decode_actions(other, policy.encode(observation)[1], observation)
    assert torch.equal(log_probabilities(distribution), log_probabilities(direct)) and torch.equal(value, direct_value)
    assert not torch.equal(log_probabilities(distribution), log_probabilities(plain))


def test_a_gradient_flows_through_a_state_replaced_by_its_own_numbers(deep: RecurrentPolicy, observation) -> None:
    leaf: list[torch.Tensor] = []

    def leave(tensor: torch.Tensor) -> torch.Tensor:
        leaf.append(tensor.detach().clone().requires_grad_())
        return leaf[0]

    with deep.hooked({"lstm_cell_1": leave}):
        _, value, _ = deep(observation, some_memory(deep))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert (gradient != 0).any(dim=1).all()


@torch.no_grad()
def test_hooks_of_several_blocks_run_in_order_and_never_outlive_their_block(deep: RecurrentPolicy, observation) -> None:
    memory, calls = some_memory(deep), []
    name = "lstm_cell"

    def called(label: str, factor: float = 1.0):
        return lambda tensor: calls.append((label, tensor.clone())) or tensor * factor

    with pytest.raises(RuntimeError, match="boom"), deep.hooked({name: called("outer", 2.0)}):
        with deep.hooked({name: called("inner")}):
            deep(observation, memory)
        twin = copy.deepcopy(deep)
        deep(observation, memory)
        raise RuntimeError("boom")
    assert [label for label, _ in calls] == ["outer", "inner", "outer"]
    assert torch.equal(calls[1][1], 2 * calls[0][1])
    deep(observation, memory)
    twin(observation, memory)
    with (
        pytest.raises(UserError, match="no layer 'nonsense'"),
        deep.hooked({name: called("x"), "nonsense": called("y")}),
    ):
        pass
    one, other = deep.hooked({name: called("one")}), deep.hooked({name: called("other")})
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    deep(observation, memory)
    other.__exit__(None, None, None)
    deep(observation, memory)
    assert [label for label, _ in calls] == ["outer", "inner", "outer", "other"]


@torch.no_grad()
def test_a_hook_that_changes_the_shape_is_refused(deep: RecurrentPolicy, observation) -> None:
    wrong = {"lstm_hidden_2": lambda tensor: tensor[0]}
    with pytest.raises(ValueError, match=r"lstm_hidden_2 returned .* \(8,\) instead of \(30, 8\)"), deep.hooked(wrong):
        deep(observation, some_memory(deep))


@pytest.fixture
def segments(seen: np.ndarray, layout: ObservationLayout) -> PackedObservation:
    return pack(seen[-int(LENGTHS.sum()) :], layout)


def gradients(policy: RecurrentPolicy, segments: PackedObservation) -> list[torch.Tensor]:
    outputs = policy.forward_segments(segments, LENGTHS, some_memory(policy, len(LENGTHS)))
    loss = outputs.value.square().sum() + outputs.distribution.entropy().sum() + outputs.hidden.sum()
    return list(torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True))


def test_watched_segments_give_the_same_outputs_and_gradients(policy: RecurrentPolicy, segments) -> None:
    memory, shapes = some_memory(policy, len(LENGTHS)), []
    plain, plain_gradients = policy.forward_segments(segments, LENGTHS, memory), gradients(policy, segments)
    with policy.hooked({name: lambda tensor: shapes.append(tensor.shape) for name in layer_names(policy.layers)}):
        watched, watched_gradients = policy.forward_segments(segments, LENGTHS, memory), gradients(policy, segments)
    for name in ("value", "encoder_output", "hidden"):
        torch.testing.assert_close(getattr(watched, name), getattr(plain, name))
    torch.testing.assert_close(log_probabilities(watched.distribution), log_probabilities(plain.distribution))
    torch.testing.assert_close(watched_gradients, plain_gradients)
    lasting = [int((tick < LENGTHS).sum()) for tick in range(5)]
    expected = [11, *np.repeat(lasting, 2 * policy.layers), 11]
    assert shapes == [(rows, UNITS) for rows in expected] * 2


@torch.no_grad()
@pytest.mark.parametrize("edited", ["encoder_output", "lstm_hidden_1", "lstm_cell_2", "lstm_cell", "action_decoder"])
def test_an_edit_in_segments_is_the_edit_in_every_tick(deep: RecurrentPolicy, segments, edited: str) -> None:
    memory = some_memory(deep, len(LENGTHS))
    plain = deep.forward_segments(segments, LENGTHS, memory)
    with deep.hooked({edited: lambda tensor: 0.5 * tensor + 0.1}):
        outputs = deep.forward_segments(segments, LENGTHS, memory)
        torch.testing.assert_close(outputs.value, one_by_one(deep, segments, LENGTHS, memory)[0])
    assert (outputs.value != plain.value).all()


MEMORY = ("lstm_hidden_1", "lstm_hidden", "lstm_cell_1", "lstm_cell")


@pytest.fixture(scope="module")
def policies(small_world: EnvironmentSettings, task: TaskSettings, maps, tmp_path_factory) -> dict:
    folder = save_policies(tmp_path_factory.mktemp("policies"), small_world, task, maps)
    return {name: load_checkpoint(folder / f"{name}.safetensors")[0] for name in ("kit", "yao", "take")}


@torch.no_grad()
def test_one_call_runs_a_tick_and_gives_its_layers(policies: dict, observation) -> None:
    policy = policies["yao"]
    memory = policy.initial_state(AGENTS)
    distribution, value, after, layers = run_with_layers(policy, observation, memory)
    assert set(layers) == {"encoder_output", *MEMORY, "action_decoder"}
    assert torch.equal(layers["lstm_cell_1"], after.cell[0]) and torch.equal(layers["lstm_hidden"], after.hidden[1])
    plain, plain_value, plain_after = policy(observation, memory)
    assert torch.equal(value, plain_value) and torch.equal(after.cell, plain_after.cell)
    for mine, theirs in zip(distribution.log_probabilities, plain.log_probabilities, strict=True):
        assert torch.equal(mine, theirs)
    *_, few = run_with_layers(policy, observation, memory, ["lstm_cell", "encoder_output"])
    assert set(few) == {"lstm_cell", "encoder_output"}


def test_a_captured_tick_stays_when_the_block_ends(policies: dict, observation) -> None:
    policy = policies["kit"]
    memory = policy.initial_state(AGENTS)
    with pytest.raises(RuntimeError, match="boom"), capture(policy, ALL_LAYERS) as captured:
        assert captured == {}
        _, _, after = policy(observation, memory)
        raise RuntimeError("boom")
    assert torch.equal(captured["lstm_cell"], after.cell[0]) and not captured["lstm_cell"].requires_grad
    policy(observation, after)
    assert torch.equal(captured["lstm_cell"], after.cell[0])
    with pytest.raises(UserError, match="no layer lstm_cell_1 in this policy, which has one LSTM layer"):
        capture(policy, ["lstm_cell_1"]).__enter__()


@torch.no_grad()
@pytest.mark.parametrize("name", ["kit", "yao", "take"])
def test_memory_is_rebuilt_from_its_layers(policies: dict, observation, name: str) -> None:
    policy = policies[name]
    *_, after, layers = run_with_layers(policy, observation, policy.initial_state(AGENTS))
    rebuilt = memory_from_layers(policy, {name: tensor.numpy() for name, tensor in layers.items()})
    assert torch.equal(rebuilt.hidden, after.hidden) and torch.equal(rebuilt.cell, after.cell)
    assert rebuilt.hidden.shape == (policy.layers, AGENTS, 32)


def test_memory_that_was_not_recorded_whole_is_refused(policies: dict) -> None:
    recorded = {name: np.zeros((5, 32), np.float32) for name in MEMORY}
    missing = {name: recorded[name] for name in MEMORY if name != "lstm_cell_1"}
    with pytest.raises(UserError, match="layer lstm_cell_1 was not recorded; extract again with --record standard"):
        memory_from_layers(policies["yao"], missing)
    narrow = {**recorded, "lstm_cell": np.zeros((5, 16), np.float32)}
    with pytest.raises(UserError, match=r"layer lstm_cell was recorded as \(5, 16\).*is \(5, 32\)"):
        memory_from_layers(policies["yao"], narrow)
    assert memory_from_layers(policies["take"], recorded).hidden.shape == (0, 5, 32)
