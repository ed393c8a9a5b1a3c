"""The circuit of a direction: shares of a variance, and refusals."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from activation_store.directions import Direction, Source
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memories.lstm_memory import LSTM
from agent_zoo.memories.memory_cells import GRU
from analysis.dynamics.circuits.circuit import BELOW, ENCODER, OWN, Circuit, Resampled, find_circuit
from analysis.dynamics.circuits.circuit_run import trace_circuit
from analysis.dynamics.settings import DynamicsSettings
from tests.analysis.dynamics.subspaces.latches import LAYOUT, UNITS, Blind, latch
from tests.command import assert_refuses


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


def direction(layer: str, weight: np.ndarray) -> Direction:
    source = Source("probe", "run", "dump", "policy", None)
    return Direction("goal", layer, weight.astype(np.float32), 0.0, "units", 0.0, 1.0, 10, 10, 1, source)


def circuit_of(policy: RecurrentPolicy, layer: str, weight: np.ndarray, read: np.ndarray) -> Circuit:
    assert isinstance(policy.memory, LSTM)
    memory = copy.deepcopy(policy.memory).double()
    return find_circuit(policy, memory, direction(layer, weight), read, {}, 0)


def test_the_circuit_of_a_latch_is_its_cue_its_two_units_and_the_moves_that_read_them() -> None:
    read = 0.3 * np.random.default_rng(0).normal(size=(12, 40, UNITS))
    read[:, :, 0] = 0
    read[2, :, 0] = np.tile([1.0, -1.0], 20)
    circuit = circuit_of(latch(), "lstm_cell", np.array([1.0, -1.0, 0, 0, 0, 0]), read)
    for kind, part in (("source and gate", f"{ENCODER} > candidate"), ("tick", "2"), ("traced tick", "2")):
        assert {share.part for share in circuit.of(kind) if abs(share.share) > 0.01} == {part}
    assert circuit.inputs[0].part == f"{ENCODER} 0" and circuit.inputs[0].share == pytest.approx(1, abs=0.01)
    assert {unit.unit for unit in circuit.units[:2]} == {0, 1}
    assert circuit.units[0].share == pytest.approx(0.5, abs=0.01)
    assert circuit.units[0].kept > 0.99 and circuit.units[2].share == pytest.approx(0, abs=1e-6)
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
