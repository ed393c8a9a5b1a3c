"""Choices as numbers, turned into what the game executes.

The game sorts each agent's choices and asks a class for each argument, which looks itself up through properties; here
the ids that the choices point at are read once for all agents.
"""

from collections.abc import Callable
from typing import Any

from nmmo.core import action
from nmmo.core.realm import Realm

from reinforcement_learning.fast_game.observations import ObservationWriter

_DIRECTIONS = tuple(action.Direction.edges)
_STYLES = tuple(action.Style.edges)


class Move(action.Move):
    """The game's move, without the checks that cannot fail."""

    def call(realm: Realm, entity: Any, direction: Any) -> None:  # the game never makes instances of actions
        """Walk one tile, unless something is in the way."""
        row, column = entity.history.last_pos = entity.pos
        down, right = direction.delta
        row, column = row + down, column + right
        # What is not habitable is what the game calls impassible, the void behind the border among it; nobody can
        # therefore leave the map or enter the void.
        if not realm.map.habitable_rows[row][column] or entity.status.freeze._val > 0:
            return
        if down or right:
            realm.map.tiles[entity.pos].remove_entity(entity.ent_id)
            realm.map.tiles[row, column].add_entity(entity)
            entity.set_pos(row, column)
        centre = realm.map.center_coord
        progress = realm.map.dist_border_center - max(abs(centre[0] - row), abs(centre[1] - column))
        if progress > entity.history.exploration:
            entity.history.exploration = progress
            if entity.is_player:
                realm.event_log.record(realm.event_log.GO_FARTHEST, entity, distance=progress)


def executable(chosen: dict[int, dict], realm: Realm, writer: ObservationWriter) -> dict[int, dict]:
    """Return the actions that can be executed, as `nmmo.Env._validate_actions` does.

    Args:
        chosen: each agent's option for each argument of each action.
        realm: the world.
        writer: of the observations that the options point at.
    """
    prices = action.Price.classes
    seen, owned, listed = writer.ids()
    valid: dict[int, dict] = {}
    for agent, choice in chosen.items():
        player = realm.players.entities.get(agent)
        if player is None or not player.alive:
            continue
        entities, items = seen[writer.index_of[agent]], owned[writer.index_of[agent]]
        made: dict = {}  # in alphabetical order, as the game executes those of equal priority
        if (target := _pick(realm.entity_or_none, entities, choice["Attack"]["Target"])) is not None:
            made[action.Attack] = {action.Style: _STYLES[choice["Attack"]["Style"]], action.Target: target}
        if (item := _pick(realm.items.get, listed, choice["Buy"]["MarketItem"])) is not None:
            made[action.Buy] = {action.MarketItem: item}
        if (item := _pick(realm.items.get, items, choice["Destroy"]["InventoryItem"])) is not None:
            made[action.Destroy] = {action.InventoryItem: item}
        if (item := _pick(realm.items.get, items, choice["Give"]["InventoryItem"])) is not None:
            target = _pick(realm.entity_or_none, entities, choice["Give"]["Target"])
            if target is not None:
                made[action.Give] = {action.InventoryItem: item, action.Target: target}
        if (target := _pick(realm.entity_or_none, entities, choice["GiveGold"]["Target"])) is not None:
            made[action.GiveGold] = {action.Price: prices[choice["GiveGold"]["Price"]], action.Target: target}
        made[Move] = {action.Direction: _DIRECTIONS[choice["Move"]["Direction"]]}
        if (item := _pick(realm.items.get, items, choice["Sell"]["InventoryItem"])) is not None:
            made[action.Sell] = {action.InventoryItem: item, action.Price: prices[choice["Sell"]["Price"]]}
        if (item := _pick(realm.items.get, items, choice["Use"]["InventoryItem"])) is not None:
            made[action.Use] = {action.InventoryItem: item}
        valid[agent] = made
    return valid


def _pick(find: Callable[[int], Any], ids: list[int], option: int) -> Any:
    """Find what an option points at; behind the last id stand options that do nothing."""
    return find(ids[option]) if option < len(ids) else None
