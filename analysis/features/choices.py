"""What the agent chose to do, in each action head, and towards what; and which way things are, as sides to move to.

Choices are intentions: the game carries them out after the record is made.
"""

import re
from collections.abc import Callable

import numpy as np

from activation_store.records import RaggedRows
from activation_store.schema import OPTIONS
from analysis.features import observed
from analysis.features.body import AMMUNITION, POTION, RATION, TOOLS, WEAPONS, change, chose, is_giving_item
from analysis.features.feature import YES_OR_NO, Category, Compute, Feature
from analysis.features.observed import Observed
from analysis.features.surroundings import NPC_TYPES, NPCS, PLAYERS, SIDE, TILE_OFFSETS, Who
from analysis.materials import MATERIAL_NAMES

STEPS = {"north": (-1, 0), "south": (1, 0), "east": (0, 1), "west": (0, -1)}
"""What each option of a move adds to row and column, in the game's order."""
DIRECTIONS = tuple(STEPS)
"""The options of `Move.Direction` but the last, the no-op."""

STYLES = OPTIONS["Attack.Style"]

_PRICES = (25, 50, 75)
"""Highest prices of the groups of prices but the last, in gold; prices start at 1."""

_ITEM_KINDS = {
    "armour": (2, 3, 4), "weapon": WEAPONS, "tool": TOOLS, "ammunition": AMMUNITION, "ration": (RATION,),
    "potion": (POTION,),
}  # fmt: skip
"""Kinds of items, and the game's `type_id` values of each."""

_ACTS = (
    "Move.Direction", "Attack.Target", "Use.InventoryItem", "Destroy.InventoryItem", "Buy.MarketItem",
    "Sell.InventoryItem", "GiveGold.Target",
)  # fmt: skip


def _attacks_with(style: str) -> Compute:
    return lambda seen: seen.chose("Attack.Target") & (seen.option("Attack.Style") == STYLES.index(style))


def _targets(seen: Observed, kind: np.ndarray) -> np.ndarray:
    """Return where the attack target's entity row is marked in `kind`, (E,) bool to (B,) bool."""
    targets = np.zeros(len(seen), bool)
    targets[seen.target_rows >= 0] = kind[seen.target_rows[seen.target_rows >= 0]]
    return targets


def _is_idle(seen: Observed) -> np.ndarray:
    return ~np.logical_or.reduce([is_giving_item(seen), *(seen.chose(head) for head in _ACTS)])


ACTIONS = (
    *(
        Feature(f"is_attacking_with_{style}", YES_OR_NO, f"The agent chose a {style} attack.", _attacks_with(style))
        for style in STYLES
    ),
    Feature(
        "is_attacking_player", YES_OR_NO, "The agent chose another player to attack.",
        lambda seen: _targets(seen, seen.is_player),
    ),
    Feature(
        "is_attacking_npc", YES_OR_NO, "The agent chose an NPC to attack.", lambda seen: _targets(seen, seen.is_npc)
    ),
    Feature(
        "is_using_item", YES_OR_NO, "The agent chose an item to use, wear or take off.", chose("Use.InventoryItem")
    ),
    Feature("is_destroying_item", YES_OR_NO, "The agent chose an item to destroy.", chose("Destroy.InventoryItem")),
    Feature("is_buying", YES_OR_NO, "The agent chose an item on the market to buy.", chose("Buy.MarketItem")),
    Feature("is_selling", YES_OR_NO, "The agent chose an item to put up for sale.", chose("Sell.InventoryItem")),
    Feature("is_giving_item", YES_OR_NO, "The agent chose an item and someone to give it to.", is_giving_item),
    Feature("is_giving_gold", YES_OR_NO, "The agent chose someone to give gold to.", chose("GiveGold.Target")),
    Feature("is_idle", YES_OR_NO, "The agent chose no move, attack, item use or destruction, trade or gift.", _is_idle),
)  # fmt: skip

Codes = Callable[[Observed], np.ndarray]


def _pointed_at(seen: Observed, head: str, rows: RaggedRows, kinds: np.ndarray) -> np.ndarray:
    """Return the kind of the row that a head's option points to, (B,) int64: 0 for the no-op and for no row.

    A head's options are the rows of the record, one after the other; `kinds` are of each row, (R,).
    """
    option = seen.option(head)
    inside = option < rows.counts
    kind = np.zeros(len(seen), np.int64)
    kind[inside] = kinds[rows.offsets[:-1][inside] + option[inside]]
    return np.where(seen.chose(head), kind, 0)


