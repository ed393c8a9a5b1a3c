"""A policy with a codebook: its layers, what its heads read, and its checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.layers import layer_names
from agent_zoo.agent_settings import SemanticShape
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import run_with_layers
from agent_zoo.checkpoint import load_checkpoint, save_checkpoint
from agent_zoo.observation import ObservationLayout, pack
from tests.agent_zoo.test_checkpoint import forge
from tests.agent_zoo.test_hooks import build, log_probabilities, one_by_one, some_memory
from tests.command import assert_refuses
from tests.conftest import AGENT
from tests.tiny_policies import tiny_entrant

AGENTS, UNITS, CODES = 30, 8, 4
BUILDS = [(AGENT, 1, "number"), ("yaofeng", 2, "embedding"), ("takeru", 0, "number")]


@pytest.fixture(params=BUILDS, ids=lambda one: one[0])
def policy(request, layout: ObservationLayout, seen: np.ndarray) -> RecurrentPolicy:
    agent, layers, feed = request.param
    policy = build(agent, layers, layout)
    policy.add_codebook(SemanticShape(CODES, 2, feed))
    policy.double()
    with torch.no_grad():
        encoded, _ = policy.encode(pack(seen[:AGENTS], layout))
        hidden, _ = policy.remember(encoded, some_memory(policy, AGENTS))
        policy.semantic.codebook.copy_(policy.semantic.plane(hidden)[:CODES])
        if feed == "embedding":
            policy.semantic.embedding.normal_()
    return policy


@torch.no_grad()
def test_plane_and_code_are_layers_and_heads_read_the_state_with_its_code(policy, observation) -> None:
    memory = some_memory(policy, AGENTS)
    distribution, value, _, layers = run_with_layers(policy, observation, memory)
    assert set(layers) == set(layer_names(policy.layers, codebook=True))
    assert tuple(policy.layer_units) == layer_names(policy.layers, codebook=True)
    assert {name: tensor.shape[1] for name, tensor in layers.items()} == policy.layer_units
    encoded, candidates = policy.encode(observation)
    hidden, _ = policy.remember(encoded, memory)
    plane = policy.semantic.plane(hidden)
    assert torch.equal(layers["semantic_plane"], plane)
    assert torch.equal(layers["semantic_code"].argmax(1), policy.semantic.nearest(plane))
    assert len(layers["semantic_code"].argmax(1).unique()) > 1, "one code only: too easy"
    read = policy.policy.decoder_input(hidden + policy.semantic.fed(layers["semantic_code"]))
    expected, expected_value = policy.policy.decode_actions(read, candidates, observation)
    assert torch.equal(log_probabilities(distribution), log_probabilities(expected))
    assert torch.equal(value, expected_value) and torch.equal(layers["action_decoder"], read)


@torch.no_grad()
def test_an_edited_plane_gives_its_code_and_an_edited_code_reaches_the_heads(policy, observation) -> None:
    memory = some_memory(policy, AGENTS)
    plain, *_, layers = run_with_layers(policy, observation, memory)
    target = policy.semantic.codebook[2].expand(AGENTS, -1)
    with policy.hooked({"semantic_plane": lambda _: target}):
        moved, *_, moved_layers = run_with_layers(policy, observation, memory)
    assert (moved_layers["semantic_code"].argmax(1) == 2).all()
    with policy.hooked({"semantic_code": lambda code: torch.eye(CODES, dtype=code.dtype)[2].expand_as(code)}):
        fed, *_ = run_with_layers(policy, observation, memory)
    assert torch.equal(log_probabilities(moved), log_probabilities(fed))
    changed = (log_probabilities(fed) != log_probabilities(plain)).any(1)
    assert torch.equal(changed, layers["semantic_code"].argmax(1) != 2)


@torch.no_grad()
def test_segments_are_decoded_as_tick_by_tick(policy, observation) -> None:
    lengths = torch.tensor([3, 1, 5, 2])
    state = some_memory(policy, len(lengths))
    rows = torch.arange(int(lengths.sum()))
    outputs = policy.forward_segments(observation.take(rows), lengths, state)
    values, by_option = one_by_one(policy, observation, lengths, state)
    assert torch.allclose(values, outputs.value)
    assert torch.allclose(by_option, log_probabilities(outputs.distribution))


@pytest.fixture
def path(tmp_path: Path, small_world, task, maps) -> Path:
    made = tiny_entrant(small_world, task, maps, seed=1, codes=CODES, hidden_size=UNITS)
    save_checkpoint(tmp_path / "policy.safetensors", made.policy, made.info)
    return tmp_path / "policy.safetensors"


def test_a_checkpoint_restores_the_codebook_and_a_policy_without_one_says_nothing_of_it(
    path: Path, small_world, task, maps
) -> None:
    policy, info = load_checkpoint(path)
    assert info.semantic == SemanticShape(CODES) and policy.semantic is not None
    again = path.with_name("again.safetensors")
    save_checkpoint(again, policy, info)
    assert again.read_bytes() == path.read_bytes()
    made = tiny_entrant(small_world, task, maps, seed=1, hidden_size=UNITS)
    assert "semantic" not in json.loads(made.info.to_header()) and made.policy.semantic is None
    others = {name: tensor for name, tensor in policy.state_dict().items() if not name.startswith("semantic.")}
    plain = made.policy.state_dict()
    assert others.keys() == plain.keys() and all(torch.equal(others[name], plain[name]) for name in plain)
    assert_refuses("no layer semantic_code in this policy", run_with_layers, made.policy, None, None, ["semantic_code"])


@pytest.mark.parametrize(
    "change", [{"codes": 1}, {"codes": 10**9}, {"plane_dimensions": 4}, {"feed": "both"}, {"x": 1}]
)
def test_a_forged_shape_is_refused_in_one_line(path: Path, change: dict) -> None:
    forge(path, lambda header: header["semantic"].update(change))
    assert_refuses(["semantic"], load_checkpoint, path)
    other = vars(SemanticShape(CODES + 1))  # weights of another number of codes
    forge(path, lambda header: header.update(semantic=other))
    assert_refuses(r"semantic\.codebook is", load_checkpoint, path)
