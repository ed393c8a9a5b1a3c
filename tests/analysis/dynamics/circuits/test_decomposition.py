"""Contributions to a read-out of an LSTM add up; networks built by hand have those, and the circuit, of their plan."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from activation_store.directions import Direction, Source
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import GRU, LSTM
from analysis.dynamics.circuit import (
    BELOW,
    ENCODER,
    GATES,
    OWN,
    Circuit,
    Resampled,
    find_circuit,
    gained_and_lost,
    played,
    traced,
    written,
)
from analysis.dynamics.circuit_run import trace_circuit
from analysis.dynamics.settings import DynamicsSettings
from tests.analysis.dynamics.subspaces.latches import LAYOUT, UNITS, Blind, latch
from tests.command import assert_refuses

SIZE, TICKS, LIVES = 5, 12, 7
OPEN = 20.0
INPUT, FORGET, CANDIDATE, OUTPUT = range(4)


def random_memory(layers: int) -> LSTM:
    torch.manual_seed(3)
    memory = LSTM(SIZE, layers).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.mul_(1.5).add_(0.3 * torch.randn_like(parameter))
    return memory


def noise(units: int = SIZE, lives: int = LIVES, ticks: int = TICKS) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(ticks, lives, units)))


@torch.no_grad()
def built(units: int, weights: dict[tuple[int, int, int], float], biases: dict[tuple[int, int], float]) -> LSTM:
    """A layer without weights but those of (gate, unit, input), and biases of (gate, unit); output gates are open."""
    memory = LSTM(units, 1).double()
    for parameter in memory.parameters():
        parameter.zero_()
    bias = memory.all_weights[0][2].view(4, units)
    bias[OUTPUT] = OPEN
    for (gate, unit), value in biases.items():
        bias[gate, unit] = value
    for (gate, unit, source), value in weights.items():
        memory.all_weights[0][0].view(4, units, units)[gate, unit, source] = value
    return memory


def parts_of(
    memory: LSTM, read: torch.Tensor, reference: torch.Tensor, *weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What wrote a read-out of the cells of the only layer, from below and from its own hidden state."""
    of = torch.tensor(weight, dtype=torch.float64)
    return written(memory, played(memory, read), played(memory, reference), 0, of, of_cell=True)[1:]


