"""On probabilities of 0 and 1 the soft path gives what the hard path gives; between them it can be differentiated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import agent_zoo
from agent_zoo import Network
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.memory import MemoryState
from agent_zoo.observation import ObservationLayout, PackedObservation, pack
from agent_zoo.soft_path import (
    ReadsProbabilities,
    SoftObservation,
    SoftRows,
    check_reads_probabilities,
    log_legality,
    soft_tick,
    softened,
    straight_through,
)
from tests.command import assert_refuses

START_KIT = "neurips23_start_kit"
NETWORKS = [
    *((agent, "published") for agent in agent_zoo.names()),
    *((agent, "earlier") for agent in (START_KIT, "takeru", "hybrid")),
]
LAYERS = {START_KIT: 1, "takeru": 0, "hybrid": 1, "yaofeng": 2}
SIZE = 16
CLOSE: dict[str, Any] = {"atol": 2e-5, "rtol": 2e-5}


def built(agent: str, layout: ObservationLayout, network: Network = "published") -> RecurrentPolicy:
    torch.manual_seed(0)
    encoder = agent_zoo.policy_class(agent, network)(layout, SIZE)
    policy: RecurrentPolicy = agent_zoo.load(agent).Recurrent(encoder)
    assert policy.layers == LAYERS[agent]
    for parameter in policy.parameters():  # biases too: an untrained network has none
        torch.nn.init.normal_(parameter, std=0.2)
    return policy.eval()


@pytest.fixture(scope="module")
def real(seen: np.ndarray, layout: ObservationLayout) -> PackedObservation:
    """Observations of a real game, among them some with open choices in heads whose options are rows."""
    packed = pack(seen, layout)
    open_choices = built(START_KIT, layout)(packed, built(START_KIT, layout).initial_state(len(packed)))[0].choices
    some = torch.cat([torch.arange(40), *(choices.agent[:20] for choices in open_choices[1:])]).unique()
    assert len(some) > 50
    return packed.take(some)


@pytest.fixture(scope="module")
def policy(layout: ObservationLayout) -> RecurrentPolicy:
    return built(START_KIT, layout)


def memory(policy: RecurrentPolicy, agents: int) -> MemoryState:
    empty = policy.initial_state(agents)
    random = torch.Generator().manual_seed(1)
    return MemoryState(*(torch.randn(case.shape, generator=random) for case in (empty.hidden, empty.cell)))


@pytest.mark.parametrize(("agent", "network"), NETWORKS)
def test_the_soft_path_equals_the_hard_path(
    agent: str, network: Network, real: PackedObservation, layout: ObservationLayout
) -> None:
    policy = built(agent, layout, network)
    before = memory(policy, len(real))
    with torch.no_grad(), capture(policy, ["encoder_output", "action_decoder"]) as layers:
        distribution, value, after = policy(real, before)
        hard = dict(layers)
        choices, soft_after = soft_tick(policy, softened(real, layout), before)
    for name, values in hard.items():
        torch.testing.assert_close(layers[name], values, **CLOSE)
    torch.testing.assert_close(soft_after.hidden, after.hidden, **CLOSE)
    torch.testing.assert_close(soft_after.cell, after.cell, **CLOSE)
    torch.testing.assert_close(choices.value, value, **CLOSE)
    compared = 0
    for index, head in enumerate(layout.heads):
        expected = distribution.log_probabilities_of(index).exp()  # (B, size)
        result = choices.log_probabilities[head.name].exp()
        rows = result.shape[1] - 1
        if head.candidates:
            expected = torch.cat([expected[:, :rows], expected[:, -1:]], dim=1)
        torch.testing.assert_close(result, expected, **CLOSE)
        compared += int(((expected > 0.01) & (expected < 0.99)).sum())
    assert compared > 1000


@pytest.mark.parametrize(
    ("agent", "part"),
    [
        *((START_KIT, part) for part in ("material", "entity", "inventory")),
        # Embeddings of ids are straight between ids only, and recorded ids are where the lines meet.
        *((agent, part) for agent in ("takeru", "yaofeng") for part in ("material", "inventory")),
    ],
)
def test_gradients_are_those_of_finite_differences(
    agent: str, part: str, real: PackedObservation, layout: ObservationLayout
) -> None:
    few = real.take((real.inventory.counts > 0).nonzero()[:3, 0])
    precise = built(agent, layout).double()
    direction = torch.Generator().manual_seed(3)
    soft = doubled(softened(few, layout))
    before = precise.initial_state(len(few))
    before = MemoryState(before.hidden.double(), before.cell.double())
    values = getattr(soft, part) if part == "material" else getattr(soft, part).values
    along = torch.rand(values.shape, generator=direction, dtype=torch.float64) - 0.5

    def value(step: torch.Tensor) -> torch.Tensor:
        moved = values + step * along
        changed = moved if part == "material" else replace(getattr(soft, part), values=moved)
        return soft_tick(precise, replace(soft, **{part: changed}), before)[0].value.sum()

    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(step), step)
    size = 1e-6
    with torch.no_grad():
        numeric = (value(torch.tensor(size)) - value(torch.tensor(-size))) / (2 * size)
    assert abs(float(slope)) > 1e-6
    assert float(slope) == pytest.approx(float(numeric), rel=1e-4)


def doubled(soft: SoftObservation) -> SoftObservation:
    def rows(item: SoftRows) -> SoftRows:
        return replace(item, **{name: value.double() for name, value in vars(item).items()})

    return replace(
        soft, material=soft.material.double(), own=rows(soft.own), entity=rows(soft.entity),
        inventory=rows(soft.inventory), task=soft.task.double(),
        legal={head: legal.double() for head, legal in soft.legal.items()},
    )  # fmt: skip


def test_rows_that_may_be_there_count_by_their_probability(
    policy: RecurrentPolicy, real: PackedObservation, layout: ObservationLayout
) -> None:
    one = real.take((real.entity.counts > 1).nonzero()[0])
    soft = softened(one, layout)

    def encoded(presence: float) -> torch.Tensor:
        rows = soft.entity.presence.clone()
        rows[:, -1] = presence
        assert isinstance(policy.policy, ReadsProbabilities)
        return policy.policy.encode_soft(replace(soft, entity=replace(soft.entity, presence=rows)))[0]

    with torch.no_grad():
        torch.testing.assert_close(encoded(0.25), 0.25 * encoded(1.0) + 0.75 * encoded(0.0), **CLOSE)
        assert not torch.allclose(encoded(0.0), encoded(1.0), **CLOSE)


def test_an_option_weighs_as_much_as_it_is_likely_to_be_legal_and_a_choice_is_soft_backward_only() -> None:
    scores = torch.zeros(1, 3) + log_legality(torch.tensor([[1.0, 0.5, 0.0]]))
    torch.testing.assert_close(scores.softmax(dim=1), torch.tensor([[2 / 3, 1 / 3, 0.0]]))
    logits = torch.tensor([[0.1, 0.7, -0.3]], requires_grad=True)
    log_probabilities = logits.log_softmax(dim=1)
    chosen = straight_through(log_probabilities, torch.tensor([2]))
    torch.testing.assert_close(chosen, torch.tensor([[0.0, 0.0, 1.0]]))
    (gradient,) = torch.autograd.grad(chosen[0, 1], logits)
    p = logits.softmax(dim=1)[0].detach()
    torch.testing.assert_close(gradient[0], p[1] * (torch.tensor([0.0, 1.0, 0.0]) - p))


def test_a_network_without_a_soft_path_is_refused(layout: ObservationLayout) -> None:
    policy = built("hybrid", layout)
    policy.policy = torch.nn.Linear(1, 1)
    assert_refuses("this network of the agent mine has no `encode_soft`", check_reads_probabilities, policy, "mine")
