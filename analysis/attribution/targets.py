"""What is attributed: the value, an action, or a read-out of a layer; and to which components of the memory.

Components are directions of the memory's states: how much of an attribution goes through each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from activation_store.directions import Direction, Directions
from activation_store.layers import layer_names
from activation_store.schema import OPTIONS
from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.distribution import ILLEGAL, ActionDistribution
from agent_zoo.observation import ObservationLayout
from analysis.recorded.recorded_observation import state_layers
from common.argument_checks import did_you_mean, split
from common.user_error import UserError

VALUE = "value"
CHOSEN = "chosen"
_MOST_ALIKE = 1e8
"""Condition number of the components' covariance above which they cannot be told apart."""


@dataclass(frozen=True)
class Outcome:
    """What a policy computed in a tick for N agents."""

    value: torch.Tensor  # (N,)
    distribution: ActionDistribution
    layers: Mapping[str, torch.Tensor]  # name -> (N, units)
    action: torch.Tensor  # options that were chosen when this was recorded, (N, heads)


@dataclass(frozen=True)
class Target:
    """One number of an outcome: the value; of a head, an action; or of a direction, its read-out of its layer."""

    name: str = "the value"  # for titles
    head: int | None = None  # its number: the log-probability of one of its options, or how far that is above another's
    option: int | None = None  # its number; None for the one that was chosen
    other: int | None = None  # number of the option that it is compared with, a difference of logits; None for none
    direction: Direction | None = None

    def __call__(self, outcome: Outcome) -> torch.Tensor:
        """Return it, (N,); NaN where one of the options is illegal."""
        if self.direction is not None:
            weight = torch.from_numpy(self.direction.weight)
            return outcome.layers[self.direction.layer] @ weight + self.direction.bias
        if self.head is None:
            return outcome.value
        table = outcome.distribution.log_probabilities_of(self.head)  # (N, options)
        if self.option is None:
            own = table.gather(1, outcome.action[:, [self.head]]).squeeze(1)
        else:
            own = table[:, self.option]
        legal = own > ILLEGAL / 2
        if self.other is not None:
            legal = legal & (table[:, self.other] > ILLEGAL / 2)
            own = own - table[:, self.other]
        return torch.where(legal, own, torch.nan)


def target_named(
    text: str, layout: ObservationLayout, policy: RecurrentPolicy, directions: Directions | None, sha256: str,
    request: str = "--of",
) -> Target:  # fmt: skip
    """Parse `--of`.

    Args:
        text: `value`, `HEAD:OPTION`, `HEAD:OPTION-OPTION`, `HEAD:chosen` or `direction:NAME`.

    Raises:
        UserError: there is no such target, or the direction belongs to another policy.
    """
    if text == VALUE:
        return Target()
    kind, _, rest = text.partition(":")
    if kind == "direction":
        if directions is None:
            raise UserError(f"{request} is {text}: name the file that holds it with --directions")
        direction = directions.named(rest)
        direction.check_policy(policy.layer_units, "this policy", sha256)
        if direction.layer not in (there := layer_names(policy.layers, policy.cell)):
            raise UserError(
                f"{request} is {text}: {direction.layer} is not differentiated: give a direction of {', '.join(there)}"
            )
        return Target(f"{direction.name} ({direction.layer}, {direction.unit})", direction=direction)
    heads = [head.name for head in layout.heads]
    if kind not in heads or not rest:
        hint = did_you_mean(kind, [VALUE, "direction", *heads])
        raise UserError(
            f"{request} is {text}: give value, direction:NAME, HEAD:OPTION or HEAD:OPTION-OPTION, such as "
            f"Move.Direction:north-south{hint}"
        )
    number = heads.index(kind)
    first, _, second = rest.partition("-")
    size = layout.heads[number].size
    option = None if first == CHOSEN else _option(kind, first, size, request)
    other = _option(kind, second, size, request) if second else None
    versus = f" over {second}" if second else ""
    return Target(f"{kind} {first}{versus}", number, option, other)


def _option(head: str, name: str, size: int, request: str) -> int:
    known = OPTIONS.get(head, ())
    if name in known:
        return known.index(name)
    if name.isascii() and name.isdigit() and int(name[:6]) < size:
        return int(name)
    there = f"{', '.join(known)}, or a number" if known else "a number"
    raise UserError(f"{request}: {head} has no option {name!r}: give {there} below {size}, or {CHOSEN}")


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
        component.check_policy(policy.layer_units, "this policy", sha256)
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