@pytest.mark.parametrize("of_cell", [True, False])
@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 0), (2, 1)])
def test_contributions_add_up_to_the_read_out(layers: int, layer: int, of_cell: bool) -> None:
    memory, read = random_memory(layers), noise()
    life, reference = played(memory, read), played(memory, read.mean(dim=1, keepdim=True))
    weight = torch.randn(SIZE, dtype=torch.float64)
    states = [getattr(one[layer], "cell" if of_cell else "hidden")[-1] @ weight for one in (life, reference)]
    slopes, below, own = written(memory, life, reference, layer, weight, of_cell=of_cell)
    assert below.shape == own.shape == slopes.shape == (len(GATES), TICKS, LIVES, SIZE)
    together = below.sum(dim=(0, 1, 3)) + own.sum(dim=(0, 1, 3))
    torch.testing.assert_close(together, states[0] - states[1], rtol=0, atol=1e-12)
    by_input, slope = traced(memory, life, reference, layer, weight, of_cell=of_cell)
    torch.testing.assert_close(by_input.sum(dim=(0, 2)), states[0] - states[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(slope * (read - read.mean(dim=1, keepdim=True)), by_input)


def test_what_is_played_is_what_torch_plays_and_ticks_add_up() -> None:
    memory, read = random_memory(2), noise()
    _, (hidden, cell) = torch.nn.LSTM.forward(memory, read)
    life = played(memory, read)
    for number in range(2):
        torch.testing.assert_close(life[number].hidden[-1], hidden[number], rtol=0, atol=1e-12)
        torch.testing.assert_close(life[number].cell[-1], cell[number], rtol=0, atol=1e-12)
    memory, read = random_memory(1), noise()
    (layer,) = played(memory, read)
    weight = torch.randn(SIZE, dtype=torch.float64)
    gained, lost = gained_and_lost(layer, weight)
    torch.testing.assert_close(gained + lost, (layer.cell @ weight).diff(dim=0), rtol=0, atol=1e-12)


def test_a_latch_is_written_by_its_cue_through_the_candidate_and_never_lost() -> None:
    """Two units: one holds the sign of a cue for ever, the other forgets noise at once; only input 0 is the cue."""
    memory = built(2, {(CANDIDATE, 0, 0): 3.0, (CANDIDATE, 1, 1): 3.0},
                   {(INPUT, 0): OPEN, (FORGET, 0): OPEN, (INPUT, 1): OPEN, (FORGET, 1): -OPEN})  # fmt: skip
    read = noise(2)
    read[:, :, 0] = 0
    read[2, :, 0] = torch.tensor([1.0, -1.0] * LIVES)[:LIVES]
    (below, own), (other, _) = (
        parts_of(memory, read, torch.zeros_like(read[:, :1]), *weight) for weight in ((1, 0), (0, 1))
    )
    expected = torch.tanh(3.0 * read[2, :, 0])
    torch.testing.assert_close(below[CANDIDATE, 2, :, 0], expected, rtol=1e-6, atol=0)
    assert float(below.abs().sum() + own.abs().sum() - expected.abs().sum()) == pytest.approx(0, abs=1e-6)
    gained, lost = gained_and_lost(played(memory, read)[0], torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert float(lost.abs().max()) < 1e-6 and torch.equal(gained.abs().sum(dim=1) > 0.5, torch.arange(TICKS) == 2)
    assert float(other[:, :-1].abs().max()) < 1e-6  # the other unit's read-out is of the last tick alone


def test_counters_write_through_the_input_gate_and_clearing_through_the_forget_gate() -> None:
    """One unit adds the same candidate whenever its input opens the gate."""
    memory = built(1, {(INPUT, 0, 0): 2 * OPEN}, {(INPUT, 0): -OPEN, (FORGET, 0): OPEN, (CANDIDATE, 0): 1.0})
    events = torch.from_numpy((np.random.default_rng(1).random((TICKS, LIVES, 1)) < 0.4).astype(float))
    below, _ = parts_of(memory, events, torch.zeros_like(events[:, :1]), 1)
    torch.testing.assert_close(below[INPUT, :, :, 0], events[:, :, 0] * np.tanh(1.0), rtol=1e-6, atol=1e-8)
    others = [below[gate].abs().max() for gate in (FORGET, CANDIDATE, OUTPUT)]
    assert max(map(float, others)) < 1e-6
    # All lives write the same in the first tick; some forget it later.
    memory = built(2, {(CANDIDATE, 0, 0): 1.0, (FORGET, 0, 1): -2 * OPEN}, {(INPUT, 0): OPEN, (FORGET, 0): OPEN})
    read = torch.zeros(4, 2, 2, dtype=torch.float64)
    read[0, :, 0], read[2, 1, 1] = 1.0, 1.0
    below, _ = parts_of(memory, read, read[:, :1], 1, 0)
    assert float(below[FORGET, 2, 1, 1]) == pytest.approx(-np.tanh(1.0), abs=1e-6)
    assert float(below.abs().sum()) == pytest.approx(np.tanh(1.0), abs=1e-6)


def test_the_trace_ends_at_the_one_path_that_carries_the_cue() -> None:
    """The cue is held by unit 0, and unit 1 reads it through the hidden state alone: the trace ends at the cue."""
    memory = built(2, {(CANDIDATE, 0, 0): 3.0}, {(INPUT, 0): OPEN, (FORGET, 0): OPEN, (INPUT, 1): OPEN,
                                                 (FORGET, 1): -OPEN})  # fmt: skip
    with torch.no_grad():
        memory.all_weights[0][1].view(4, 2, 2)[CANDIDATE, 1, 0] = 2.0
    read = noise(2)
    read[:, :, 0] = 0
    read[1, :, 0] = torch.linspace(-1, 1, LIVES)
    life, reference = played(memory, read), played(memory, torch.zeros_like(read[:, :1]))
    weight = torch.tensor([0.0, 1.0], dtype=torch.float64)
    _, _, own = written(memory, life, reference, 0, weight, of_cell=True)
    difference = life[0].cell[-1] @ weight
    torch.testing.assert_close(own[CANDIDATE, -1, :, 0], difference, rtol=1e-6, atol=1e-8)
    by_input, _ = traced(memory, life, reference, 0, weight, of_cell=True)
    torch.testing.assert_close(by_input[1, :, 0], difference, rtol=1e-6, atol=1e-8)
    assert float(by_input.abs().sum()) == pytest.approx(float(difference.abs().sum()), rel=1e-6)


def test_shares_of_parts_that_add_up_add_up_to_one() -> None:
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=60) * size for name, size in (("large", 3.0), ("small", 1.0))}
    parts["against"] = -0.2 * parts["large"]
    resampled = Resampled(np.sum(list(parts.values()), axis=0) + 7)
    large, small, against = resampled.shares("kind", parts)
    assert large.share + small.share + against.share == pytest.approx(1)
    assert against.share < 0 < small.share < large.share and against.share == pytest.approx(-0.2 * large.share)
    for share in (large, small, against):
        assert share.low < share.share < share.high < share.low + 0.5
    assert np.isnan(Resampled(np.arange(4.0)).shares("kind", {"all": np.arange(4.0)})[0].low)


def circuit_of(policy: RecurrentPolicy, layer: str, weight: np.ndarray, read: np.ndarray) -> Circuit:
    assert isinstance(policy.memory, LSTM)
    source = Source("probe", "run", "dump", "policy", None)
    goal = Direction("goal", layer, weight.astype(np.float32), 0.0, "units", 0.0, 1.0, 10, 10, 1, source)
    return find_circuit(policy, copy.deepcopy(policy.memory).double(), goal, read, {}, 0)


def test_the_circuit_of_a_latch_is_its_cue_its_two_units_and_the_moves_that_read_them() -> None:
    read = 0.3 * np.random.default_rng(0).normal(size=(12, 40, UNITS))
    read[:, :, 0] = 0
    read[2, :, 0] = np.tile([1.0, -1.0], 20)
    circuit = circuit_of(latch(), "lstm_cell", np.array([1.0, -1.0, 0, 0, 0, 0]), read)
    for kind, part in (("source and gate", f"{ENCODER} > candidate"), ("tick", "2"), ("traced tick", "2")):
        assert {share.part for share in circuit.of(kind) if abs(share.share) > 0.01} == {part}
    assert circuit.inputs[0].part == f"{ENCODER} 0" and circuit.inputs[0].share == pytest.approx(1, abs=0.01)
    assert {unit.part for unit in circuit.units[:2]} == {"0", "1"}
    assert circuit.units[0].share == pytest.approx(0.5, abs=0.01)
    assert circuit.kept[int(circuit.units[0].part)] > 0.99 and circuit.units[2].share == pytest.approx(0, abs=1e-6)
    north, south = circuit.strongest(2)
    assert {north.option, south.option} == {"north", "south"} and north.logit * south.logit < 0
    assert abs(north.logit) > 2 * north.random
    others = [head.logit for head in circuit.heads if head.option not in ("north", "south")]
    assert np.abs(others).max() < 1e-5


@pytest.mark.parametrize("layer", ["lstm_cell_1", "lstm_hidden_1", "lstm_cell", "lstm_hidden"])
def test_all_ways_to_divide_a_read_out_of_two_layers_add_up(layer: str) -> None:
    torch.manual_seed(0)
    policy = RecurrentPolicy(Blind(LAYOUT, UNITS), 2).eval().requires_grad_(False)
    random = np.random.default_rng(0)
    circuit = circuit_of(policy, layer, random.normal(size=UNITS), random.normal(size=(9, 30, UNITS)))
    for kind in ("gate", "source", "source and gate", "gate and unit", "tick", "traced source", "traced tick"):
        assert sum(share.share for share in circuit.of(kind)) == pytest.approx(1), kind
    assert sum(share.share for share in circuit.inputs) == pytest.approx(1) and circuit.remainder < 1e-6
    below = ENCODER if layer.endswith("_1") else BELOW
    assert {share.part for share in circuit.of("source")} == {below, OWN}
    assert any(abs(head.logit) > 1e-6 for head in circuit.heads), "a first layer acts through the second"


def test_other_memories_are_refused_in_one_line(tmp_path: Path) -> None:
    settings = DynamicsSettings(tmp_path, circuit="goal_north", directions=tmp_path)
    metadata: Any = SimpleNamespace(policy="cue_gru_1")
    policy: Any = SimpleNamespace(memory=GRU(2, 1), layers=1, cell="gru")
    assert_refuses("cue_gru_1 has a memory of the kind gru$", trace_circuit, settings, metadata, policy, None, None)
