"""The world's own upkeep in each tick: vitals, harvests, regrowth, and where NPCs go."""

from typing import Any

import numpy as np
from nmmo.core import action
from nmmo.core.map import Map
from nmmo.core.observation import COL_DELTA, ROW_DELTA
from nmmo.core.realm import Realm
from nmmo.core.tile import Tile
from nmmo.entity.entity import Entity, EntityState
from nmmo.entity.entity_manager import PlayerManager
from nmmo.entity.npc import DIRECTIONS, Passive, PassiveAggressive
from nmmo.entity.npc_manager import NPCManager
from nmmo.lib import material

from reinforcement_learning.fast_game.actions import Move
from reinforcement_learning.fast_game.events import FastEventLog

_COLUMN = EntityState.State.attr_name_to_col
_SKILL_ON = {
    material.Herb.index: "herbalism", material.Ore.index: "prospecting", material.Tree.index: "carving",
    material.Crystal.index: "alchemy",
}  # fmt: skip
# Shared by all NPCs, since nobody changes them.
_WALK = {direction: {Move: {action.Direction: direction}} for direction in action.Direction.edges}
_STEPS = [(down, right, _WALK[direction]) for down, right, direction in DIRECTIONS]


def take_over(realm: Realm) -> None:
    """Give a world's parts the faster classes; their data stay as they are."""
    realm.__class__ = FastRealm
    FastEventLog.take_over(realm)
    realm.map.__class__ = FastMap
    realm.players.__class__ = FastPlayers
    realm.npcs.__class__ = FastNPCs


class FastRealm(Realm):
    """The game's world."""

    def entity_or_none(self, ent_id: int | None) -> Any:
        """Find a player or NPC by its id; the game's own goes through `Mapping.get`, which catches a `KeyError`."""
        if ent_id is None:
            return None
        return (self.npcs if ent_id < 0 else self.players).entities.get(ent_id)


class _Tiles(dict):
    """An ordered set of tiles that takes a constant time to remove one."""

    def add(self, tile: Tile) -> None:
        self.setdefault(tile)


class FastMap(Map):
    """The game's map."""

    habitable_rows: list[list[int]]
    tile_rows: list[list[Tile]]

    def reset(self, map_dict: dict, np_random: np.random.Generator, seize_targets: list | None = None) -> None:
        """Load a map."""
        super().reset(map_dict, np_random, seize_targets)
        self.update_list = _Tiles()
        # Lists are faster than arrays to read one by one.
        self.habitable_rows = self.habitable_tiles.tolist()
        self.tile_rows = self.tiles.tolist()

    def step(self) -> None:
        """Let depleted tiles grow again.

        The game copies the list of tiles and searches it for each tile that has grown; and one call for many random
        numbers gives the same ones as a call for each.
        """
        for tile in [tile for tile in self.update_list if not tile.depleted]:
            del self.update_list[tile]
        growing = [tile for tile in self.update_list if tile.material.respawn != 0]
        if growing:
            draws = growing[0]._np_random.random(len(growing)).tolist()
            for tile, draw in zip(growing, draws, strict=True):
                if draw < tile.material.respawn:
                    tile._respawn()
        for row, column in self.seize_targets:
            self.tiles[row, column].update_seize()


