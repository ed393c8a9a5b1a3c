"""Adam alone, or with Muon for the matrices between hidden units: what each trains, and that a restored one goes on."""

import copy
from dataclasses import replace

import pytest
import torch

import agent_zoo
from activation_store.layers import MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import CELLS
from agent_zoo.observation import ObservationLayout
from reinforcement_learning.settings import TrainSettings
from reinforcement_learning.training.ppo import AdamAndMuon, hidden_matrices, make_optimizer, set_learning_rate
from reinforcement_learning.training.run_folder import optimizer_tensors, restore_optimizer
from tests.conftest import AGENT

MUON = TrainSettings(optimizer="muon", learning_rate=1e-2)


@pytest.fixture
def policy(layout: ObservationLayout) -> RecurrentPolicy:
    torch.manual_seed(3)
    module = agent_zoo.load(AGENT)
    return module.Recurrent(module.Policy(layout, hidden_size=16))


def learn(policy: RecurrentPolicy, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Follow made-up gradients that depend on the weights."""
    for _ in range(steps):
        for parameter in policy.parameters():
            parameter.grad = parameter.detach().sin() + 0.1
        optimizer.step()


def test_muon_trains_the_matrices_between_hidden_units(policy: RecurrentPolicy) -> None:
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    result = {names[id(matrix)] for matrix in hidden_matrices(policy)}
    assert {
        "policy.projection.weight",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
        "policy.task_encoder.weight",
    } <= result
    assert not any(part in name for name in result for part in ("action_decoder", "critic", "material", "bias", "noop"))
    groups = make_optimizer(policy, MUON).param_groups
    trained = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(trained) == sorted(names), "every parameter is trained exactly once"


@pytest.mark.parametrize("cell", CELLS)
def test_of_every_memory_muon_trains_the_weights_alone(cell: MemoryCell, layout: ObservationLayout) -> None:
    """Time constants of units, of which moving averages have a row in each layer, are no matrix to be orthogonal."""
    module = agent_zoo.load(AGENT)
    policy = module.Recurrent(module.Policy(layout, hidden_size=16), layers=2, cell=cell)
    chosen = {id(matrix) for matrix in hidden_matrices(policy)}
    of_memory = {name: id(parameter) in chosen for name, parameter in policy.memory.named_parameters()}
    assert of_memory == {name: "weight" in name for name in of_memory}


def test_a_muon_step_is_orthogonal_and_the_rest_is_adams(policy: RecurrentPolicy) -> None:
    """Jordan et al. (2024): singular values of a step are near each other; Adam's first step is the learning rate."""
    matrices = hidden_matrices(policy)
    before = {id(item): item.detach().clone() for item in policy.parameters()}
    learn(policy, make_optimizer(policy, MUON), steps=1)
    wide = next(item for item in matrices if item is policy.policy.projection.weight)
    singular = torch.linalg.svdvals((wide - before[id(wide)]).detach())
    assert singular.max() < 3 * singular.min()
    bias = policy.policy.projection.bias
    torch.testing.assert_close((bias - before[id(bias)]).abs(), torch.full_like(bias, 1e-2), rtol=0.01, atol=0)


@pytest.mark.parametrize("chosen", ["adam", "muon"])
def test_a_restored_optimizer_goes_on_alike(policy: RecurrentPolicy, chosen: str) -> None:
    settings = replace(MUON, optimizer=chosen)
    straight = make_optimizer(policy, settings)
    learn(policy, straight, steps=2)
    other = copy.deepcopy(policy)
    resumed, fresh = make_optimizer(other, settings), make_optimizer(other, settings)
    restore_optimizer(resumed, {name: tensor.clone() for name, tensor in optimizer_tensors(straight).items()})
    assert isinstance(resumed, AdamAndMuon) == (chosen == "muon")
    learn(policy, straight, steps=1)
    learn(other, resumed, steps=1)
    assert all(torch.equal(one, two) for one, two in zip(policy.parameters(), other.parameters(), strict=True))
    learn(policy, straight, steps=1)
    learn(other, fresh, steps=1)
    assert not all(torch.equal(one, two) for one, two in zip(policy.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("chosen", ["adam", "muon"])
def test_a_learning_rate_of_zero_changes_nothing(policy: RecurrentPolicy, chosen: str) -> None:
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    optimizer = make_optimizer(policy, replace(MUON, optimizer=chosen))
    set_learning_rate(optimizer, 0.0)
    learn(policy, optimizer, steps=1)
    assert all(torch.equal(one, two) for one, two in zip(before, policy.parameters(), strict=True))
