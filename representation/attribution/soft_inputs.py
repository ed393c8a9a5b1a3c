"""A policy's observations as numbers that a gradient can flow to.

Materials become one-hot planes, table rows their features, which is what the encoders embed. Gradient times input of a
one-hot plane is gradient times input of the tile's embedding, since embedding is linear.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.base import RecurrentPolicy
from agent_zoo.layers import RowFeatures, own_rows
from agent_zoo.observation import PackedObservation, PackedRows
from agent_zoo.tiles import TileConvolution
from user_error import UserError

_NEEDED = {"tile_convolution": TileConvolution, "entity_features": RowFeatures, "item_features": RowFeatures}


@dataclass(frozen=True)
class SoftInputs:
    """The inputs of B observations.

    Attributes:
        tiles: one-hot materials, (B, tiles, materials).
        entities: features of the visible entities, (B, most entities, features); zeros beyond an agent's entities.
        own: features of the agent's own row, (B, features).
        inventory: features of its items, (B, most items, features).
        task: embedding of its task, (B, task size).
    """

    tiles: torch.Tensor
    entities: torch.Tensor
    own: torch.Tensor
    inventory: torch.Tensor
    task: torch.Tensor


def check_agent(policy: RecurrentPolicy) -> None:
    """Refuse a policy whose encoder is not made of the blocks that observations can be softened for.

    Raises:
        UserError: names the missing block.
    """
    for name, kind in _NEEDED.items():
        if not isinstance(getattr(policy.policy, name, None), kind):
            raise UserError(
                f"attribution needs an encoder with a {kind.__name__} called {name}, as those in agent_zoo/ have"
            )


def soft_inputs(policy: RecurrentPolicy, observation: PackedObservation) -> SoftInputs:
    """Return the inputs that stand for an observation exactly."""
    encoder = policy.policy
    with torch.no_grad():
        return SoftInputs(
            tiles=functional.one_hot(observation.material.long(), encoder.layout.materials).float(),
            entities=padded(encoder.entity_features(observation.entity.values), observation.entity),  # type: ignore[operator]
            own=encoder.entity_features(own_rows(observation)),  # type: ignore[operator]
            inventory=padded(encoder.item_features(observation.inventory.values), observation.inventory),  # type: ignore[operator]
            task=observation.task.float(),
        )


def padded(values: torch.Tensor, rows: PackedRows) -> torch.Tensor:
    """Arrange values of packed rows, (rows, ...), by agent, with zeros: (B, most rows, ...)."""
    grid = values.new_zeros(len(rows.counts), rows.most, *values.shape[1:])
    grid[rows.owner, rows.place] = values
    return grid


@contextlib.contextmanager
def softened(
    policy: RecurrentPolicy, observation: PackedObservation, inputs: SoftInputs
) -> Iterator[PackedObservation]:
    """Within the block, the policy encodes these inputs in place of the observation's own.

    Which rows there are, which options are legal and what the market shows stay the observation's.

    Yields:
        The observation to give to `policy.encode`.
    """
    encoder = policy.policy
    entity, inventory = observation.entity, observation.inventory

    def tiles(module: nn.Module, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        assert isinstance(module, TileConvolution)
        return module.soft(inputs.tiles, *arguments[1:])

    def entities(module: nn.Module, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        if arguments[0] is entity.values:
            return inputs.entities[entity.owner, entity.place]
        return inputs.own if arguments[0].any() else output  # a padding row is all zeros

    def items(module: nn.Module, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return inputs.inventory[inventory.owner, inventory.place] if arguments[0] is inventory.values else output

    hooks = {"tile_convolution": tiles, "entity_features": entities, "item_features": items}
    handles = [getattr(encoder, name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        yield replace(observation, task=inputs.task)
    finally:
        for handle in handles:
            handle.remove()


def by_column(features: RowFeatures, values: torch.Tensor) -> torch.Tensor:
    """Add up what belongs to the features of each column of a table, (..., features) to (..., columns)."""
    others = features.other_columns.tolist()
    found = values.new_zeros(*values.shape[:-1], len(features.columns))
    start = 0
    for column, category in features.categories:
        size = features._category_size(category)
        found[..., column] = values[..., start : start + size].sum(dim=-1)
        start += size
    found[..., others] = values[..., start:]
    return found
