"""What the game's public rules say of the next tick, with nothing fitted and nothing drawn.

Food and water fall; foliage underfoot and water beside the agent fill them; health returns while both are above a
threshold and falls where one is used up. All this happens before the agent moves. Tiles that it stood on are harvested,
terrain that has been in view stays as it was, and others are expected where they were seen last. Nobody attacks, and
nobody else eats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import torch
from torch.nn import functional

from agent_zoo.network_parts.layers import ENTITY_SCALES
from analysis.world_model.scene import MOVES, SoftScene, framed, moved_terrain, shift, with_view

_ROUNDING = 1e-4
"""Shares are float32."""


@dataclass(frozen=True)
class Rules:
    """The numbers of the rules; amounts are shares of a full store.

    Attributes:
        depletion: of food and water in a tick.
        meal: food from a tile of foliage, and water from a tick beside water.
        enough: food and water above which health returns.
        regrowth: of health in a tick.
        hunger: health lost in a tick without food.
        thirst: likewise without water.
        foliage: number of the material.
        water: likewise.
        harvested: material -> what it becomes once an agent stands on it.
        fished: of fish and of what it becomes once an agent stands beside it.
    """

    depletion: float
    meal: float
    enough: float
    regrowth: float
    hunger: float
    thirst: float
    foliage: int
    water: int
    harvested: Mapping[int, int]
    fished: tuple[int, int]

    @staticmethod
    def of_game() -> "Rules":
        """Return the rules of the installed game, as its configuration and its materials give them."""
        from nmmo.core.config import Resource
        from nmmo.lib import material

        full = Resource.RESOURCE_BASE
        underfoot = (material.Foilage, material.Ore, material.Tree, material.Crystal, material.Herb)
        return Rules(
            Resource.RESOURCE_DEPLETION_RATE / full, Resource.RESOURCE_HARVEST_RESTORE_FRACTION,
            Resource.RESOURCE_HEALTH_REGEN_THRESHOLD, Resource.RESOURCE_HEALTH_RESTORE_FRACTION,
            Resource.RESOURCE_STARVATION_RATE / full, Resource.RESOURCE_DEHYDRATION_RATE / full,
            material.Foilage.index, material.Water.index, {kind.index: kind.deplete.index for kind in underfoot},
            (material.Fish.index, material.Fish.deplete.index),
        )  # fmt: skip

    def next_scene(
        self, scene: SoftScene, moved: torch.Tensor, vitals: Sequence[int], position: Sequence[int] | None
    ) -> SoftScene:
        """Return the scenes after a tick.

        Args:
            scene: exact ones, or earlier results, B in all.
            moved: number in `MOVES` of each agent's step, (B,) int64.
            vitals: places of health, food and water in `SoftScene.own`.
            position: places of row and column there; None if the policy does not see them.
        """
        materials, side = scene.material.shape[1], isqrt(scene.material.shape[2])
        middle = side // 2 * side + side // 2
        beside = [middle - side, middle + side, middle - 1, middle + 1]
        ground = scene.material.argmax(dim=1)  # (B, V)
        body = self._body(
            scene.own[:, list(vitals)], ground[:, middle] == self.foliage, (ground[:, beside] == self.water).any(dim=1)
        )
        places, values = list(vitals), list(body.unbind(1))
        if position is not None:
            path = torch.tensor(MOVES)[moved] / ENTITY_SCALES["row"]  # (B, 2)
            places += position
            values += (scene.own[:, list(position)] + path).unbind(1)
        left = self._harvest(ground, middle, beside)
        views = functional.one_hot(left, materials).float().transpose(1, 2).unflatten(2, (side, side))
        terrain = with_view(scene.terrain, left)
        one_hot = functional.one_hot(moved, len(MOVES)).float()
        seen = shift(views, one_hot, framed(views, terrain)[0]).flatten(2)
        others = shift(scene.planes()[:, materials:].unflatten(2, (side, side)), one_hot).flatten(2)
        return replace(
            scene, material=seen, kinds=others[:, :-2], health=others[:, -2], target=others[:, -1],
            own=scene.own.index_copy(1, torch.tensor(places), torch.stack(values, dim=1)),
            terrain=with_view(moved_terrain(terrain, moved), seen.argmax(dim=1)),
        )  # fmt: skip

    def _body(self, vitals: torch.Tensor, eats: torch.Tensor, drinks: torch.Tensor) -> torch.Tensor:
        """Return health, food and water after a tick, (B, 3). Health depends on what food and water were before it."""
        health, food, water = vitals.unbind(1)
        well = (food > self.enough + _ROUNDING) & (water > self.enough + _ROUNDING)
        health = (health + self.regrowth * well).clamp(max=1)
        health = health - self.hunger * (food < _ROUNDING) - self.thirst * (water < _ROUNDING)
        food, water = (
            ((store - self.depletion).clamp(min=0) + self.meal * filled).clamp(max=1)
            for store, filled in ((food, eats), (water, drinks))
        )
        return torch.stack([health.clamp(min=0), food, water], dim=1)

    def _harvest(self, ground: torch.Tensor, middle: int, beside: list[int]) -> torch.Tensor:
        """Return the materials, (B, V), once the agents have taken what they stand on and the fish beside them."""
        after = ground.clone()
        for material, left in self.harvested.items():
            after[:, middle][ground[:, middle] == material] = left
        fish, left = self.fished
        near = after[:, beside]
        after[:, beside] = torch.where(near == fish, left, near)
        return after