def _person(head: str) -> Codes:

    def compute(seen: Observed) -> np.ndarray:
        kinds = 1 + np.maximum(seen.entity("npc_type"), 0)
        return _pointed_at(seen, head, seen.records.entity, kinds)

    return compute


def _people(verb: str) -> dict[str, str]:
    npcs = {f"{kind}_npc": f"{verb} {_a(kind)} NPC" for kind in NPC_TYPES}
    return {"nobody": f"{verb} nobody", "player": f"{verb} a player", **npcs}


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _item(head: str) -> Codes:

    def compute(seen: Observed) -> np.ndarray:
        kinds = np.zeros(len(seen.item_owner), np.int64)
        for number, types in enumerate(_ITEM_KINDS.values(), start=1):
            kinds[np.isin(seen.item("type_id"), types)] = number
        return _pointed_at(seen, head, seen.records.inventory, kinds)

    return compute


def _items(verb: str) -> dict[str, str]:
    kinds = {kind: f"{verb} {kind if kind in ('armour', 'ammunition') else _a(kind)}" for kind in _ITEM_KINDS}
    return {"nothing": f"{verb} nothing", **kinds}


def _price(head: str) -> Codes:
    return lambda seen: np.searchsorted(_PRICES, seen.option(head) + 1)


def _prices(verb: str) -> dict[str, str]:
    ends = zip((1, *(price + 1 for price in _PRICES)), (*_PRICES, 99), strict=True)
    return {f"{low}_to_{high}": f"{verb} {low} to {high} gold" for low, high in ends}


def _kind(what: str) -> str:
    return f"What the agent chose to {what}, by kind."


def _of_head(
    head: str, name: str, definition: str, options: dict[str, str], codes_of: Callable[[str], Codes]
) -> Category:  # fmt: skip
    return Category(name, definition, options, codes_of(head), head=head)


CHOICES = (
    _of_head(
        "Move.Direction", "move", "The direction that the agent chose to move in.",
        {**{way: f"moves {way}" for way in DIRECTIONS}, "stay": "stays"},
        lambda head: lambda seen: np.minimum(seen.option(head), len(DIRECTIONS)),
    ),
    _of_head(
        "Attack.Style", "attack_style", "The option of the attack's style, which counts only if the agent attacks.",
        {style: f"would attack with {style}" for style in STYLES},
        lambda head: lambda seen: seen.option(head),
    ),
    _of_head("Attack.Target", "attack_target", "Whom the agent chose to attack.", _people("attacks"), _person),
    _of_head("Use.InventoryItem", "use", _kind("use, wear or take off"), _items("uses"), _item),
    _of_head("Destroy.InventoryItem", "destroy", _kind("destroy"), _items("destroys"), _item),
    _of_head("Sell.InventoryItem", "sell", _kind("put up for sale"), _items("offers"), _item),
    _of_head(
        "Sell.Price", "sell_price", "The option of the price, which counts only if the agent puts an item up for sale.",
        _prices("would ask"), _price,
    ),
    _of_head(
        "Buy.MarketItem", "buy", "Whether the agent chose an offer of the market to buy.",
        {"nothing": "buys nothing", "offer": "buys an offer"},
        lambda head: lambda seen: seen.chose(head).astype(np.int64),
    ),
    _of_head(
        "Give.InventoryItem", "give", "The item to give, which counts only with somebody to give it to, by kind.",
        _items("would give"), _item,
    ),
    _of_head(
        "Give.Target", "give_target", "Whom to give an item to, which counts only with an item.", _people("gives to"),
        _person,
    ),
    _of_head(
        "GiveGold.Target", "gold_target", "Whom the agent chose to give gold to.", _people("gives gold to"), _person
    ),
    _of_head(
        "GiveGold.Price", "gold_amount", "The option of the amount of gold, which counts only if the agent gives gold.",
        _prices("would give"), _price,
    ),
)  # fmt: skip
"""What each head chose. A direction that leads nowhere and an attack out of reach are choices too."""


_HERE, _NOWHERE = len(DIRECTIONS), len(DIRECTIONS) + 1


