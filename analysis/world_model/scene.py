"""What a world model predicts of an agent's observation, exact or in probabilities.

The market and gifts are left out: nothing of them is predicted, and the policy inside the model cannot trade or give.
The agent's task does not change within a life.
"""

from dataclasses import dataclass, fields
from math import isqrt
from typing import Self

import numpy as np
import torch
from torch.nn import functional

from agent_zoo.network_parts.layers import ITEM_TYPE, NPC_TYPE, entity_features, item_features, own_rows
from agent_zoo.observation import ActionHead, ObservationLayout, PackedObservation, legal_options
from agent_zoo.soft_path import grid_of_rows

KINDS = ("player", "passive NPC", "neutral NPC", "aggressive NPC")
_FIRST_KIND = NPC_TYPE.count - len(KINDS)  # immortal NPCs, which the game does not spawn, are left out
VITALS = ("health", "food", "water")
VITAL_STEP = 5
VITAL_LEVELS = 21
"""Vitals are predicted as one of 21 levels: 0, 5, 10 up to 100."""
LEGAL_HEADS = ("Move.Direction", "Attack.Style", "Use.InventoryItem", "Destroy.InventoryItem")
"""Heads whose legal options are predicted; those of `Attack.Target` are a plane of the view."""
ITEM_TYPES = ITEM_TYPE.count


class Rows:
    """A data class whose parts, tensors or others with a `take`, have the same B agents, simulations or ticks."""

    def take(self, chosen: torch.Tensor) -> Self:
        """Return some of them, in their order."""
        parts = vars(self).items()
        return type(self)(**{name: p[chosen] if isinstance(p, torch.Tensor) else p.take(chosen) for name, p in parts})


class Tables:
    """A data class of tensors that are written to a model's file."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the numbers by name."""
        return {name: tensor.numpy() for name, tensor in vars(self).items()}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild from `arrays`.

        Raises:
            LookupError: one is missing.
        """
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: torch.from_numpy(arrays[name].copy()) for name in names})


@dataclass(frozen=True)
class Scene(Rows):
    """B observations as targets. The view has V tiles."""

    material: torch.Tensor  # of each tile, (B, V) int64
    kinds: torch.Tensor  # whether a tile holds another entity of each kind, (B, kinds, V)
    health: torch.Tensor  # of the entities on each tile, on average and divided by 100; 0 without, (B, V)
    target: torch.Tensor  # whether an entity on the tile can be attacked, (B, V)
    own: torch.Tensor  # the agent's own row but for its kind, divided by scales, (B, columns)
    item_type: torch.Tensor  # of each inventory slot, 0 if it is empty, (B, slots) int64
    items: torch.Tensor  # its other columns, divided by scales, (B, slots, columns)
    legal: torch.Tensor  # legality of the options of `LEGAL_HEADS`, (B, options)

    def __len__(self) -> int:
        return len(self.own)

    def soft(self, materials: int) -> "SoftScene":
        """Return the same as probabilities of 0 and 1."""
        return SoftScene(
            functional.one_hot(self.material, materials).float().transpose(1, 2), self.kinds, self.health, self.target,
            self.own, functional.one_hot(self.item_type, ITEM_TYPES).float(), self.items, self.legal,
            with_view(unknown_terrain(len(self), isqrt(self.material.shape[1])), self.material), self.kinds,
            torch.zeros(len(self), 3, dtype=torch.int64),
        )  # fmt: skip


@dataclass(frozen=True)
class SoftScene(Rows):
    """B predicted observations: probabilities and expected values."""

    material: torch.Tensor  # (B, materials, V); the others as in `Scene`
    kinds: torch.Tensor
    health: torch.Tensor
    target: torch.Tensor
    own: torch.Tensor
    item_type: torch.Tensor  # (B, slots, types)
    items: torch.Tensor
    legal: torch.Tensor
    # terrain: the most probable material of each tile in view, and of those beyond that were in view before, around the
    # agent, (B, S, S) int8; `UNKNOWN` where it never was
    terrain: torch.Tensor
    seen: torch.Tensor  # `kinds` of the last real view, (B, kinds, V)
    since: torch.Tensor  # ticks since then, and rows and columns walked, (B, 3) int64; -1 ticks if there was none

    def planes(self) -> torch.Tensor:
        """Return everything about tiles, (B, materials + kinds + 2, V)."""
        return torch.cat([self.material, self.kinds, self.health.unsqueeze(1), self.target.unsqueeze(1)], dim=1)

    def numbers(self) -> torch.Tensor:
        """Return everything else, (B, numbers)."""
        return torch.cat([self.own, self.item_type.flatten(1), self.items.flatten(1), self.legal], dim=1)

    def where(self, chosen: torch.Tensor, other: "SoftScene") -> "SoftScene":
        """Return these observations where chosen, (B,) bool, and the others elsewhere."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return SoftScene(*(torch.where(chosen.view(-1, *[1] * (mine.dim() - 1)), mine, its) for mine, its in pairs))

    def detach(self) -> "SoftScene":
        """Return the same without gradients."""
        return SoftScene(*(part.detach() for part in vars(self).values()))


@dataclass(frozen=True)
class SceneShape:
    """How large the parts of a scene are."""

    side: int  # of the view, in tiles
    materials: int
    own: int  # columns of the agent's own row
    slots: int
    item: int  # columns of an item
    legal: int  # options of `LEGAL_HEADS`

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
            unknown_terrain(ticks, self.side), zeros(len(KINDS), view), torch.tensor([[-1, 0, 0]]).repeat(ticks, 1),
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


