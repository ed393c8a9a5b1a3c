"""What passes between the world and its policy: scenes as observations in probabilities, and actions as codes.

An action's code says how the agent moves, attacks, uses and destroys, and that it traded at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from agent_zoo.network_parts.layers import ENTITY_SCALES, NPC_TYPE
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows
from agent_zoo.soft_path import SoftObservation, SoftRows
from analysis.world_model.rules import Rules
from analysis.world_model.scene import KINDS, LEGAL_HEADS, WAYS, Rows, SoftScene, cells, legal_heads, own_columns

ENTITIES = 32
"""The policy is shown the most probable entities, at most so many besides itself."""


@dataclass(frozen=True)
class Surroundings(Rows):
    """What stays as it was at the start of a simulation, of B agents."""

    market: PackedRows
    task: torch.Tensor  # embedding of the task, (B, task size)


@dataclass(frozen=True)
class ImaginedView:
    """Predicted observations and what their rows stand for."""

    observation: SoftObservation  # as the policy reads it; the first entity row is the agent's own
    kind: torch.Tensor  # index in `KINDS` of each further row, (B, R)
    cell: torch.Tensor  # tile of the view that it stands on, (B, R)


def imagined_view(
    scene: SoftScene, kind_means: torch.Tensor, around: Surroundings, layout: ObservationLayout, decided: bool = False,
    rules: Rules | None = None,
) -> ImaginedView:  # fmt: skip
    """Show scenes to the policy.

    A scene says of an entity where it stands, its kind, its health and whether it can be attacked; its other columns
    are the means of its kind. The agent can neither trade nor give.

    Args:
        kind_means: mean of each column of `Scene.own` over recorded entities of each kind, (kinds, columns).
        decided: whether the likeliest entities, as many as are expected in all, are there for sure and no others, with
            the gradients of the probabilities. What may stand anywhere is otherwise spread over more tiles than the
            policy is shown. Moves are as legal as the ground makes them, and who is in reach can be attacked.
        rules: of the world, for what is decided; the game's own where None.
    """
    rules = rules or Rules.of_game()
    agents, view, side = len(scene.own), layout.tiles, layout.view_side
    presence, place = scene.kinds.flatten(1).topk(min(ENTITIES, len(KINDS) * view), dim=1)  # (B, R)
    kind, cell = place // view, place % view
    column = {name: index for index, name in enumerate(own_columns(layout))}
    values = kind_means[kind].clone()  # (B, R, columns)
    reach = side // 2
    offsets = torch.stack([cell // side - reach, cell % side - reach], dim=-1)  # (B, R, 2)
    where = [column["row"], column["col"]]
    values[:, :, where] = scene.own[:, None, where] + offsets / ENTITY_SCALES["row"]
    values[:, :, column["health"]] = scene.health.gather(1, cell)
    first_kind = NPC_TYPE.count - len(KINDS)
    category = functional.one_hot(kind + first_kind, NPC_TYPE.count).float()
    player = functional.one_hot(torch.full((agents, 1), first_kind), NPC_TYPE.count).float()
    own = SoftRows(player, scene.own.unsqueeze(1), torch.ones(agents, 1))
    legal = _legal(scene, layout, around.market.most)
    attackable = torch.minimum(scene.target.gather(1, cell), presence)
    if decided:
        there = torch.arange(presence.shape[1]) < scene.kinds.sum(dim=(1, 2)).round().unsqueeze(1)
        near = there & _in_reach(kind, offsets, scene.own[:, column["time_alive"]], rules)
        presence, attackable = (
            soft + (sure.float() - soft.detach()) for soft, sure in ((presence, there), (attackable, near))
        )
        walkable = rules.walkable(scene)[:, WAYS]
        legal["Move.Direction"] = torch.cat([walkable, legal["Move.Direction"][:, len(WAYS) :]], dim=1)
    nobody = (1 - attackable).prod(dim=1, keepdim=True)  # the game permits no peace where there is a target
    legal["Attack.Target"] = torch.cat([torch.zeros(agents, 1), attackable, nobody], dim=1)
    entity = SoftRows(
        torch.cat([own.category, category], dim=1), torch.cat([own.values, values], dim=1),
        torch.cat([own.presence, presence], dim=1),
    )  # fmt: skip
    item_presence = 1 - scene.item_type[:, :, 0]
    observation = SoftObservation(
        material=scene.material.transpose(1, 2), own=own, entity=entity,
        inventory=SoftRows(scene.item_type, scene.items, item_presence), market=around.market, task=around.task,
        legal=legal,
    )  # fmt: skip
    return ImaginedView(observation, kind, cell)


def _in_reach(kind: torch.Tensor, offsets: torch.Tensor, time_alive: torch.Tensor, rules: Rules) -> torch.Tensor:
    """Return whether others can be attacked, (B, R), by kind and offsets, (B, R, 2). Players are of one age."""
    young = (time_alive * ENTITY_SCALES["time_alive"]).round() < rules.immunity
    return (offsets.abs().amax(dim=2) <= rules.reach) & ~((kind == KINDS.index("player")) & young.unsqueeze(1))


def _legal(scene: SoftScene, layout: ObservationLayout, for_sale: int) -> dict[str, torch.Tensor]:
    """Legality of the options of all heads; nothing but the no-op in heads of trade and gifts."""
    agents, rows = len(scene.own), {"inventory": layout.inventory, "entity": ENTITIES + 1, "market": for_sale}
    sizes = [head.size for head in legal_heads(layout)]
    predicted = dict(zip((head.name for head in legal_heads(layout)), scene.legal.split(sizes, dim=1), strict=True))
    legal = {}
    for head in layout.heads:
        if head.name in predicted:
            legal[head.name] = predicted[head.name]
        elif head.candidates:
            legal[head.name] = torch.cat([torch.zeros(agents, rows[head.candidates]), torch.ones(agents, 1)], dim=1)
        else:
            legal[head.name] = torch.ones(agents, head.size)
    return legal


TRADE = ("Buy.MarketItem", "Give.InventoryItem", "GiveGold.Target", "Sell.InventoryItem")
"""Heads of which only whether they did something is kept."""
_TARGET = "Attack.Target"


def action_size(layout: ObservationLayout) -> int:
    """Return the length of an action's code."""
    sizes = {head.name: head.size for head in layout.heads}
    return sum(sizes[name] for name in LEGAL_HEADS) + len(KINDS) + 2 + len(TRADE)


