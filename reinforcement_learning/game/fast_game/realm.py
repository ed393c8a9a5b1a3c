"""The world's updates in each tick: vitals, harvesting, regrowth, and NPC movement."""

from collections.abc import Callable
from typing import Any

import numpy as np
from nmmo.core import action
from nmmo.core.map import Map
from nmmo.core.observation import COL_DELTA, ROW_DELTA
from nmmo.core.realm import Realm
from nmmo.core.tile import Tile
from nmmo.entity.entity import Entity, EntityState
from nmmo.entity.entity_manager import EntityGroup, PlayerManager
from nmmo.entity.npc import DIRECTIONS, Passive, PassiveAggressive
from nmmo.entity.npc_manager import NPCManager
from nmmo.lib import material
from nmmo.systems.item import ItemState

from reinforcement_learning.game.fast_game.actions import Move
from reinforcement_learning.game.fast_game.events import FastEventLog

_COLUMN = EntityState.State.attr_name_to_col
_ITEM = ItemState.State.attr_name_to_col
_SKILL_ON = {
    material.Herb.index: "herbalism", material.Ore.index: "prospecting", material.Tree.index: "carving",
    material.Crystal.index: "alchemy",
}  # fmt: skip
# Shared by all NPCs, since they are never modified.
_WALK = {direction: {Move: {action.Direction: direction}} for direction in action.Direction.edges}
_STEPS = [(down, right, _WALK[direction]) for down, right, direction in DIRECTIONS]


def take_over(realm: Realm) -> None:
    """Give a world's parts the faster classes without changing their data."""
    realm.__class__ = FastRealm
    FastEventLog.take_over(realm)
    realm.map.__class__ = FastMap
    realm.players.__class__ = FastPlayers
    realm.npcs.__class__ = FastNPCs


class FastRealm(Realm):
    """The game's world."""

    def entity_or_none(self, ent_id: int | None) -> Any:
        """Find a player or NPC by id; the game's version goes through `Mapping.get`, which catches a `KeyError`."""
        if ent_id is None:
            return None
        return (self.npcs if ent_id < 0 else self.players).entities.get(ent_id)


class _Tiles(dict):
    """An ordered set of tiles with removal in constant time."""

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
        # Reading single elements is faster from lists than from arrays.
        self.habitable_rows = self.habitable_tiles.tolist()
        self.tile_rows = self.tiles.tolist()

    def step(self) -> None:
        """Regrow depleted tiles.

        The game copies the list of tiles and searches it for each regrown tile. Here the random numbers are drawn in
        one call, which gives the same numbers as one call each.
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

        The table shows which players have combat state to clear or changed equipment; skills are updated only where
        there is something to harvest. Tiles only change from full to depleted here, so a resource that is absent before
        the first player's turn is still absent at the last one's.
        """
        config = self.config
        if config.IMMORTAL or config.PLAYER_HEALTH_INCREMENT > 0 or config.DEATH_FOG_ONSET is not None:
            super().update(actions)
            return
        enough = config.RESOURCE_HEALTH_REGEN_THRESHOLD * config.RESOURCE_BASE
        depletion = config.RESOURCE_DEPLETION_RATE
        records = self._records()
        table = self.datastore.table("Entity")._data
        own = table[records]
        players = [self.entities[number] for number in own[:, _COLUMN["id"]].tolist()]
        fought = _fought(own, self.realm.tick).tolist()
        unusual = ((own[:, _COLUMN["freeze"]] > 0) | (own[:, _COLUMN["health"]] <= 0)).tolist()
        item_levels = self._item_levels(own)
        surroundings = zip(*self._surroundings(own), strict=True)
        for index, (player, (on, by_fish, by_water)) in enumerate(zip(players, surroundings, strict=True)):
            if unusual[index] or player._immortal or player._make_mortal_tick is not None:
                player.update(self.realm, actions)
                continue
            if fought[index]:
                _forget_fight(player)
            if index in item_levels:
                player.item_level.update(item_levels[index])
            player.history.actions = actions.get(player.ent_id, {})
            player.time_alive._val += 1
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
        for name in ("time_alive", "water", "food"):
            table[records, _COLUMN[name]] = [getattr(player, name)._val for player in players]

    def cull(self) -> dict[int, Entity]:
        """Remove the dead, if there are any."""
        table = self.datastore.table("Entity")._data
        return _cull(self, super().cull, (table[:, _COLUMN["id"]] > 0) & (table[:, _COLUMN["health"]] <= 0))

    def _records(self) -> np.ndarray:
        """Return the table's rows of living players in order of spawning, which is the order of ids."""
        ids = self.datastore.table("Entity")._data[:, _COLUMN["id"]]
        rows = np.flatnonzero(ids > 0)
        return rows[np.argsort(ids[rows])]

    def _item_levels(self, own: np.ndarray) -> dict[int, int]:
        """Return the new item levels of players whose item level has changed, by index in `own`."""
        items = self.datastore.table("Item")._data
        worn = items[items[:, _ITEM["equipped"]] != 0]
        levels = np.bincount(worn[:, _ITEM["owner_id"]], worn[:, _ITEM["level"]], minlength=self.config.PLAYER_N + 1)
        levels = levels[own[:, _COLUMN["id"]]]
        return {index: int(levels[index]) for index in np.flatnonzero(levels != own[:, _COLUMN["item_level"]]).tolist()}

    def _surroundings(self, own: np.ndarray) -> tuple[list[int], list[bool], list[bool]]:
        """Return the material each player stands on, and whether fish and water are adjacent."""
        side = self.config.MAP_SIZE
        tiles = self.datastore.table("Tile")._data[1 : side * side + 1, 2].reshape(side, side)
        row, column = own[:, _COLUMN["row"]], own[:, _COLUMN["col"]]
        beside = tiles[row[:, None] + ROW_DELTA, column[:, None] + COL_DELTA]  # (players, 4)
        return (
            tiles[row, column].tolist(),
            (beside == material.Fish.index).any(axis=1).tolist(),
            (beside == material.Water.index).any(axis=1).tolist(),
        )


