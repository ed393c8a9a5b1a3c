"""Reading a policy's layers while it runs, and rebuilding its memory from them."""

import numpy as np
import pytest
import torch

from agent_zoo.capture import ALL_LAYERS, capture, memory_from_layers, run_with_layers
from agent_zoo.checkpoint import load_checkpoint
from common.user_error import UserError
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.tiny_policies import save_policies

AGENTS = 20
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
