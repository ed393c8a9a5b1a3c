"""An encoder that multiplies in bfloat16 computes nearly the same, and learns along nearly the same gradients."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import agent_zoo
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout, pack
from tests.agent_zoo.test_packed_equals_dense import NETWORKS


@pytest.fixture(params=NETWORKS, ids="-".join)
def policy(request, layout: ObservationLayout) -> RecurrentPolicy:
    torch.manual_seed(0)
    agent, network = request.param
    return agent_zoo.load(agent).Recurrent(agent_zoo.policy_class(agent, network)(layout, hidden_size=64), layers=1)


def outputs(policy: RecurrentPolicy, seen: np.ndarray, layout: ObservationLayout) -> dict[str, torch.Tensor]:
    """What a policy computes in a tick, and the gradient of the sum of its outputs as one vector."""
    policy.zero_grad()
    observation = pack(seen, layout)
    encoded, candidates = policy.encode(observation)
    hidden, after = policy.remember(encoded, policy.initial_state(len(observation)))
    distribution, value = policy.decode(hidden, candidates, observation)
    (distribution.entropy().sum() + value.sum()).backward()
    gradients = [parameter.grad.flatten() for parameter in policy.parameters() if parameter.grad is not None]
    keys = {f"keys of {table}": keys for table, keys in candidates.keys.items()}
    return {"encoded": encoded, "cell": after.cell, "value": value, "gradient": torch.cat(gradients), **keys}


def test_outputs_and_gradients_are_nearly_those_of_full_precision(policy, seen, layout) -> None:
    full = outputs(policy, seen[::4], layout)
    policy.bfloat16_encoder = True
    rounded = outputs(policy, seen[::4], layout)
    for name, values in full.items():
        assert rounded[name].dtype == torch.float32, name
        error = (rounded[name] - values).norm() / values.norm()
        assert error < 0.03, f"{name}: {error}"
    assert not torch.equal(rounded["encoded"], full["encoded"])
    assert functional.cosine_similarity(rounded["gradient"], full["gradient"], dim=0) > 0.999
    policy.bfloat16_encoder = False
    again = outputs(policy, seen[::4], layout)
    assert all(torch.equal(again[name], values) for name, values in full.items()), "it leaves nothing behind"