class FastNPCs(NPCManager):
    """The game's non-player characters.

    In most ticks most NPCs only grow older, which is counted in the table alone; an NPC's own counter is updated before
    it is read. The last actions of such NPCs (`history.actions`, `last_action`), which nothing in the game reads, are
    not kept.
    """

    def actions(self) -> dict[int, dict]:
        """Return the actions of all NPCs; those that never fight, or have no reason to, wander."""
        return {
            number: _walk_about(npc) if _is_peaceful(npc) else npc.decide() for number, npc in self.entities.items()
        }

    def update(self, actions: dict) -> None:
        """Update NPCs that are new, wounded or in combat individually, and only age the others."""
        table = self.datastore.table("Entity")._data
        records = np.flatnonzero(table[:, _COLUMN["id"]] < 0)
        own = table[records]
        eventful = _fought(own, self.realm.tick) | (own[:, _COLUMN["health"]] < self.config.PLAYER_BASE_HEALTH)
        eventful |= (own[:, _COLUMN["time_alive"]] == 0) | (own[:, _COLUMN["freeze"]] > 0)
        for number in own[eventful, _COLUMN["id"]].tolist():
            npc = self.entities[number]
            _set_age(npc)
            npc.update(self.realm, actions)
        table[records[~eventful], _COLUMN["time_alive"]] += 1

    def cull(self) -> dict[int, Entity]:
        """Remove the dead, if there are any."""
        table = self.datastore.table("Entity")._data
        dead = (table[:, _COLUMN["id"]] < 0) & (table[:, _COLUMN["health"]] <= 0)
        for number in table[dead, _COLUMN["id"]].tolist():
            _set_age(self.entities[number])
        return _cull(self, super().cull, dead)

    @property
    def packet(self) -> dict:
        """Return the NPCs' part of a replay's packet."""
        for npc in self.entities.values():
            _set_age(npc)
        return super().packet


def _fought(own: np.ndarray, tick: int) -> np.ndarray:
    """Return which entities have combat state of the last tick to clear: damage, an attacker or their own attack."""
    marks = own[:, [_COLUMN["damage"], _COLUMN["attacker_id"]]].any(axis=1)
    return marks | (own[:, _COLUMN["latest_combat_tick"]] == tick)


def _forget_fight(player: Any) -> None:
    """Clear the last tick's combat state, as `Entity.update` and `History.update` do."""
    if player.history.damage._val == 0:
        player.attacker = None
        player.attacker_id.update(0)
    player.history.attack = None
    player.history.damage.update(0)


def _cull(group: EntityGroup, cull: Callable[[], dict], dead: np.ndarray) -> dict[int, Entity]:
    """Remove the dead of a group, if there are any."""
    if dead.any():
        return cull()
    group.dead_this_tick.clear()
    return group.dead_this_tick


def _set_age(npc: Any) -> None:
    npc.time_alive._val = int(npc.datastore_record.get(_COLUMN["time_alive"]))


def _is_peaceful(npc: Any) -> bool:
    """Return whether an NPC only wanders: its kind never fights, or it was not attacked."""
    kind = type(npc)
    return kind is Passive or (kind is PassiveAggressive and npc.target is None and npc.attacker is None)


def _walk_about(npc: Any) -> dict:
    """Return a step in the first walkable direction, starting from a random one, as in `NPC._meander`."""
    row, column = npc.pos
    habitable = npc.realm.map.habitable_rows
    start = npc._np_random.get_direction()
    for down, right, walk in _STEPS[start : start + 4]:
        if habitable[row + down][column + right]:
            return walk
    return _WALK[action.North]
