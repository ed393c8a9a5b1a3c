"""What the game's public rules say of the next tick, with nothing fitted and nothing drawn.

It is a rival of world models, and where their predictions start (`network.py`).

Food and water fall; foliage underfoot and water beside the agent fill them; health returns while both are above a
threshold and falls where one is used up. All this happens before the agent moves. Tiles that it stood on are
harvested, and what was harvested comes back with the game's probabilities; other terrain that has been in view stays as
it was, and others are expected where they were seen last. Nobody attacks, and nobody else eats.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import torch
from torch.nn.functional import one_hot

from agent_zoo.network_parts.layers import ENTITY_SCALES
from analysis.world_model.scene import (
    MOVES,
    UNKNOWN,
    SoftScene,
    framed,
    later,
    moved_terrain,
    shift,
    view_of,
    with_seen,
    with_view,
)

_ROUNDING = 1e-4
"""Shares are float32."""
_LEAST = 1e-6
"""Probability below which nothing can be made of the materials of a tile."""


@dataclass(frozen=True)
class Rules:
    """The numbers of the rules; amounts are shares of a full store."""

    depletion: float  # of food and water in a tick
    meal: float  # food from a tile of foliage, and water from a tick beside water
    enough: float  # food and water above which health returns
    regrowth: float  # of health in a tick
    hunger: float  # health lost in a tick without food
    thirst: float  # likewise without water
    foliage: int  # number of the material
    water: int  # likewise
    harvested_materials: Mapping[int, int]  # material -> what it becomes once an agent stands on it
    fished: tuple[int, int]  # of fish and of what it becomes once an agent stands beside it
    respawn: Mapping[int, tuple[int, float]]  # harvested material -> what comes back in a tick, its probability
    impassable: tuple[int, ...]  # materials that nobody can walk on
    reach: int  # tiles at which others can be attacked, also diagonally
    immunity: int  # ticks of their lives in which players cannot be attacked

    @staticmethod
    @functools.cache
    def of_game(food_regrowth: float = 1, immunity: int | None = None) -> "Rules":
        """Return the rules of the installed game, as its configuration and its materials give them.

        Args:
            food_regrowth: how many times as fast as usual foliage comes back in a world.
            immunity: ticks of their lives in which players cannot be attacked there; the game's own where None.
        """
        from nmmo.core.config import Combat, Profession, Resource
        from nmmo.lib import material

        full = Resource.RESOURCE_BASE
        foliage = min(1, Resource.RESOURCE_FOILAGE_RESPAWN * food_regrowth)
        respawn = {
            material.Foilage: foliage, material.Ore: Profession.PROFESSION_ORE_RESPAWN,
            material.Tree: Profession.PROFESSION_TREE_RESPAWN, material.Crystal: Profession.PROFESSION_CRYSTAL_RESPAWN,
            material.Herb: Profession.PROFESSION_HERB_RESPAWN, material.Fish: Profession.PROFESSION_FISH_RESPAWN,
        }  # fmt: skip
        underfoot = (material.Foilage, material.Ore, material.Tree, material.Crystal, material.Herb)
        return Rules(
            Resource.RESOURCE_DEPLETION_RATE / full, Resource.RESOURCE_HARVEST_RESTORE_FRACTION,
            Resource.RESOURCE_HEALTH_REGEN_THRESHOLD, Resource.RESOURCE_HEALTH_RESTORE_FRACTION,
            Resource.RESOURCE_STARVATION_RATE / full, Resource.RESOURCE_DEHYDRATION_RATE / full,
            material.Foilage.index, material.Water.index, {kind.index: kind.deplete.index for kind in underfoot},
            (material.Fish.index, material.Fish.deplete.index),
            {kind.deplete.index: (kind.index, probability) for kind, probability in respawn.items()},
            tuple(sorted(kind.index for kind in material.Impassible)), Combat.COMBAT_RANGE_REACH,
            Combat.COMBAT_SPAWN_IMMUNITY if immunity is None else immunity,
        )  # fmt: skip

    def next_scene(
        self, scene: SoftScene, moved: torch.Tensor, vitals: Sequence[int], position: Sequence[int] | None
    ) -> SoftScene:
        """Return the scenes after a tick.

        Args:
            scene: exact ones, or earlier results, B in all.
            moved: number in `MOVES` of each agent's step, (B,) int64.
            vitals: places of health, food and water in `SoftScene.own`; empty if the policy does not see them.
            position: places of row and column there; None if the policy does not see them.
        """
        materials, side = scene.material.shape[1], isqrt(scene.material.shape[2])
        eats, drinks = self.meals(scene)
        places: list[int] = list(vitals)
        values: list[torch.Tensor] = []
        if vitals:
            values += self._body(scene.own[:, list(vitals)], eats, drinks)
        if position is not None:
            path = torch.tensor(MOVES)[moved] / ENTITY_SCALES["row"]  # (B, 2)
            places += position
            values += (scene.own[:, list(position)] + path).unbind(1)
        left = self.harvested(scene)
        moves = one_hot(moved, len(MOVES)).float()
        planes = left.planes().unflatten(2, (side, side))
        frame, _ = framed(planes[:, :materials], left.terrain)
        material = self.respawned(shift(planes[:, :materials], moves, frame).flatten(2))
        others = shift(planes[:, materials:], moves).flatten(2)
        own = scene.own.index_copy(1, torch.tensor(places), torch.stack(values, dim=1)) if places else scene.own
        return replace(
            scene, material=material, kinds=others[:, :-2], health=others[:, -2], target=others[:, -1], own=own,
            terrain=with_seen(moved_terrain(left.terrain, moved), material.argmax(dim=1)),
            since=later(scene.since, moved),
        )  # fmt: skip

    def meals(self, scene: SoftScene) -> tuple[torch.Tensor, torch.Tensor]:
        """Return whether an agent eats and drinks in the next tick, (B,) each: what its most probable ground says.

        The gradients are those of the probabilities of the tiles in view.
        """
        middle, beside = _around(scene)
        ground = view_of(scene.terrain).flatten(1)  # (B, V)
        ground = torch.where(ground == UNKNOWN, scene.material.argmax(dim=1).to(ground.dtype), ground)
        dry = (1 - scene.material[:, self.water, beside]).prod(dim=1)
        likely = (scene.material[:, self.foliage, middle], 1 - dry)
        certain = (ground[:, middle] == self.foliage, (ground[:, beside] == self.water).any(dim=1))
        eats, drinks = (sure + soft - soft.detach() for sure, soft in zip(certain, likely, strict=True))
        return eats, drinks

    def walkable(self, scene: SoftScene) -> torch.Tensor:
        """Return the probability that agents can walk to where each of `MOVES` leads, (B, moves)."""
        middle, beside = _around(scene)
        return 1 - scene.material[:, list(self.impassable)].sum(dim=1)[:, [middle, *beside]]

    def blocked(self, scene: SoftScene) -> torch.Tensor:
        """Return which of `MOVES` lead to ground that has been in view and that nobody can walk on, (B, moves)."""
        _, beside = _around(scene)
        walls = torch.isin(view_of(scene.terrain).flatten(1)[:, beside], torch.tensor(self.impassable))
        return torch.cat([torch.zeros_like(walls[:, :1]), walls], dim=1)  # staying is always possible

    def stood_on(self, material: torch.Tensor) -> torch.Tensor:
        """Return probabilities of materials, (B, materials, V), given that an agent stands in the middle."""
        middle, possible = material.shape[2] // 2, torch.ones(material.shape[1])
        possible[list(self.impassable)] = 0
        here = material[:, :, middle] * possible
        total = here.sum(dim=1, keepdim=True)
        # Where nothing is possible, the agent was there before the rules were followed.
        here = torch.where(total > _LEAST, here / total.clamp(min=_LEAST), material[:, :, middle])
        return torch.cat([material[:, :, :middle], here.unsqueeze(2), material[:, :, middle + 1 :]], dim=2)

    def body_levels(self, levels: torch.Tensor, eats: torch.Tensor, drinks: torch.Tensor) -> torch.Tensor:
        """Return the distributions of health, food and water after a tick.

        Those before it are taken as independent, and so are whether health returns and whether it is lost.

        Args:
            levels: distributions before it, (B, 3, levels).
            eats: probability, (B,).
            drinks: likewise.

        Returns:
            (B, 3, levels).
        """
        steps = levels.shape[2] - 1
        health, stores = levels[:, 0], levels[:, 1:]
        above = torch.arange(steps + 1) > round(self.enough * steps)
        well = (stores * above).sum(dim=2).prod(dim=1, keepdim=True)  # (B, 1)
        health = _mixed(health, _moved(health, round(self.regrowth * steps)), well)
        for store, loss in enumerate((self.hunger, self.thirst)):
            health = _mixed(health, _moved(health, -round(loss * steps)), stores[:, store, :1])
        fallen = _moved(stores, -round(self.depletion * steps))
        filled = _moved(fallen, round(self.meal * steps))
        stores = _mixed(fallen, filled, torch.stack([eats, drinks], dim=1).unsqueeze(2))
        return torch.cat([health.unsqueeze(1), stores], dim=1)

    def harvested(self, scene: SoftScene) -> SoftScene:
        """Return the scenes once agents have taken what they stand on and the fish beside them."""
        middle, beside = _around(scene)
        material, ground = scene.material.clone(), view_of(scene.terrain).flatten(1).clone()
        changes = [([middle], kind, left) for kind, left in self.harvested_materials.items()]
        for tiles, kind, left in [*changes, (beside, *self.fished)]:
            material[:, left, tiles] = material[:, left, tiles] + material[:, kind, tiles]
            material[:, kind, tiles] = 0
            here = ground[:, tiles]
            ground[:, tiles] = torch.where(here == kind, left, here)
        return replace(scene, material=material, terrain=with_view(scene.terrain, ground))

    def respawned(self, material: torch.Tensor) -> torch.Tensor:
        """Return probabilities of materials a tick later, as far as tiles that were harvested come back.

        Args:
            material: (B, materials, ...).
        """
        leads = torch.eye(material.shape[1])
        for left, (back, probability) in self.respawn.items():
            leads[back, left] += probability
            leads[left, left] -= probability
        return torch.einsum("km,bm...->bk...", leads, material)

    def _body(self, vitals: torch.Tensor, eats: torch.Tensor, drinks: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return health, food and water after a tick, (B,) each. Health depends on food and water before it."""
        health, food, water = vitals.unbind(1)
        well = (food > self.enough + _ROUNDING) & (water > self.enough + _ROUNDING)
        health = (health + self.regrowth * well).clamp(max=1)
        health = health - self.hunger * (food < _ROUNDING) - self.thirst * (water < _ROUNDING)
        food, water = (
            ((store - self.depletion).clamp(min=0) + self.meal * filled).clamp(max=1)
            for store, filled in ((food, eats), (water, drinks))
        )
        return health.clamp(min=0), food, water


def _around(scene: SoftScene) -> tuple[int, list[int]]:
    """Return the agent's tile in the view, and the four beside it, in the order of `MOVES`."""
    side = isqrt(scene.material.shape[2])
    middle = side // 2 * side + side // 2
    return middle, [middle - side, middle + side, middle - 1, middle + 1]


def _moved(levels: torch.Tensor, change: int) -> torch.Tensor:
    """Move distributions over levels, (..., levels), by a number of levels; none leads beyond the scale."""
    size = levels.shape[-1]
    places = (torch.arange(size) + change).clamp(0, size - 1)
    return torch.zeros_like(levels).index_add(-1, places, levels)


def _mixed(otherwise: torch.Tensor, happened: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    """Return the distribution over levels if something happens with a probability."""
    return probability * happened + (1 - probability) * otherwise
