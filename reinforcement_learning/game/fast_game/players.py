"""What players and NPCs have in common; and players: their vitals and harvests in each tick.

`players.pxd` gives the types with which this file is compiled.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from nmmo.core.observation import COL_DELTA, ROW_DELTA
from nmmo.entity.entity import Entity, EntityState
from nmmo.entity.entity_manager import EntityGroup, PlayerManager
from nmmo.lib import material
from nmmo.lib.event_code import EventCode
from nmmo.systems.item import ItemState

from reinforcement_learning.game.fast_game.state import Body, take_over_entity

_COLUMN = EntityState.State.attr_name_to_col
_ITEM = ItemState.State.attr_name_to_col
_FOILAGE = material.Foilage.index
_SKILL_ON = {
    material.Herb.index: "herbalism", material.Ore.index: "prospecting", material.Tree.index: "carving",
    material.Crystal.index: "alchemy",
}  # fmt: skip


class Needs:
    """The configuration's numbers that food and water depend on, which stay the same during an episode."""

    def __init__(self, config: Any):
        self.enough = config.RESOURCE_HEALTH_REGEN_THRESHOLD * config.RESOURCE_BASE
        self.depletion = config.RESOURCE_DEPLETION_RATE
        self.regrowth = np.floor(config.PLAYER_BASE_HEALTH * config.RESOURCE_HEALTH_RESTORE_FRACTION)
        self.hunger, self.thirst = config.RESOURCE_STARVATION_RATE, config.RESOURCE_DEHYDRATION_RATE
        self.resilience = config.RESOURCE_DAMAGE_REDUCTION
        self.meal = np.floor(config.RESOURCE_BASE * config.RESOURCE_HARVEST_RESTORE_FRACTION)


def live(needs: Needs, realm: Any, body: Body, on: int, by_fish: bool, by_water: bool) -> None:
    """Update a player's age, health, food, water and harvest, as `Player.update` does.

    Args:
        body: of a player that is alive, mortal and not frozen.
        on: material that it stands on.
        by_fish: whether there is fish beside it.
        by_water: whether there is water beside it.
    """
    body.time_alive.increment()
    food, water = body.food, body.water
    hungry = food._val <= needs.enough or water._val <= needs.enough
    if food._val > 0 and water._val > 0 and (hungry or body.health._val == body.health._max):
        body.resources.health_restore = 0
    else:
        _heal_and_starve(needs, body)
    if by_fish or on in _SKILL_ON:
        skills = body.entity.skills
        if by_fish:
            skills.fishing.update()
        if on in _SKILL_ON:
            getattr(skills, _SKILL_ON[on]).update()
    water.decrement(needs.depletion)
    if by_water:
        water.increment(needs.meal)
        realm.event_log.note(EventCode.DRINK_WATER, body.number)
    food.decrement(needs.depletion)
    if on == _FOILAGE:
        tile = realm.map.ground.tiles[body.row._val][body.column._val]
        if not tile.depleted:  # by a player before this one
            realm.map.update_list.add(tile)
            tile.set_depleted()
            food.increment(needs.meal)
            realm.event_log.note(EventCode.EAT_FOOD, body.number)


def _heal_and_starve(needs: Needs, body: Body) -> None:
    """Do the same as `Resources.update`."""
    resources, health = body.resources, body.health
    before = health._val
    if body.food._val > needs.enough and body.water._val > needs.enough:
        health.increment(needs.regrowth)
    share = needs.resilience if resources.resilient else 1
    if body.food._val == 0:
        health.decrement(int(needs.hunger * share))
    if body.water._val == 0:
        health.decrement(int(needs.thirst * share))
    resources.health_restore = health._val - before


def forget_fight(body: Body) -> None:
    """Clear the last tick's combat state, as `Entity.update` and `History.update` do."""
    if body.damage._val == 0:
        body.entity.attacker = None
        body.attacker_id.update(0)
    body.history.attack = None
    body.damage.update(0)


def live_all(
    needs: Needs, realm: Any, actions: dict, bodies: list[Body], levels: dict[int, int],
    surroundings: tuple[list, list, list],
) -> None:  # fmt: skip
    """Update all players in turn.

    Args:
        actions: of all players, by number.
        levels: item level of players for whom it changed, by index.
        surroundings: for each player, the last three arguments of `live`.
    """
    materials, fishes, waters = surroundings
    tick = realm.tick
    for index in range(len(bodies)):
        body = bodies[index]
        entity = body.entity
        if entity._immortal or entity._make_mortal_tick is not None or not body.can_act():
            entity.update(realm, actions)
            continue
        if body.damage._val != 0 or body.attacker_id._val != 0 or body.latest_combat_tick._val == tick:
            forget_fight(body)
        if index in levels:
            body.item_level.update(levels[index])
        made = actions.get(body.number)
        body.history.actions = {} if made is None else made
        live(needs, realm, body, materials[index], fishes[index], waters[index])


class FastGroup(EntityGroup):
    """A group of the game's entities, which get the faster classes when they spawn."""

    def spawn_entity(self, entity: Any) -> None:
        """Add a new player or NPC to the world."""
        take_over_entity(entity, self.datastore.table("Entity").cells)
        super().spawn_entity(entity)

    def _cull(self, dead: Sequence[int]) -> dict[int, Entity]:
        """Remove the dead, given their numbers, as `cull` does."""
        self.dead_this_tick.clear()
        for number in [number for number in self.entities if number in dead] if dead else ():
            entity = self.dead_this_tick[number] = self.entities[number]
            self.cull_entity(entity)
            if self._delete_dead_entity:
                entity.datastore_record.delete()
        return self.dead_this_tick


class FastPlayers(PlayerManager, FastGroup):
    """The game's players."""

    needs: Needs

    def update(self, actions: dict) -> None:
        """Update vitals and harvest, as `Player.update` does for each player.

        Skills are updated only where there is something to harvest. Tiles only change from full to depleted here, so a
        resource that is absent before the first player's turn is still absent at the last one's.
        """
        config = self.config
        if config.IMMORTAL or config.PLAYER_HEALTH_INCREMENT > 0 or config.DEATH_FOG_ONSET is not None:
            super().update(actions)
            return
        bodies = [player.body for player in self.entities.values()]
        own = self.datastore.table("Entity")._data[[body.health.row for body in bodies]]
        live_all(self.needs, self.realm, actions, bodies, self._item_levels(own), self._surroundings(own))

    def cull(self) -> dict[int, Entity]:
        """Remove the dead, if there are any."""
        table = self.datastore.table("Entity")._data
        dead = (table[:, _COLUMN["id"]] > 0) & (table[:, _COLUMN["health"]] <= 0)
        return self._cull(table[dead, _COLUMN["id"]].tolist())

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
        neighbours = tiles[row[:, None] + ROW_DELTA, column[:, None] + COL_DELTA]  # (players, 4)
        return (
            tiles[row, column].tolist(),
            (neighbours == material.Fish.index).any(axis=1).tolist(),
            (neighbours == material.Water.index).any(axis=1).tolist(),
        )
