"""Memories of every cell: ticks and sequences agree, and so do recorded, saved and continued states."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import agent_zoo
from activation_store.layers import LSTM_HIDDEN, STATES, MemoryCell, layer_names, memory_names
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import memory_from_layers, run_with_layers
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from agent_zoo.memory import (
    CELLS,
    GRU,
    LONGEST,
    LSTM,
    SHORTEST,
    LeakyAverages,
    Memory,
    MemoryState,
    leaky_sums,
    spread_time_constants,
    start_slow,
)
from agent_zoo.observation import ObservationLayout, pack
from common.user_error import UserError
from tests.agent_zoo.test_hooks import one_by_one
from tests.command import assert_refuses
from tests.conftest import AGENT
from tests.tiny_policies import tiny_entrant

UNITS, LAYERS, AGENTS, TICKS = 6, 3, 5, 11
NAMES: tuple[MemoryCell, ...] = ("lstm", "gru", "ema")
GATELESS: tuple[MemoryCell, ...] = ("gru", "ema")
LENGTHS = torch.tensor([3, 1, 5, 2])
EDITED = torch.arange(AGENTS) < 2


def memory_of(cell: MemoryCell, layers: int = LAYERS) -> Memory:
    torch.manual_seed(3)
    memory = CELLS[cell](UNITS, layers).double()
    for name, parameter in memory.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return memory


def some_state(cell: MemoryCell, agents: int = AGENTS, layers: int = LAYERS) -> MemoryState:
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn((layers, agents, UNITS), dtype=torch.float64, generator=generator)
    return MemoryState(hidden, 0.5 * hidden if "lstm_cell" in STATES[cell] else hidden[:0])


def policy_of(cell: MemoryCell, layout: ObservationLayout, agent: str = "yaofeng") -> RecurrentPolicy:
    torch.manual_seed(0)
    module = agent_zoo.load(agent)
    return module.Recurrent(module.Policy(layout, hidden_size=UNITS), LAYERS, cell).double()


@torch.no_grad()
@pytest.mark.parametrize("cell", NAMES)
@pytest.mark.parametrize("layers", [1, LAYERS])
@pytest.mark.parametrize("ticks", [1, 2, TICKS])
def test_a_sequence_is_its_ticks_one_by_one(cell: MemoryCell, layers: int, ticks: int) -> None:
    memory, state = memory_of(cell, layers), some_state(cell, layers=layers)
    read = torch.randn(ticks, AGENTS, UNITS, dtype=torch.float64)
    outputs, after = memory.play(read, state)
    for tick in range(ticks):
        output, state = memory.play(read[tick : tick + 1], state)
        torch.testing.assert_close(output[0], outputs[tick])
    torch.testing.assert_close(state.hidden, after.hidden)
    torch.testing.assert_close(state.cell, after.cell)
    assert torch.equal(outputs[-1], after.hidden[-1]) and after.cell.shape == state.cell.shape


@torch.no_grad()
def test_leaky_averages_follow_their_formula() -> None:
    memory, before = memory_of("ema"), some_state("ema")
    assert isinstance(memory, LeakyAverages)
    outputs, after = memory.play(read := torch.randn(TICKS, AGENTS, UNITS, dtype=torch.float64), before)
    weights = {name: parameter.numpy() for name, parameter in memory.named_parameters()}
    hidden = before.hidden.numpy().copy()
    for tick in range(TICKS):
        below = read[tick].numpy()
        for layer in range(LAYERS):
            share = 1 / (1 + np.exp(-weights["leak"][layer]))
            reading = np.tanh(below @ weights[f"readers.{layer}.weight"].T + weights[f"readers.{layer}.bias"])
            hidden[layer] = (1 - share) * hidden[layer] + share * reading
            below = hidden[layer]
        np.testing.assert_allclose(outputs[tick], below, atol=1e-12)
    np.testing.assert_allclose(after.hidden, hidden, atol=1e-12)


@torch.no_grad()
def test_time_constants_are_spread_evenly_on_a_logarithmic_scale_and_say_what_is_left() -> None:
    memory = LeakyAverages(UNITS, 2).double()
    expected = SHORTEST * (LONGEST / SHORTEST) ** np.linspace(0, 1, UNITS)
    np.testing.assert_allclose(memory.time_constants, np.tile(expected, (2, 1)), rtol=1e-5)
    for reader in memory.readers:
        nn.init.zeros_(reader.weight)  # nothing comes in: what is left is what was there
    start = MemoryState(torch.ones(2, 1, UNITS, dtype=torch.float64), torch.zeros(0, 1, UNITS, dtype=torch.float64))
    _, after = memory.play(torch.zeros(16, 1, UNITS, dtype=torch.float64), start)
    np.testing.assert_allclose(after.hidden[:, 0], np.exp(-16 / memory.time_constants.numpy()), rtol=1e-6)


def test_gradients_of_leaky_averages_are_right_and_their_sums_neither_overflow_nor_forget() -> None:
    memory = memory_of("ema", layers=2)
    read = torch.randn(7, 2, UNITS, dtype=torch.float64, requires_grad=True)
    hidden = torch.randn(2, 2, UNITS, dtype=torch.float64, requires_grad=True)
    state = MemoryState(hidden, hidden[:0])
    # Parameters are changed in place, so nothing hands them over.
    assert torch.autograd.gradcheck(lambda *_: memory.play(read, state)[0], (read, hidden, *memory.parameters()))
    kept = torch.tensor([0.0, 1e-30, 0.5, 0.75, 1.0], requires_grad=True)
    sums = leaky_sums(torch.ones(1000, 1, 5), kept, torch.zeros(1, 5))
    torch.testing.assert_close(sums[-1, 0], torch.tensor([1.0, 1.0, 2.0, 4.0, 1000.0]))
    sums.sum().backward()
    assert kept.grad is not None and torch.isfinite(kept.grad).all()


@torch.no_grad()
@pytest.mark.parametrize("cell", GATELESS)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_an_edited_hidden_state_reaches_all_that_depends_on_it(cell: MemoryCell, layer: int, layout) -> None:
    policy, before = policy_of(cell, layout), some_state(cell)
    memory = policy.memory
    assert memory is not None
    encoded = torch.randn(AGENTS, UNITS, dtype=torch.float64)
    _, plain = policy.remember(encoded, before)
    replacement = torch.where(EDITED.unsqueeze(1), 0.3, plain.hidden[layer])
    with policy.hooked({memory_names(LSTM_HIDDEN, LAYERS)[layer]: lambda _: replacement}):
        read, after = policy.remember(encoded, before)
    assert torch.equal(read, after.hidden[-1]) and torch.equal(after.hidden[layer], replacement)
    expected = replacement
    for above in range(layer + 1, LAYERS):
        alone = one_layer(cell, memory, above)
        (expected,), _ = alone.play(expected.unsqueeze(0), MemoryState(before.hidden[[above]], before.cell))
        torch.testing.assert_close(after.hidden[above], expected)
        assert not torch.isclose(after.hidden[above][EDITED], plain.hidden[above][EDITED]).all(dim=1).any()
    assert torch.equal(after.hidden[:, ~EDITED], plain.hidden[:, ~EDITED])
    assert torch.equal(after.hidden[:layer], plain.hidden[:layer])


def one_layer(cell: MemoryCell, memory: Memory, layer: int) -> Memory:
    """Build a memory of a single layer with the weights of one layer of another."""
    alone = CELLS[cell](UNITS, 1).double()
    if isinstance(memory, LeakyAverages):
        assert isinstance(alone, LeakyAverages)
        alone.leak.copy_(memory.leak[layer : layer + 1])
        alone.readers[0].load_state_dict(memory.readers[layer].state_dict())
    else:
        for name, parameter in alone.named_parameters():
            parameter.copy_(memory.get_parameter(name.replace("l0", f"l{layer}")))
    return alone


@pytest.mark.parametrize("cell", GATELESS)
def test_segments_are_ticks_from_their_own_starts_watched_or_not(cell: MemoryCell, seen, layout) -> None:
    policy, memory = policy_of(cell, layout), some_state(cell, len(LENGTHS))
    segments = pack(seen[-int(LENGTHS.sum()) :], layout)

    def run() -> tuple[torch.Tensor, list[torch.Tensor]]:
        outputs = policy.forward_segments(segments, LENGTHS, memory)
        loss = outputs.value.square().sum() + outputs.hidden.sum()
        return outputs.value, list(torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True))

    value, gradients = run()
    torch.testing.assert_close(one_by_one(policy, segments, LENGTHS, memory)[0], value)
    with policy.hooked({name: lambda tensor: None for name in policy.layer_units}):
        watched, watched_gradients = run()
    torch.testing.assert_close(watched, value)
    torch.testing.assert_close(watched_gradients, gradients)


@pytest.mark.parametrize("cell", GATELESS)
def test_layers_of_a_memory_without_cell_states(cell: MemoryCell, layout, observation) -> None:
    policy = policy_of(cell, layout).float()
    names = ("encoder_output", "lstm_hidden_1", "lstm_hidden_2", "lstm_hidden", "action_decoder")
    assert layer_names(LAYERS, cell) == tuple(policy.layer_units) == names
    _, value, after, layers = run_with_layers(policy, observation, policy.initial_state(AGENTS))
    assert tuple(layers) == names and after.cell.shape == (0, AGENTS, UNITS)
    for name, layer in layers.items():
        (gradient,) = torch.autograd.grad(value.sum(), layer, retain_graph=True)
        assert (gradient != 0).any(dim=1).all(), name
    rebuilt = memory_from_layers(policy, {name: layer.detach().numpy() for name, layer in layers.items()})
    assert torch.equal(rebuilt.hidden, after.hidden) and rebuilt.cell.shape == after.cell.shape
    with pytest.raises(UserError, match=r"no layer lstm_cell in this policy, which has 3 (GRU|leaky-average) layers"):
        policy.hooked({"lstm_cell": torch.neg})


@torch.no_grad()
@pytest.mark.parametrize("agent", agent_zoo.names())
@pytest.mark.parametrize("cell", GATELESS)
def test_a_checkpoint_gives_every_agent_its_memory_back(
    small_world, task, maps, tmp_path: Path, seen, layout, agent: str, cell: MemoryCell
) -> None:
    entrant = tiny_entrant(small_world, task, maps, agent, seed=1, hidden_size=8, lstm_layers=2, cell=cell)
    assert entrant.info.recurrent_arguments == {"layers": 2, "cell": cell}
    path = tmp_path / "policy.safetensors"
    save_checkpoint(path, entrant.policy, entrant.info)
    loaded, info = load_checkpoint(path)
    assert info == entrant.info and isinstance(loaded.memory, type(entrant.policy.memory))
    observation = pack(seen[:20], layout)
    ours, theirs = (p(observation, p.initial_state(20)) for p in (entrant.policy, loaded))
    assert torch.equal(ours[1], theirs[1]) and torch.equal(ours[2].hidden, theirs[2].hidden)
    for others in ({"layers": 2}, {"layers": 2, "cell": "unknown"}):
        save_checkpoint(path, entrant.policy, replace(info, recurrent_arguments=others))
        assert_refuses("another architecture", load_checkpoint, path)


def test_a_header_without_a_cell_means_an_lstm(small_world, task, maps) -> None:
    entrant = tiny_entrant(small_world, task, maps, seed=1, hidden_size=8)
    assert "cell" not in json.loads(entrant.info.to_header())["recurrent_arguments"]
    assert entrant.policy.cell == "lstm" and isinstance(entrant.policy.memory, nn.LSTM)
    header = CheckpointInfo.from_header(entrant.info.to_header(), Path("policy"))
    assert header.recurrent_arguments == {"layers": 1}


def test_an_agent_whose_recurrent_takes_no_cell_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = agent_zoo.load(AGENT)

    class Recurrent(RecurrentPolicy):
        def __init__(self, policy, layers: int = 1):
            super().__init__(policy, layers)

    agent_zoo.check_cell(AGENT, "gru")
    monkeypatch.setattr(module, "Recurrent", Recurrent)
    agent_zoo.check_cell(AGENT, "lstm")
    assert_refuses("neurips23_start_kit has an LSTM only", agent_zoo.check_cell, AGENT, "gru")


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_units_lose_their_content_at_the_pace_of_their_time_constants(cell: type[LSTM | GRU]) -> None:
    memory = cell(UNITS, LAYERS)
    start_slow(memory, longest=50)
    for weight in (weight for layer in memory.all_weights for weight in layer[:2]):
        nn.init.zeros_(weight)  # so that the biases alone decide
    full = torch.ones(LAYERS, 1, UNITS)
    _, after = memory.play(torch.zeros(1, 1, UNITS), MemoryState(full, full if cell is LSTM else full[:0]))
    kept = after.cell if cell is LSTM else after.hidden
    expected = (-1 / spread_time_constants(50, UNITS)).exp()
    torch.testing.assert_close(kept, expected.expand(LAYERS, 1, UNITS))


def test_input_gates_open_as_far_as_forget_gates_close_and_moving_averages_start_slow_by_themselves() -> None:
    memory = LSTM(UNITS, 1)
    start_slow(memory, longest=50)
    entering, forgetting, *_ = memory._gates(0, torch.zeros(1, UNITS), torch.zeros(1, UNITS))
    torch.testing.assert_close(entering + forgetting, torch.ones(1, UNITS))
    memory = LeakyAverages(UNITS, 1)
    before = memory.leak.clone()
    start_slow(memory, longest=50)
    assert torch.equal(memory.leak, before)
    torch.testing.assert_close(memory.time_constants[0], spread_time_constants(LONGEST, UNITS))