def likeliest(presence: torch.Tensor) -> torch.Tensor:
    """Return which rows to show: as many as are expected, the likeliest, (B, rows) probabilities to bool.

    With a threshold of one half, whatever moves about would be lost as soon as it can stand on more than two tiles.
    """
    rank = presence.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return rank < presence.sum(dim=1, keepdim=True).round()


def vital_columns(layout: ObservationLayout) -> list[int]:
    """Return the places of `VITALS` in `Scene.own`."""
    return [own_columns(layout).index(name) for name in VITALS]


def vital_levels(vitals: torch.Tensor) -> torch.Tensor:
    """Return the nearest of the 21 levels of each vital, int64, given shares of 100."""
    return (vitals * 100 / VITAL_STEP).round().long().clamp(0, VITAL_LEVELS - 1)


MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns that an agent can move by in a tick."""
WAYS = [MOVES.index(step) for step in ((-1, 0), (1, 0), (0, 1), (0, -1))]
"""Those to the north, south, east and west: the options of `Move.Direction` but the last, in their order."""

REACH = 16
"""Tiles beyond the view, on each side, in which terrain is remembered."""
UNKNOWN = -1
"""Material of a tile of the terrain that was never in view."""


def shift(planes: torch.Tensor, moved: torch.Tensor, frame: torch.Tensor | None = None) -> torch.Tensor:
    """Shift views by the agent's own displacement, known in probabilities.

    Args:
        planes: (B, channels, side, side).
        moved: probabilities of `MOVES`, (B, moves).
        frame: the views with a frame of one tile, which tiles that come into view are taken from, (B, channels,
            side + 2, side + 2); None for zeros.
    """
    side = planes.shape[-1]
    wide = functional.pad(planes, (1, 1, 1, 1)) if frame is None else frame
    total = torch.zeros_like(planes)
    for number, (row, column) in enumerate(MOVES):
        part = wide[:, :, 1 + row : 1 + row + side, 1 + column : 1 + column + side]
        total = total + moved[:, number].view(-1, 1, 1, 1) * part
    return total


def edged(planes: torch.Tensor) -> torch.Tensor:
    """Frame views with what the nearest tile holds, (B, channels, side, side) to (B, channels, side + 2, side + 2)."""
    return functional.pad(planes, (1, 1, 1, 1), mode="replicate")


def framed(materials: torch.Tensor, terrain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Frame views of materials with the terrain remembered around them, or else with the nearest tile.

    Args:
        materials: probabilities, (B, materials, side, side).
        terrain: see `SoftScene`, (B, S, S).

    Returns:
        The framed views, (B, materials, side + 2, side + 2), and which of their tiles are known, (B, 1, side + 2,
        side + 2).
    """
    side = materials.shape[-1]
    near = terrain[:, REACH - 1 : REACH + side + 1, REACH - 1 : REACH + side + 1].long()
    frame = torch.ones(near.shape[1:], dtype=torch.bool)
    frame[1:-1, 1:-1] = False
    remembered = (near != UNKNOWN) & frame
    one_hot = functional.one_hot(near.clamp(min=0), materials.shape[1]).to(materials.dtype).permute(0, 3, 1, 2)
    known = (remembered | ~frame).unsqueeze(1)
    return torch.where(remembered.unsqueeze(1), one_hot, edged(materials)), known.to(materials.dtype)


def unknown_terrain(count: int, side: int) -> torch.Tensor:
    """Return terrain of which nothing is known, around views of `side` tiles, (count, S, S) int8."""
    return torch.full((count, side + 2 * REACH, side + 2 * REACH), UNKNOWN, dtype=torch.int8)


def moved_terrain(terrain: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """Shift terrain, (B, S, S), by the number of each agent's move, (B,) int64; tiles at the far end are unknown."""
    size = terrain.shape[-1]
    wide = functional.pad(terrain, (1, 1, 1, 1), value=UNKNOWN)
    parts = torch.stack([wide[:, 1 + row : 1 + row + size, 1 + column : 1 + column + size] for row, column in MOVES])
    return parts[moved, torch.arange(len(terrain))]


def later(since: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """Return `SoftScene.since`, (B, 3), a tick and a move, (B,) int64, later."""
    steps = torch.tensor([(1, *move) for move in MOVES])[moved]
    return torch.where(since[:, :1] < 0, since, since + steps)


def with_view(terrain: torch.Tensor, material: torch.Tensor) -> torch.Tensor:
    """Return terrain, (B, S, S), once the materials in view, (B, V) int64, are seen."""
    side = terrain.shape[-1] - 2 * REACH
    full = terrain.clone()
    full[:, REACH : REACH + side, REACH : REACH + side] = material.view(-1, side, side).to(terrain.dtype)
    return full


def view_of(terrain: torch.Tensor) -> torch.Tensor:
    """Return the part of terrain, (B, S, S), that is in view, (B, side, side)."""
    return terrain[:, REACH:-REACH, REACH:-REACH]


def with_seen(terrain: torch.Tensor, material: torch.Tensor) -> torch.Tensor:
    """Return terrain, (B, S, S), whose tiles in view, if they are known, hold these materials, (B, V) int64."""
    known = view_of(terrain).flatten(1)
    return with_view(terrain, torch.where(known == UNKNOWN, known, material.to(terrain.dtype)))


def displacement(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return which of `MOVES` leads from one place to the next, (B, 2) twice to (B,) int64; 0 where none does."""
    step = after - before
    numbers = torch.zeros(len(step), dtype=torch.int64)
    for number, move in enumerate(MOVES):
        numbers[(step == torch.tensor(move)).all(dim=1)] = number
    return numbers
