"""Convert agents' choices from numbers to the game's actions.

The game sorts each agent's choices and calls a class for each argument, which goes through many properties; here the
ids that the choices point at are looked up directly. `actions.pxd` gives the types with which this file is compiled.
"""

from typing import Any

from nmmo.core import action
from nmmo.core.realm import Realm
from nmmo.entity.entity import EntityState
from nmmo.systems.item import ItemState

from reinforcement_learning.game.fast_game.observations import ObservationWriter

_ENTITY_ID = EntityState.State.attr_name_to_col["id"]
_ITEM_ID = ItemState.State.attr_name_to_col["id"]
_STYLES = tuple(action.Style.edges)
# Names of this module are found faster than those of another.
_ATTACK, _BUY, _DESTROY, _GIVE, _GOLD = action.Attack, action.Buy, action.Destroy, action.Give, action.GiveGold
_MOVE, _SELL, _USE = action.Move, action.Sell, action.Use
_STYLE, _TARGET, _PRICE = action.Style, action.Target, action.Price
_MARKET_ITEM, _INVENTORY_ITEM = action.MarketItem, action.InventoryItem
# Shared by all agents, since they are never modified.
_MOVES = tuple({action.Direction: direction} for direction in action.Direction.edges)

Heads = list[tuple[str, list[tuple[str, int]]]]  # name of each action, and name and column of its arguments


class Listing:
    """The ids that agents' options point at; options after the last id point at nothing, which is id 0.

    Attributes:
        seen: ids of entities seen by all agents.
        seen_starts: each agent's first id in `seen`, followed by the number of ids.
        owned: ids of items owned by all agents; `owned_starts` as above.
        listed: ids of items for sale.
    """

    def __init__(self, writer: ObservationWriter):
        self.seen = writer.seen.values[:, _ENTITY_ID].tolist()
        self.seen_starts = writer.seen.starts.tolist()
        self.owned = writer.owned.values[:, _ITEM_ID].tolist()
        self.owned_starts = writer.owned.starts.tolist()
        self.listed = writer.listed[:, _ITEM_ID].tolist()

    def seen_id(self, agent: int, option: int) -> int:
        """Return the id of an entity; `agent` is an index."""
        place = self.seen_starts[agent] + option
        return self.seen[place] if place < self.seen_starts[agent + 1] else 0

    def owned_id(self, agent: int, option: int) -> int:
        """Return the id of an agent's item; `agent` is an index."""
        place = self.owned_starts[agent] + option
        return self.owned[place] if place < self.owned_starts[agent + 1] else 0

    def listed_id(self, option: int) -> int:
        """Return the id of an item for sale."""
        return self.listed[option] if option < len(self.listed) else 0


def decode(heads: Heads, rows: list[list[int]], slots: dict[int, int], agents: list[int]) -> dict[int, dict]:
    """Return agents' choices by name from each slot's options, as PufferLib's `nativize` does value by value."""
    return {agent: _decode(heads, rows[slots[agent]]) for agent in agents}


def _decode(heads: Heads, row: list[int]) -> dict[str, dict[str, int]]:
    choice = {}
    for name, arguments in heads:
        options = {}
        for argument, column in arguments:
            options[argument] = row[column]
        choice[name] = options
    return choice


def padded(values: dict, slots: dict[int, int], absent: Any) -> dict:
    """Return a value for every agent that has a slot, in their order; `absent` for those without one."""
    return {agent: values.get(agent, absent) for agent in slots}


def executable(chosen: dict[int, dict], realm: Realm, writer: ObservationWriter) -> dict[int, dict]:
    """Return the chosen actions that can be executed, as `nmmo.Env._validate_actions` does."""
    players, npcs, items = realm.players.entities, realm.npcs.entities, realm.items
    listing, index_of = Listing(writer), writer.index_of
    valid: dict[int, dict] = {}
    for agent, choice in chosen.items():
        player = players.get(agent)
        if player is None:
            continue
        body = player.body
        if body.health._val > 0:
            valid[agent] = _executable(choice, listing, index_of[agent], players, npcs, items)
    return valid


def _executable(choice: dict, listing: Listing, index: int, players: dict, npcs: dict, items: dict) -> dict:
    """Return one agent's actions that can be executed, in alphabetical order: the game's order for equal priorities."""
    prices = _PRICE.classes
    made: dict = {}
    attack, give, gift, sale = choice["Attack"], choice["Give"], choice["GiveGold"], choice["Sell"]
    target = _entity(listing.seen_id(index, attack["Target"]), players, npcs)
    if target is not None:
        made[_ATTACK] = {_STYLE: _STYLES[attack["Style"]], _TARGET: target}
    item = items.get(listing.listed_id(choice["Buy"]["MarketItem"]))
    if item is not None:
        made[_BUY] = {_MARKET_ITEM: item}
    item = items.get(listing.owned_id(index, choice["Destroy"]["InventoryItem"]))
    if item is not None:
        made[_DESTROY] = {_INVENTORY_ITEM: item}
    item = items.get(listing.owned_id(index, give["InventoryItem"]))
    if item is not None:
        target = _entity(listing.seen_id(index, give["Target"]), players, npcs)
        if target is not None:
            made[_GIVE] = {_INVENTORY_ITEM: item, _TARGET: target}
    target = _entity(listing.seen_id(index, gift["Target"]), players, npcs)
    if target is not None:
        made[_GOLD] = {_PRICE: prices[gift["Price"]], _TARGET: target}
    made[_MOVE] = _MOVES[choice["Move"]["Direction"]]
    item = items.get(listing.owned_id(index, sale["InventoryItem"]))
    if item is not None:
        made[_SELL] = {_INVENTORY_ITEM: item, _PRICE: prices[sale["Price"]]}
    item = items.get(listing.owned_id(index, choice["Use"]["InventoryItem"]))
    if item is not None:
        made[_USE] = {_INVENTORY_ITEM: item}
    return made


def _entity(number: int, players: dict, npcs: dict) -> Any:
    """Return a player or an NPC; None for number 0, which nobody has."""
    if number == 0:
        return None
    return (npcs if number < 0 else players).get(number)
