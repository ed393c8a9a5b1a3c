"""The memory in components: how much of an attribution goes through each of a few directions of its states."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.directions import Direction, Directions
from activation_store.layers import check_policy_layers
from agent_zoo.base import RecurrentPolicy
from analysis.recorded.recorded_observation import state_layers
from common.argument_checks import split
from common.user_error import UserError

_MOST_ALIKE = 1e8
"""Condition number of the components' covariance above which they cannot be told apart."""


@dataclass(frozen=True, eq=False)
class MemoryComponents:
    """K components of the memory. S numbers: all hidden states, layer by layer, then all cell states."""

    names: tuple[str, ...]
    read_out: torch.Tensor  # strength of a component per unit of each number of the memory, (K, S)
    pattern: torch.Tensor  # what a unit of strength adds to the memory, (K, S)
    mean: torch.Tensor  # memory at which all strengths are 0, (S,)

    def strengths(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the strengths in some memories, (N, S) to (N, K)."""
        return (memory - self.mean) @ self.read_out.T


def check_own(direction: Direction, policy: RecurrentPolicy, sha256: str) -> None:
    """Refuse a direction that is of another policy, or of a layer that this one does not have.

    Args:
        sha256: of the policy's checkpoint.
    """
    check_policy_layers([direction.layer], policy.layers, policy.cell)
    if direction.source.checkpoint_sha256 not in (None, sha256):
        raise UserError(f"direction {direction.name} belongs to another checkpoint: find it again in this policy")
    if len(direction.weight) != policy.policy.hidden_size:
        raise UserError(
            f"direction {direction.name} has {len(direction.weight)} units: {direction.layer} has "
            f"{policy.policy.hidden_size}"
        )


def chosen_components(
    text: str, directions: Directions, policy: RecurrentPolicy, sha256: str
) -> tuple[Direction, ...]:  # fmt: skip
    """Parse `--components`: names of directions, or what comes before the number in theirs, such as `ic` for all ic_N.

    Raises:
        UserError: there is no such direction, or it is of another checkpoint, or of no state of the memory.
    """
    components: dict[str, Direction] = {}
    for name in split(text):
        numbered = [direction for direction in directions if direction.name.rpartition("_")[0] == name]
        for direction in numbered or [directions.named(name)]:
            components[direction.name] = direction
    states = state_layers(policy)
    for component in components.values():
        check_own(component, policy, sha256)
        if component.layer not in states:
            raise UserError(
                f"--components: direction {component.name} is of {component.layer}, which is no state of the "
                f"memory: the memory holds {', '.join(states) or 'nothing'}"
            )
    if not components:
        raise UserError(f"--components is {text!r}: name at least one direction")
    return tuple(components.values())


def fitted_components(
    chosen: Sequence[Direction], policy: RecurrentPolicy, recorded: dict[str, np.ndarray]
) -> MemoryComponents:  # fmt: skip
    """Find what a unit of each component adds to the memory: the regression of states on the strengths.

    For a linear read-out, this is the pattern of Haufe et al. (2014): the covariance of states with strengths, times
    the inverse covariance of the strengths. Principal and independent components get back their own patterns.

    Args:
        recorded: states by the name of the layer, (B, units) each, from which covariances are taken.

    Raises:
        UserError: components of a layer cannot be told apart in these states.
    """
    names = state_layers(policy)
    units = policy.policy.hidden_size
    read_out = np.zeros((len(chosen), len(names) * units))
    pattern = np.zeros_like(read_out)
    mean = np.concatenate([recorded[name].mean(axis=0, dtype=np.float64) for name in names])
    for place, layer in enumerate(names):
        rows = [number for number, component in enumerate(chosen) if component.layer == layer]
        if not rows:
            continue
        own = slice(place * units, (place + 1) * units)
        weight = np.stack([chosen[row].weight for row in rows]).astype(np.float64)  # (k, units)
        states = recorded[layer] - mean[own]
        strengths = states @ weight.T  # (B, k)
        covariance = strengths.T @ strengths
        spread = np.sqrt(covariance.diagonal())
        if not spread.all() or np.linalg.cond(covariance / np.outer(spread, spread)) > _MOST_ALIKE:
            raise UserError(
                f"--components: the {len(rows)} directions of {layer} are combinations of each other in the recorded "
                "states, so nothing can be divided among them: name fewer"
            )
        read_out[rows, own] = weight
        pattern[rows, own] = np.linalg.solve(covariance, strengths.T @ states)
    read_outs, patterns, middle = (torch.from_numpy(array.astype(np.float32)) for array in (read_out, pattern, mean))
    return MemoryComponents(tuple(component.name for component in chosen), read_outs, patterns, middle)
