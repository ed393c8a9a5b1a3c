"""Encoding only the used rows, or in bfloat16, is (nearly) the same function, and has the same gradients."""

from typing import get_args

import numpy as np
import pytest
import torch
from torch.nn import functional

import agent_zoo
from agent_zoo import Network
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout, legal_options, pack
from benchmarks.dense import DenseObservation, DensePolicy

NETWORKS = [
    (name, network)
    for name in agent_zoo.names()
    for network in get_args(Network)
    if network == "published" or agent_zoo.load(name).EarlierPolicy is not None
]


@pytest.fixture(params=NETWORKS, ids="-".join)
def policy(request, layout: ObservationLayout):
    torch.manual_seed(0)
    return agent_zoo.policy_class(*request.param)(layout, hidden_size=32).double()


def forward(policy, observation) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Encoder output, log-probabilities of all options of concatenated heads, entropies, and values."""
    encoded, candidates = policy.encode_observations(observation)
    distribution, value = policy.decode_actions(policy.decoder_input(encoded), candidates, observation)
    return encoded, torch.cat(list(distribution.log_probabilities), dim=1), distribution.entropy(), value


def test_observations_have_every_kind_of_row_and_a_centred_view(seen: np.ndarray) -> None:
    for table in ("Entity", "Inventory", "Market"):
        used = seen[table][:, :, 0] != 0
        assert used.any(), f"no used row of {table}: the comparison would prove nothing"
        assert (np.diff(used.astype(int), axis=1) <= 0).all(), f"used rows of {table} do not come first"
    # Tile positions relative to the agent are the same for all agents, so only materials need encoding.
    relative = seen["Tile"][:, :, :2] - seen["Tile"][:, 112:113, :2]
    rows, columns = np.divmod(np.arange(225), 15)
    assert (relative == np.stack([rows - 7, columns - 7], axis=1)).all()


def test_putting_the_padding_back_gives_the_games_tables_and_some_agents_keep_their_rows(
    seen: np.ndarray, layout: ObservationLayout
) -> None:
    games, padded = DenseObservation.of_game(seen, layout), DenseObservation.of_packed(pack(seen, layout), layout)
    assert games.tables.keys() == padded.tables.keys()
    for name in games.tables:
        assert torch.equal(games[name], padded[name]), name
    assert torch.equal(legal_options(pack(seen, layout), layout), games["ActionTargets"])
    chosen = torch.tensor([7, 3, 3, 0])
    taken, alone = pack(seen, layout).take(chosen), pack(seen[chosen.numpy()], layout)
    for table in ("entity", "inventory", "market"):
        assert torch.equal(getattr(taken, table).values, getattr(alone, table).values)
        assert torch.equal(getattr(taken, table).counts, getattr(alone, table).counts)
    assert torch.equal(taken.legal, alone.legal) and torch.equal(taken.material, alone.material)


def test_outputs_and_gradients_are_equal(policy, seen: np.ndarray, layout: ObservationLayout) -> None:
    seen = seen[::4]
    dense = DenseObservation.of_game(seen, layout)
    legal = dense["ActionTargets"]
    weights = torch.randn(legal.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients, outputs = [], []
    for network, observation in ((policy, pack(seen, layout)), (DensePolicy(policy), dense)):
        policy.zero_grad()
        encoded, log_probability, entropy, value = forward(network, observation)
        (encoded.square().sum() + (weights * log_probability)[legal].sum() + entropy.sum() + value.sum()).backward()
        assert (log_probability[~legal] < -1e6).all()
        outputs.append((encoded, log_probability[legal], entropy, value))
        gradients.append({name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None})
    for packed, plain in zip(*outputs, strict=True):
        torch.testing.assert_close(packed, plain, rtol=1e-9, atol=1e-9)
    assert gradients[0].keys() == gradients[1].keys() == {name for name, _ in policy.named_parameters()}
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-7, atol=1e-7, msg=name)


@torch.no_grad()
def test_the_dense_network_draws_the_same_actions_with_the_same_log_probabilities(policy, seen, layout) -> None:
    seen = seen[::2]
    observation = pack(seen, layout)
    encoded, candidates = policy.encode_observations(observation)
    distribution, _ = policy.decode_actions(encoded, candidates, observation)
    uniforms = torch.rand(len(seen), len(layout.heads), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    actions = distribution.sample(uniforms)
    dense, network = DenseObservation.of_game(seen, layout), DensePolicy(policy)
    plain, _ = network.decode_actions(*network.encode_observations(dense), dense)
    assert torch.equal(actions, plain.sample(uniforms))
    torch.testing.assert_close(distribution.log_probability(actions), plain.log_probability(actions))


@pytest.mark.parametrize("agent", agent_zoo.names())
def test_nobody_alive_is_no_error(agent: str, layout: ObservationLayout, seen: np.ndarray) -> None:
    """In the tick in which the last agent of all worlds dies, there are no agents to decide for."""
    module = agent_zoo.load(agent)
    policy = module.Recurrent(module.Policy(layout, hidden_size=16))
    with torch.no_grad():
        distribution, value, state = policy(pack(seen[:0], layout), policy.initial_state(0))
        actions = distribution.sample(torch.zeros(0, len(layout.heads), dtype=torch.float64))
    assert actions.shape == (0, len(layout.heads)) and len(value) == 0 and state.hidden.shape == (policy.layers, 0, 16)


@pytest.fixture(params=NETWORKS, ids="-".join)
def recurrent(request, layout: ObservationLayout) -> RecurrentPolicy:
    torch.manual_seed(0)
    agent, network = request.param
    return agent_zoo.load(agent).Recurrent(agent_zoo.policy_class(agent, network)(layout, hidden_size=64), layers=1)


def outputs(recurrent: RecurrentPolicy, seen: np.ndarray, layout: ObservationLayout) -> dict[str, torch.Tensor]:
    """What a policy computes in a tick, and the gradient of the sum of its outputs as one vector."""
    recurrent.zero_grad()
    observation = pack(seen, layout)
    encoded, candidates = recurrent.encode(observation)
    hidden, after = recurrent.remember(encoded, recurrent.initial_state(len(observation)))
    distribution, value = recurrent.decode(hidden, candidates, observation)
    (distribution.entropy().sum() + value.sum()).backward()
    gradients = [parameter.grad.flatten() for parameter in recurrent.parameters() if parameter.grad is not None]
    keys = {f"keys of {table}": keys for table, keys in candidates.keys.items()}
    return {"encoded": encoded, "cell": after.cell, "value": value, "gradient": torch.cat(gradients), **keys}


def test_outputs_and_gradients_are_nearly_those_of_full_precision(recurrent, seen, layout) -> None:
    full = outputs(recurrent, seen[::4], layout)
    recurrent.bfloat16_encoder = True
    rounded = outputs(recurrent, seen[::4], layout)
    for name, values in full.items():
        assert rounded[name].dtype == torch.float32, name
        error = (rounded[name] - values).norm() / values.norm()
        assert error < 0.03, f"{name}: {error}"
    assert not torch.equal(rounded["encoded"], full["encoded"])
    assert functional.cosine_similarity(rounded["gradient"], full["gradient"], dim=0) > 0.999
    recurrent.bfloat16_encoder = False
    again = outputs(recurrent, seen[::4], layout)
    assert all(torch.equal(again[name], values) for name, values in full.items()), "it leaves nothing behind"
