"""What a world model predicts of an agent's observation, exact or in probabilities.

The market and gifts are left out: nothing of them is predicted, and the policy inside the model cannot trade or give.
The agent's task does not change within a life.
"""

from dataclasses import dataclass, fields
from math import isqrt

import torch
from torch.nn import functional

from agent_zoo.layers import ITEM_TYPE, NPC_TYPE, entity_features, item_features, own_rows
from agent_zoo.observation import ActionHead, ObservationLayout, PackedObservation, legal_options
from agent_zoo.soft_observation import grid_of_rows
from representation.world_model.moves import unknown_terrain, with_view

KINDS = ("player", "passive NPC", "neutral NPC", "aggressive NPC")
_FIRST_KIND = NPC_TYPE.count - len(KINDS)  # immortal NPCs, which the game does not spawn, are left out
VITALS = ("health", "food", "water")
VITAL_STEP = 5
VITAL_LEVELS = 21
"""Vitals are predicted as one of 21 levels: 0, 5, 10 up to 100."""
LEGAL_HEADS = ("Move.Direction", "Attack.Style", "Use.InventoryItem", "Destroy.InventoryItem")
"""Heads whose legal options are predicted; those of `Attack.Target` are a plane of the view."""
ITEM_TYPES = ITEM_TYPE.count


@dataclass(frozen=True)
class Scene:
    """B observations as targets. The view has V tiles.

    Attributes:
        material: of each tile, (B, V) int64.
        kinds: whether a tile holds another entity of each kind, (B, kinds, V).
        health: of the entities on each tile, on average and divided by 100; 0 without, (B, V).
        target: whether an entity on the tile can be attacked, (B, V).
        own: the agent's own row but for its kind, divided by scales, (B, columns).
        item_type: of each inventory slot, 0 if it is empty, (B, slots) int64.
        items: its other columns, divided by scales, (B, slots, columns).
        legal: legality of the options of `LEGAL_HEADS`, (B, options).
    """

    material: torch.Tensor
    kinds: torch.Tensor
    health: torch.Tensor
    target: torch.Tensor
    own: torch.Tensor
    item_type: torch.Tensor
    items: torch.Tensor
    legal: torch.Tensor

    def __len__(self) -> int:
        return len(self.own)

    def take(self, ticks: torch.Tensor) -> "Scene":
        """Return some of the observations."""
        return Scene(**{each.name: getattr(self, each.name)[ticks] for each in fields(self)})

    def soft(self, materials: int) -> "SoftScene":
        """Return the same as probabilities of 0 and 1."""
        return SoftScene(
            functional.one_hot(self.material, materials).float().transpose(1, 2), self.kinds, self.health, self.target,
            self.own, functional.one_hot(self.item_type, ITEM_TYPES).float(), self.items, self.legal,
            with_view(unknown_terrain(len(self), isqrt(self.material.shape[1])), self.material),
        )  # fmt: skip


@dataclass(frozen=True)
class SoftScene:
    """B predicted observations: probabilities and expected values.

    Attributes:
        material: (B, materials, V).
        kinds: (B, kinds, V).
        health: (B, V).
        target: (B, V).
        own: (B, columns).
        item_type: (B, slots, types).
        items: (B, slots, columns).
        legal: (B, options).
        terrain: the most probable material of each tile in view, and of those beyond that were in view before, around
            the agent, (B, S, S) int8; `moves.UNKNOWN` where it never was.
    """

    material: torch.Tensor
    kinds: torch.Tensor
    health: torch.Tensor
    target: torch.Tensor
    own: torch.Tensor
    item_type: torch.Tensor
    items: torch.Tensor
    legal: torch.Tensor
    terrain: torch.Tensor

    def planes(self) -> torch.Tensor:
        """Return everything about tiles, (B, materials + kinds + 2, V)."""
        return torch.cat([self.material, self.kinds, self.health.unsqueeze(1), self.target.unsqueeze(1)], dim=1)

    def numbers(self) -> torch.Tensor:
        """Return everything else, (B, numbers)."""
        return torch.cat([self.own, self.item_type.flatten(1), self.items.flatten(1), self.legal], dim=1)

    def where(self, chosen: torch.Tensor, other: "SoftScene") -> "SoftScene":
        """Return these observations where chosen, (B,) bool, and the others elsewhere."""
        mixed = {}
        for each in fields(self):
            mine, others = getattr(self, each.name), getattr(other, each.name)
            mixed[each.name] = torch.where(chosen.view(-1, *[1] * (mine.dim() - 1)), mine, others)
        return SoftScene(**mixed)

    def detach(self) -> "SoftScene":
        """Return the same without gradients."""
        return SoftScene(**{each.name: getattr(self, each.name).detach() for each in fields(self)})


