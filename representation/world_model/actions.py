"""An agent's actions as the world model's input: movement, attack, use and destruction, and that it traded at all."""

from collections.abc import Mapping

import torch
from torch.nn import functional

from agent_zoo.layers import NPC_TYPE
from agent_zoo.observation import ObservationLayout, PackedObservation
from representation.world_model.scene import KINDS, cells

WHOLE = ("Move.Direction", "Attack.Style", "Use.InventoryItem", "Destroy.InventoryItem")
"""Heads whose options are all told apart."""
TRADE = ("Buy.MarketItem", "Give.InventoryItem", "GiveGold.Target", "Sell.InventoryItem")
"""Heads of which only whether they did something is kept."""
_TARGET = "Attack.Target"


def action_size(layout: ObservationLayout) -> int:
    """Return the length of an action's code."""
    sizes = {head.name: head.size for head in layout.heads}
    return sum(sizes[name] for name in WHOLE) + len(KINDS) + 2 + len(TRADE)


def recorded_actions(options: torch.Tensor, observation: PackedObservation, layout: ObservationLayout) -> torch.Tensor:
    """Return the codes of recorded actions, (B, size).

    Args:
        options: chosen, (B, heads) int64.
        observation: that they were chosen for.
        layout: of observations and actions.
    """
    place = {head.name: index for index, head in enumerate(layout.heads)}
    sizes = {head.name: head.size for head in layout.heads}
    whole = [functional.one_hot(options[:, place[name]], sizes[name]).float() for name in WHOLE]
    rows, chosen = observation.entity, options[:, place[_TARGET]]
    attacked = (chosen < rows.counts) & (chosen < sizes[_TARGET] - 1)  # (B,)
    row = (rows.starts + chosen)[attacked]
    kind = NPC_TYPE.index(rows.values[row, layout.entity_columns.index("npc_type")]) - (NPC_TYPE.count - len(KINDS))
    target = torch.zeros(len(options), len(KINDS) + 2)
    target[attacked] = _target_codes(kind.clamp(min=0), cells(observation, layout)[row], layout)
    trade = torch.stack([(options[:, place[name]] != sizes[name] - 1).float() for name in TRADE], dim=1)
    return torch.cat([*whole, target, trade], dim=1)


def imagined_actions(
    chosen: Mapping[str, torch.Tensor], kind: torch.Tensor, cell: torch.Tensor, layout: ObservationLayout
) -> torch.Tensor:
    """Return the codes of actions that the policy took inside the model, (B, size); gradients pass through.

    Args:
        chosen: head -> one-hot, (B, options).
        kind: of each row after the agent's own, (B, R).
        cell: that each of them stands on, (B, R).
        layout: of observations and actions.
    """
    weights = chosen[_TARGET][:, 1:-1]  # (B, R): not the agent's own row, nor the no-op
    target = torch.einsum("br,brc->bc", weights, _target_codes(kind, cell, layout))
    trade = torch.stack([1 - chosen[name][:, -1] for name in TRADE], dim=1)
    return torch.cat([*(chosen[name] for name in WHOLE), target, trade], dim=1)


def _target_codes(kind: torch.Tensor, cell: torch.Tensor, layout: ObservationLayout) -> torch.Tensor:
    """Kinds and tiles, (...), to one-hot kinds and offsets from the agent as shares of its sight, (..., kinds + 2)."""
    side, reach = layout.view_side, layout.view_side // 2
    offsets = torch.stack([cell // side - reach, cell % side - reach], dim=-1) / reach
    return torch.cat([functional.one_hot(kind, len(KINDS)).float(), offsets], dim=-1)
