"""Read a policy's layers while it runs, and rebuild its memory from recorded layers."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, STATES, check_policy_layers, memory_names
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ActionDistribution
from agent_zoo.observation import PackedObservation
from common.user_error import UserError

ALL_LAYERS = ("all",)
"""Stands for all layers of a policy."""

Captured = dict[str, torch.Tensor]


@contextlib.contextmanager
def capture(policy: RecurrentPolicy, layers: Sequence[str]) -> Iterator[Captured]:
    """Within the block, every tick that the policy plays puts its activations into the yielded dictionary.

    Args:
        layers: names of `activation_store.layers`, or `ALL_LAYERS`.

    Yields:
        Layer name -> (B, units) of the latest tick, without gradients; empty before the first.

    Raises:
        UserError: the policy has no layer of that name.
    """
    captured: Captured = {}

    def keep(layer: str, tensor: torch.Tensor) -> None:
        captured[layer] = tensor.detach()

    with policy.hooked({layer: functools.partial(keep, layer) for layer in layer_units(policy, layers)}):
        yield captured


def layer_units(policy: RecurrentPolicy, layers: Sequence[str]) -> dict[str, int]:
    """Return the number of units of each of these layers, in the given order.

    Raises:
        UserError: the policy has no layer of that name.
    """
    if tuple(layers) == ALL_LAYERS:
        return policy.layer_units
    check_policy_layers(layers, policy.layers, policy.cell, bool(policy.semantic))
    return {layer: policy.layer_units[layer] for layer in layers}


def run_with_layers(
    policy: RecurrentPolicy, observation: PackedObservation, memory: MemoryState, layers: Sequence[str] = ALL_LAYERS
) -> tuple[ActionDistribution, torch.Tensor, MemoryState, Captured]:
    """Play one tick of B agents and return the activations of some layers.

    Args:
        policy: to run; under `torch.no_grad()` unless gradients are wanted.
        layers: names of `activation_store.layers`; by default all layers of the policy.

    Returns:
        Distribution over actions, value (B,), memory after the tick, and layer name -> (B, units). Everything
        that depends on a layer can be differentiated with respect to it.

    Raises:
        UserError: the policy has no layer of that name.
    """
    captured: Captured = {}

    def keep(layer: str, tensor: torch.Tensor) -> torch.Tensor:
        # A new tensor, from which the rest of the tick is computed: the outputs of nn.LSTM and nn.GRU do not depend on
        # their states.
        captured[layer] = tensor.view_as(tensor)
        return captured[layer]

    with policy.hooked({layer: functools.partial(keep, layer) for layer in layer_units(policy, layers)}):
        return *policy(observation, memory), captured


def memory_from_layers(policy: RecurrentPolicy, recorded: Mapping[str, np.ndarray]) -> MemoryState:
    """Rebuild the memory of some agents after a recorded tick, which is also their memory before the next one.

    A float32 dump gives the exact memory, a float16 dump a rounded one. The first tick of a life starts from
    `policy.initial_state`.

    Args:
        recorded: layer name -> (B, units), including all states of all the memory's layers, as in
            `Records.activations`.

    Raises:
        UserError: a layer is missing, or has another number of units.
    """
    agents = len(next(iter(recorded.values()), ()))
    memory = policy.initial_state(agents)
    parts = {LSTM_HIDDEN: memory.hidden, LSTM_CELL: memory.cell}
    for kind in STATES[policy.cell]:
        states = parts[kind]  # (layers, B, units)
        for number, name in enumerate(memory_names(kind, policy.layers)):
            if name not in recorded:
                raise UserError(
                    f"the memory cannot be rebuilt: layer {name} was not recorded; extract again with --record standard"
                )
            if recorded[name].shape != (agents, states.shape[2]):
                raise UserError(
                    f"layer {name} was recorded as {recorded[name].shape}, but the memory of {agents} agents of this "
                    f"policy is {(agents, states.shape[2])}: give the policy that was recorded"
                )
            states[number] = torch.from_numpy(recorded[name].astype(np.float32))
    return memory
