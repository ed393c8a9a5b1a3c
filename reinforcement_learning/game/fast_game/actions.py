"""Convert agents' choices from numbers to the game's actions.

The game sorts each agent's choices and calls a class for each argument, which goes through many properties; here the
ids that the choices point at are read once for all agents.
"""

from collections.abc import Callable
from typing import Any

from nmmo.core import action
from nmmo.core.realm import Realm

from reinforcement_learning.game.fast_game.observations import ObservationWriter

_DIRECTIONS = tuple(action.Direction.edges)
_STYLES = tuple(action.Style.edges)


def executable(chosen: dict[int, dict], realm: Realm, writer: ObservationWriter) -> dict[int, dict]:
    """Return the actions that can be executed, as `nmmo.Env._validate_actions` does.

    Args:
        chosen: option of each agent for each argument of each action.
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
        made: dict = {}  # in alphabetical order, the game's order for equal priorities
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
        made[action.Move] = {action.Direction: _DIRECTIONS[choice["Move"]["Direction"]]}
        if (item := _pick(realm.items.get, items, choice["Sell"]["InventoryItem"])) is not None:
            made[action.Sell] = {action.InventoryItem: item, action.Price: prices[choice["Sell"]["Price"]]}
        if (item := _pick(realm.items.get, items, choice["Use"]["InventoryItem"])) is not None:
            made[action.Use] = {action.InventoryItem: item}
        valid[agent] = made
    return valid


def _pick(find: Callable[[int], Any], ids: list[int], option: int) -> Any:
    """Return what an option points at; options after the last id do nothing."""
    return find(ids[option]) if option < len(ids) else None