class FastPlayers(PlayerManager):
    """The game's players."""

    def update(self, actions: dict) -> None:
        """Update vitals and harvest, as `Player.update` does for each player.

        Attributes are written only where they change, those that change for all at once; skills are asked only where
        there is something to harvest. Tiles change here in one way only, from full to depleted, so that what was not
        there before the first player's turn is not there at the last one's.
        """
        config = self.config
        if config.IMMORTAL or config.PLAYER_HEALTH_INCREMENT > 0 or config.DEATH_FOG_ONSET is not None:
            super().update(actions)
            return
        enough = config.RESOURCE_HEALTH_REGEN_THRESHOLD * config.RESOURCE_BASE
        depletion = config.RESOURCE_DEPLETION_RATE
        players = list(self.entities.values())
        own, fish, water = self._surroundings(players)
        for player, on, by_fish, by_water in zip(players, own, fish, water, strict=True):
            if player.immortal or player._make_mortal_tick is not None or player.status.frozen:
                player.update(self.realm, actions)
                continue
            _update_entity(player, actions)
            player.time_alive._val += 1
            level = sum(item.level._val for item in player.inventory.equipment)
            if player.item_level._val != level:
                player.item_level.update(level)
            if not player.alive:
                continue
            resources, skills = player.resources, player.skills
            food, drink = resources.food._val, resources.water._val
            hungry = food <= enough or drink <= enough
            if food > 0 and drink > 0 and (hungry or resources.health._val == resources.health._max):
                resources.health_restore = 0
            else:
                resources.update()
            if by_fish:
                skills.fishing.update()
            if on in _SKILL_ON:
                getattr(skills, _SKILL_ON[on]).update()
            if by_water:
                skills.water.update()
            else:
                resources.water._val = max(drink - depletion, resources.water._min)
            if on == material.Foilage.index:
                skills.food.update()
            else:
                resources.food._val = max(food - depletion, resources.food._min)
        records = [player.datastore_record.id for player in players]
        table = self.datastore.table("Entity")._data
        table[records, _COLUMN["time_alive"]] = [player.time_alive._val for player in players]
        table[records, _COLUMN["water"]] = [player.water._val for player in players]
        table[records, _COLUMN["food"]] = [player.food._val for player in players]

    def _surroundings(self, players: list) -> tuple[list[int], list[bool], list[bool]]:
        """What each player stands on, and whether fish and water are beside it."""
        side = self.config.MAP_SIZE
        tiles = self.datastore.table("Tile")._data[1 : side * side + 1, 2].reshape(side, side)
        row, column = np.array([player.pos for player in players], dtype=np.int64).reshape(-1, 2).T
        beside = tiles[row[:, None] + ROW_DELTA, column[:, None] + COL_DELTA]  # (players, 4)
        return (
            tiles[row, column].tolist(),
            (beside == material.Fish.index).any(axis=1).tolist(),
            (beside == material.Water.index).any(axis=1).tolist(),
        )


class FastNPCs(NPCManager):
    """The game's non-player characters."""

    def actions(self) -> dict[int, dict]:
        """Decide what all do; those that never fight, or have no reason to, walk about."""
        return {
            number: _walk_about(npc) if _is_peaceful(npc) else npc.decide() for number, npc in self.entities.items()
        }

    def update(self, actions: dict) -> None:
        """Heal by one and note what was done, as `NPC.update` does; attributes are written only where they change."""
        for npc in self.entities.values():
            if npc.status.frozen:
                npc.update(self.realm, actions)
                continue
            _update_entity(npc, actions)
            npc.time_alive._val += 1
            if npc.item_level._val != npc.equipment.level:
                npc.item_level.update(npc.equipment.level)
            if npc.alive:
                if npc.resources.health._val != npc.resources.health._max:
                    npc.resources.health.increment(1)
                npc.last_action = actions
        npcs = self.entities.values()
        table = self.datastore.table("Entity")._data
        records = [npc.datastore_record.id for npc in npcs]
        table[records, _COLUMN["time_alive"]] = [npc.time_alive._val for npc in npcs]


def _update_entity(entity: Entity, actions: dict) -> None:
    """Forget the last tick's fight, as `Entity.update` does, but for what both kinds do in their own way."""
    history = entity.history
    if history.damage._val == 0:
        entity.attacker = None
        if entity.attacker_id._val != 0:
            entity.attacker_id.update(0)
    else:
        history.damage.update(0)
    history.attack = None
    history.actions = actions.get(entity.ent_id, {})


def _is_peaceful(npc: Any) -> bool:
    """Whether an NPC only walks about: it is of the kind that does, or was not attacked."""
    kind = type(npc)
    return kind is Passive or (kind is PassiveAggressive and npc.target is None and npc.attacker is None)


def _walk_about(npc: Any) -> dict:
    """Step in the first direction that can be walked, from a random one on, as `NPC._meander` does."""
    row, column = npc.pos
    habitable = npc.realm.map.habitable_rows
    start = npc._np_random.get_direction()
    for down, right, walk in _STEPS[start : start + 4]:
        if habitable[row + down][column + right]:
            return walk
    return _WALK[action.North]