def side_of(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return the side on which an offset lies, (B,) int64: 0 to 3 as in `DIRECTIONS`, 4 for no offset.

    The larger of both differences decides; the row where they are equal. Rows count to the south, columns to the east,
    (B,) each.
    """
    along_rows = np.where(row < 0, 0, 1)
    along_columns = np.where(column > 0, 2, 3)
    side = np.where(np.abs(row) >= np.abs(column), along_rows, along_columns)
    return np.where((row == 0) & (column == 0), _HERE, side)


def _key(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return a number that is smaller the nearer an offset is, and tells its side: `_side_of_key` of it.

    Nearness is in tiles as the game counts, then in steps to walk; of equally near ones the first side comes first.
    """
    rank = np.maximum(np.abs(row), np.abs(column)) * (4 * SIDE) + np.abs(row) + np.abs(column)
    return rank * _NOWHERE + side_of(row, column)


def _side_of_key(key: np.ndarray) -> np.ndarray:
    """Return the side that a key tells, (B,) int64; `_NOWHERE` for keys below 0."""
    return np.where(key < 0, _NOWHERE, key % _NOWHERE).astype(np.int64)


_TILE_KEY = _key(*TILE_OFFSETS).astype(np.int32)
_FARTHER = np.int32(_TILE_KEY.max() + 1)


def _tile(seen: Observed, material: str) -> np.ndarray:
    key = np.where(seen.material == MATERIAL_NAMES.index(material), _TILE_KEY, _FARTHER).min(axis=1)  # (B,)
    return _side_of_key(np.where(key == _FARTHER, -1, key))


def _entity(seen: Observed, who: Who) -> np.ndarray:
    rows = who(seen)
    owner = seen.entity_owner[rows]
    row, column = (seen.entity(axis)[rows].astype(np.int64) - seen.own_as_seen(axis)[owner] for axis in ("row", "col"))
    return _side_of_key(observed.extreme(_key(row, column), owner, len(seen), -1))


def _moved(seen: Observed) -> np.ndarray:
    return side_of(change("row")(seen), change("col")(seen))


def _sides(what: str, here: str) -> dict[str, str]:
    sides = {side: f"has the nearest {what} in the {side}" for side in DIRECTIONS}
    return {**sides, "here": f"{here}", "nowhere": f"sees no {what}"}


def _nearest(what: str) -> str:
    return f"The side on which the nearest {what} in view is."


_DANGEROUS = (NPC_TYPES["neutral"], NPC_TYPES["aggressive"])

WAYS = (
    Category(
        "nearest_water", _nearest("water tile"), _sides("water", "stands on water"), lambda seen: _tile(seen, "water"),
        of_tiles=True,
    ),
    Category(
        "nearest_foilage", _nearest("foilage tile (food)"), _sides("foilage", "stands on foilage"),
        lambda seen: _tile(seen, "foilage"), of_tiles=True,
    ),
    Category(
        "nearest_player", _nearest("other player"), _sides("player", "shares its tile with a player"),
        lambda seen: _entity(seen, PLAYERS),
    ),
    Category(
        "nearest_npc", _nearest("NPC"), _sides("NPC", "shares its tile with an NPC"),
        lambda seen: _entity(seen, NPCS),
    ),
    Category(
        "nearest_enemy", _nearest("neutral or aggressive NPC"), _sides("enemy", "shares its tile with an enemy"),
        lambda seen: _entity(seen, lambda seen: np.isin(seen.entity("npc_type"), _DANGEROUS)),
    ),
)  # fmt: skip

_SIDE_OF_TASK = re.compile(rf"GoTowards_\(side:({'|'.join(DIRECTIONS)})_")

MOVED = Category(
    "moved",
    "The direction that the agent has moved in since the previous tick: what came of its choice.",
    {**{side: f"has moved {side}" for side in DIRECTIONS}, "nowhere": "has not moved"},
    _moved,
    over_time=True,
)  # fmt: skip


def _goal(seen: Observed) -> np.ndarray:
    sides = [_SIDE_OF_TASK.search(name) for name in seen.task_names]
    numbers = np.array([DIRECTIONS.index(side[1]) if side else len(DIRECTIONS) for side in sides])
    return numbers[seen.task] if sides else np.full(len(seen), len(DIRECTIONS))


GOAL = Category(
    "goal",
    "The side of the map that the agent's task is to go to, also where it is not shown to the policy.",
    {**{side: f"has the task to go {side}" for side in DIRECTIONS}, "none": "has another task"},
    _goal,
)