@dataclass(frozen=True)
class SceneShape:
    """How large the parts of a scene are.

    Attributes:
        side: of the view, in tiles.
        materials: number of them.
        own: columns of the agent's own row.
        slots: of the inventory.
        item: columns of an item.
        legal: options of `LEGAL_HEADS`.
    """

    side: int
    materials: int
    own: int
    slots: int
    item: int
    legal: int

    @staticmethod
    def of(layout: ObservationLayout) -> "SceneShape":
        """Return the shape of the scenes of a world."""
        own, item = len(layout.entity_columns) - 1, len(layout.item_columns) - 1
        legal = sum(head.size for head in legal_heads(layout))
        return SceneShape(layout.view_side, layout.materials, own, layout.inventory, item, legal)

    @property
    def planes(self) -> int:
        """Channels of `SoftScene.planes`."""
        return self.materials + len(KINDS) + 2

    @property
    def numbers(self) -> int:
        """Length of `SoftScene.numbers`."""
        return self.own + self.slots * (ITEM_TYPES + self.item) + self.legal

    def blank(self, ticks: int) -> SoftScene:
        """Return scenes that show nothing."""
        view = self.side**2

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(ticks, *shape)

        return SoftScene(
            zeros(self.materials, view), zeros(len(KINDS), view), zeros(view), zeros(view), zeros(self.own),
            zeros(self.slots, ITEM_TYPES), zeros(self.slots, self.item), zeros(self.legal),
            unknown_terrain(ticks, self.side),
        )  # fmt: skip


def own_columns(layout: ObservationLayout) -> tuple[str, ...]:
    """Return the names of the columns of `Scene.own`."""
    return tuple(name for name in layout.entity_columns if name != "npc_type")


def legal_heads(layout: ObservationLayout) -> list[ActionHead]:
    """Return the heads of `LEGAL_HEADS` that the world has, in the order of its heads."""
    return [head for head in layout.heads if head.name in LEGAL_HEADS]


def scene_of(observation: PackedObservation, layout: ObservationLayout) -> Scene:
    """Extract from observations what is predicted of them."""
    agents, view = len(observation), layout.tiles
    features = entity_features(layout)
    rows, owner = observation.entity.values, observation.entity.owner
    flags = legal_options(observation, layout).float().split([head.size for head in layout.heads], dim=1)
    legal = {head.name: flag for head, flag in zip(layout.heads, flags, strict=True)}
    cell = cells(observation, layout)
    kind = NPC_TYPE.index(rows[:, layout.entity_columns.index("npc_type")]) - _FIRST_KIND
    other = (rows[:, 0] != observation.agent_id[owner]) & (cell >= 0) & (kind >= 0)
    place = owner * view + cell
    kinds = torch.zeros(agents, len(KINDS), view)
    kinds[owner[other], kind[other], cell[other]] = 1
    count = torch.zeros(agents * view).index_add(0, place[other], torch.ones(int(other.sum())))
    health = rows[:, layout.entity_columns.index("health")].float() / 100
    total = torch.zeros(agents * view).index_add(0, place[other], health[other])
    attackable = legal["Attack.Target"][owner, observation.entity.place] > 0
    target = torch.zeros(agents * view)
    target[place[other & attackable]] = 1
    items = item_features(layout)
    ((column, category),) = items.categories
    carried = observation.inventory
    slots = torch.arange(layout.inventory)
    item_type = torch.zeros(agents, layout.inventory, dtype=torch.int64)
    values = torch.zeros(agents, layout.inventory, len(items.other_columns))
    if carried.most:
        item_type[:, slots[: carried.most]] = grid_of_rows(category.index(carried.values[:, column]), carried)
        values[:, slots[: carried.most]] = grid_of_rows(carried.values[:, items.other_columns] / items.scale, carried)
    return Scene(
        observation.material.long(), kinds, (total / count.clamp(min=1)).view(agents, view), target.view(agents, view),
        own_rows(observation)[:, features.other_columns] / features.scale, item_type, values,
        torch.cat([legal[head.name] for head in legal_heads(layout)], dim=1),
    )  # fmt: skip


def cells(observation: PackedObservation, layout: ObservationLayout) -> torch.Tensor:
    """Return the tile of the view that each entity row stands on, (rows,) int64; -1 outside the view."""
    place = [layout.entity_columns.index(name) for name in ("row", "col")]
    reach, side = layout.view_side // 2, layout.view_side
    offset = (observation.entity.values[:, place] - observation.centre[observation.entity.owner]).long() + reach
    inside = ((offset >= 0) & (offset < side)).all(dim=1)
    return torch.where(inside, offset[:, 0] * side + offset[:, 1], -1)


def kind_totals(observation: PackedObservation, layout: ObservationLayout) -> torch.Tensor:
    """Sum the columns of `Scene.own` over all other entities of each kind, and count them, (kinds, columns + 1)."""
    features, rows = entity_features(layout), observation.entity
    kind = NPC_TYPE.index(rows.values[:, layout.entity_columns.index("npc_type")]) - _FIRST_KIND
    other = (rows.values[:, 0] != observation.agent_id[rows.owner]) & (kind >= 0)
    values = rows.values[other][:, features.other_columns] / features.scale
    counted = torch.cat([values, torch.ones(len(values), 1)], dim=1).double()
    return torch.zeros(len(KINDS), counted.shape[1], dtype=torch.float64).index_add(0, kind[other], counted)


def vital_columns(layout: ObservationLayout) -> list[int]:
    """Return the places of `VITALS` in `Scene.own`."""
    return [own_columns(layout).index(name) for name in VITALS]


def vital_levels(vitals: torch.Tensor) -> torch.Tensor:
    """Return the nearest of the 21 levels of each vital, int64, given shares of 100."""
    return (vitals * 100 / VITAL_STEP).round().long().clamp(0, VITAL_LEVELS - 1)
