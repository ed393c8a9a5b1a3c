"""Policies with two LSTM layers inside world models: all states are read, begun with, edited and written."""

from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from activation_store.reader import read_dump
from analysis.interventions.edits.edit_options import EditOptions
from analysis.world_model.derivatives import components_of
from analysis.world_model.findings import value_saliency
from analysis.world_model.imagination import imagine, informed_start
from analysis.world_model.model import WorldModel, load_model, save_model
from analysis.world_model.unroll import remember
from analysis.world_model.windows import CONTEXT
from tests.analysis.world_model.test_edits import edits_of
from tests.command import run_well
from tests.planted_interventions import unit
from tests.trained_world_model import arguments

UNITS = 16
STATES = [name for kind in (LSTM_HIDDEN, LSTM_CELL) for name in memory_names(kind, 2)]


@pytest.fixture(scope="module")
def model(recorded_two_layers) -> WorldModel:
    return recorded_two_layers.model()


def test_windows_hold_the_states_of_both_layers(recorded_two_layers) -> None:
    records = read_dump(recorded_two_layers.dump, layers=STATES)
    place = {key: row for row, key in enumerate(zip(records.episode, records.agent_id, records.tick, strict=True))}
    windows = recorded_two_layers.windows()[0]
    memory = windows.memory(CONTEXT - 1)
    assert memory.hidden.shape == memory.cell.shape == (2, len(windows), UNITS)
    for window, (episode, agent, tick) in enumerate(windows.identity.tolist()):
        row = place[episode, agent, tick + CONTEXT - 1]
        states = [*memory.hidden[:, window], *memory.cell[:, window]]
        for name, state in zip(STATES, states, strict=True):
            np.testing.assert_array_equal(state, records.activations[name][row])


@torch.no_grad()
def test_a_simulation_from_a_recorded_tick_begins_with_the_recorded_memory(model, recorded_two_layers) -> None:
    windows = recorded_two_layers.windows()[0]
    start = informed_start(model, windows, torch.Generator().manual_seed(1))
    (tick,) = imagine(model, start, 1, torch.Generator().manual_seed(2))
    torch.testing.assert_close(tick.memory.hidden, windows.memory(CONTEXT - 1).hidden, atol=0.02, rtol=0)
    seen = remember(model, start.scene, windows.around, start.memory)
    torch.testing.assert_close(seen.cell, tick.memory.cell)
    shares = value_saliency(model, start.scene, windows.around, start.memory)
    assert shares["share of the value's saliency: memory"][:, 0].min() > 0


def test_components_of_both_layers_are_taken_apart(recorded_two_layers, model: WorldModel) -> None:
    chosen = [unit(1, UNITS, f"ic_{number}", name) for number, name in enumerate((STATES[2], STATES[1]), 1)]
    names, patterns = components_of(recorded_two_layers.held_out(model), chosen)
    assert names == ("ic_1", "ic_2") and sorted(patterns) == sorted(STATES)
    assert all(pattern.shape == (2, UNITS) for pattern in patterns.values())


@torch.no_grad()
def test_an_edit_of_the_first_layer_is_made_there(model, recorded_two_layers) -> None:
    windows = recorded_two_layers.windows()[0]
    start = informed_start(model, windows, torch.Generator().manual_seed(1))
    direction = unit(1, UNITS, "ic_1", "lstm_cell_1")
    collapse = EditOptions(edit="collapse", direction="ic_1", change=True)
    (edits,) = edits_of(model, recorded_two_layers, [direction], collapse)
    (tick,) = imagine(model, start, 1, torch.Generator().manual_seed(2), (), edits)
    along = torch.tensor(np.asarray(direction.weight), dtype=torch.float32)
    torch.testing.assert_close(tick.memory.cell[0] @ along, start.memory.cell[0] @ along, atol=1e-5, rtol=0)


def test_such_a_model_is_saved_and_comes_back(model, recorded_two_layers, tmp_path: Path) -> None:
    save_model(tmp_path / "model.safetensors", model, recorded_two_layers.origin())
    loaded, _ = load_model(tmp_path / "model.safetensors")
    vector = torch.randn(3, model.network.sizes.bottleneck)
    memory = loaded.network.start(vector)[1]
    assert memory.hidden.shape == (2, 3, UNITS)
    torch.testing.assert_close(memory.cell, model.network.start(vector)[1].cell)


@pytest.mark.slow
def test_one_is_trained_and_simulated(recorded_two_layers, tmp_path: Path) -> None:
    run_well("train_world_model.py", *arguments(recorded_two_layers, tmp_path / "models"))
    (trained,) = (tmp_path / "models").iterdir()
    run_well("simulate.py", trained, "-n", 20, "--ticks", 3, "--dump", recorded_two_layers.dump, "-o", tmp_path / "out")
    (simulated,) = (tmp_path / "out").iterdir()
    assert {*STATES, "world_hidden"} < read_dump(simulated).activations.keys()