def recorded_actions(options: torch.Tensor, observation: PackedObservation, layout: ObservationLayout) -> torch.Tensor:
    """Return the codes of recorded actions, (B, size).

    Args:
        options: chosen, (B, heads) int64.
    """
    place = {head.name: index for index, head in enumerate(layout.heads)}
    sizes = {head.name: head.size for head in layout.heads}
    whole = [functional.one_hot(options[:, place[name]], sizes[name]).float() for name in LEGAL_HEADS]
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
    """
    weights = chosen[_TARGET][:, 1:-1]  # (B, R): not the agent's own row, nor the no-op
    target = torch.einsum("br,brc->bc", weights, _target_codes(kind, cell, layout))
    trade = torch.stack([1 - chosen[name][:, -1] for name in TRADE], dim=1)
    return torch.cat([*(chosen[name] for name in LEGAL_HEADS), target, trade], dim=1)


def _target_codes(kind: torch.Tensor, cell: torch.Tensor, layout: ObservationLayout) -> torch.Tensor:
    """Kinds and tiles, (...), to one-hot kinds and offsets from the agent as shares of its sight, (..., kinds + 2)."""
    side, reach = layout.view_side, layout.view_side // 2
    offsets = torch.stack([cell // side - reach, cell % side - reach], dim=-1) / reach
    return torch.cat([functional.one_hot(kind, len(KINDS)).float(), offsets], dim=-1)
