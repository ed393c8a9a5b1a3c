"""The agent itself: the features that every analysis starts from, its body, place and belongings, and its past.

What has happened since earlier ticks of the agent's life needs every tick from spawn on.
"""

from collections.abc import Callable, Sequence

import numpy as np

from analysis.features import observed
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import COMBAT_SKILLS, Observed
from analysis.lives import Lives
from common.user_error import UserError


def own(name: str) -> Compute:
    """Return a function that computes a feature by reading a column of the agent's own row."""
    return lambda seen: seen.own(name)


def chose(head: str) -> Compute:
    """Return a function that computes a feature: whether the option chosen in a head is not its no-op."""
    return lambda seen: seen.chose(head)


def is_giving_item(seen: Observed) -> np.ndarray:
    """Return where both an item and a recipient were chosen, (B,) bool: without both, nothing is given."""
    return seen.chose("Give.InventoryItem") & seen.chose("Give.Target")


def highest_level(skills: Sequence[str]) -> Compute:
    """Return a function that computes a feature: the highest of the agent's own levels in some skills."""
    return lambda seen: np.maximum.reduce([seen.own(f"{skill}_level") for skill in skills])


max_combat_level = highest_level(COMBAT_SKILLS)


def _visible_npcs(seen: Observed) -> np.ndarray:
    return observed.count(seen.is_npc, seen.entity_owner, len(seen))


def _visible_entities(seen: Observed) -> np.ndarray:
    return seen.records.entity.counts - observed.count(seen.is_self, seen.entity_owner, len(seen))


def in_combat(seen: Observed) -> np.ndarray:
    """Return where the agent hit or was hit recently enough to count as in combat in the game, (B,) bool."""
    latest = seen.own("latest_combat_tick").astype(np.int64)
    # Zero means never: without this test every agent would be in combat in an episode's first ticks.
    return (latest > 0) & (seen.clock - latest < seen.metadata.combat_status_ticks)


_TRADES = ("Buy.MarketItem", "Sell.InventoryItem", "GiveGold.Target")

BASICS = (
    Feature(
        "n_visible_entities", "entities", "Players and NPCs in view, excluding the agent itself.", _visible_entities
    ),
    Feature("n_visible_npcs", "NPCs", "NPCs in view.", _visible_npcs),
    Feature(
        "n_visible_players", "players", "Players in view, excluding the agent itself.",
        lambda seen: _visible_entities(seen) - _visible_npcs(seen),
    ),
    Feature("self_health", "points", "The agent's own health, 0 to 100.", own("health")),
    Feature("self_food", "points", "The agent's own food, 0 to 100.", own("food")),
    Feature("self_water", "points", "The agent's own water, 0 to 100.", own("water")),
    Feature("self_gold", "gold", "Gold that the agent owns.", own("gold")),
    Feature("max_combat_level", "level", "The highest of the agent's melee, range and mage levels.", max_combat_level),
    Feature(
        "in_combat", YES_OR_NO, "The agent hit or was hit recently enough that the game counts it as in combat.",
        in_combat,
    ),
    Feature(
        "n_inventory_items", "items", "Slots in use in the agent's inventory.",
        lambda seen: seen.records.inventory.counts,
    ),
    Feature("tick", "ticks", "Game tick within the episode.", lambda seen: seen.records.tick),
    Feature("is_moving", YES_OR_NO, "The agent chose a direction to move in.", chose("Move.Direction")),
    Feature("is_attacking", YES_OR_NO, "The agent chose a target to attack.", chose("Attack.Target")),
    Feature(
        "is_trading", YES_OR_NO, "The agent chose to buy, to sell, to give gold, or to give an item to someone.",
        lambda seen: np.logical_or.reduce([is_giving_item(seen), *map(seen.chose, _TRADES)]),
    ),
)  # fmt: skip


HARVESTING_SKILLS = ("fishing", "herbalism", "prospecting", "carving", "alchemy")
MAP_BORDER = 16
"""Width in tiles of the void border around every map; rows and columns count from the border's outer edge."""
WEAPONS = (5, 6, 7)
TOOLS = (8, 9, 10, 11, 12)
AMMUNITION = (13, 14, 15)
RATION, POTION = 16, 17
"""The game's `type_id` values of items."""
Which = Callable[[Observed], np.ndarray]
"""Marks item rows: (I,) bool."""


def _ticks_since_combat(seen: Observed) -> np.ndarray:
    latest = seen.own("latest_combat_tick").astype(np.int64)
    return np.where(latest > 0, seen.clock - latest, seen.own("time_alive"))


BODY = (
    Feature("age", "ticks", "Ticks since the agent spawned.", own("time_alive")),
    Feature("freeze", "ticks", "Ticks for which the agent still cannot act.", own("freeze")),
    Feature(
        "damage_taken", "points", "Damage of the last hit that the agent took in the previous tick.", own("damage")
    ),
    Feature(
        "is_attacked", YES_OR_NO,
        "The agent has an attacker: it was attacked in the previous tick, or hurt in the one before.",
        lambda seen: seen.own("attacker_id") != 0,
    ),
    Feature(
        "is_attacked_by_player", YES_OR_NO, "The agent's attacker, as in is_attacked, is a player.",
        lambda seen: seen.own("attacker_id") > 0,
    ),
    Feature(
        "ticks_since_combat", "ticks",
        "Ticks since the agent last attacked someone within range or was attacked; ticks since spawn if never.",
        _ticks_since_combat,
    ),
    Feature("is_starving", YES_OR_NO, "The agent's food is 0, which costs health.", lambda seen: seen.own("food") == 0),
    Feature(
        "is_dehydrated", YES_OR_NO, "The agent's water is 0, which costs health.", lambda seen: seen.own("water") == 0
    ),
    *(
        Feature(f"{skill}_level", "level", f"The agent's level in {skill}.", own(f"{skill}_level"))
        for skill in COMBAT_SKILLS + HARVESTING_SKILLS
    ),
    Feature(
        "max_harvesting_level", "level",
        "The highest of the agent's fishing, herbalism, prospecting, carving and alchemy levels.",
        highest_level(HARVESTING_SKILLS),
    ),
    Feature(
        "max_level", "level", "The highest of the agent's eight skill levels.",
        highest_level(COMBAT_SKILLS + HARVESTING_SKILLS),
    ),
)  # fmt: skip


def _map_size(seen: Observed) -> int:
    size = seen.metadata.environment.get("map_size")
    if type(size) is not int or size < 1:
        raise UserError(
            "the dump does not record the size of its maps: leave distance_to_centre and distance_to_edge out of "
            "the features, or extract it again"
        )
    return size


def _position(seen: Observed) -> np.ndarray:
    return np.stack([seen.own("row"), seen.own("col")]).astype(np.int64)


def _distance_to_edge(seen: Observed) -> np.ndarray:
    inside = _position(seen) - MAP_BORDER
    # The last row and column that agents can walk on are `_map_size` tiles from the first.
    return np.minimum(inside, _map_size(seen) - inside).min(axis=0)


PLACE = (
    Feature("self_row", "tiles", "The agent's row on the map, including the 16 rows of the border.", own("row")),
    Feature("self_col", "tiles", "The agent's column on the map, including the 16 columns of the border.", own("col")),
    Feature(
        "distance_to_centre", "tiles", "Tiles to the centre of the map, counting a diagonal step as one.",
        lambda seen: np.abs(_position(seen) - (_map_size(seen) + 2 * MAP_BORDER) // 2).max(axis=0),
    ),
    Feature(
        "distance_to_edge", "tiles", "Tiles to the nearest outermost row or column of the map, excluding the border.",
        _distance_to_edge,
    ),
)  # fmt: skip


def _worn(seen: Observed) -> np.ndarray:
    return seen.item("equipped") != 0


def _of_kind(*kinds: int) -> Which:
    return lambda seen: np.isin(seen.item("type_id"), kinds)


def _worn_of_kind(*kinds: int) -> Which:
    return lambda seen: _worn(seen) & np.isin(seen.item("type_id"), kinds)


def _count(which: Which) -> Compute:
    return lambda seen: observed.count(which(seen), seen.item_owner, len(seen))


def _has(which: Which) -> Compute:
    return lambda seen: observed.count(which(seen), seen.item_owner, len(seen)) > 0


def _total(which: Which, *columns: str) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        rows = which(seen)
        values = np.sum([seen.item(column)[rows].astype(np.int64) for column in columns], axis=0)
        return observed.total(values, seen.item_owner[rows], len(seen))

    return compute


BELONGINGS = (
    Feature("n_worn_items", "items", "Items that the agent wears or holds.", _count(_worn)),
    Feature(
        "item_level", "level", "Sum of the levels of the items that the agent wears or holds.", _total(_worn, "level")
    ),
    *(
        Feature(
            f"worn_{style}_attack", "points",
            f"Damage that the items the agent wears or holds add to its {style} attacks.",
            _total(_worn, f"{style}_attack"),
        )
        for style in COMBAT_SKILLS
    ),
    Feature(
        "worn_attack", "points", "Sum of worn_melee_attack, worn_range_attack and worn_mage_attack.",
        _total(_worn, *(f"{style}_attack" for style in COMBAT_SKILLS)),
    ),
    Feature(
        "worn_defence", "points",
        "Sum of the melee, range and mage defence of the items that the agent wears or holds.",
        _total(_worn, *(f"{style}_defense" for style in COMBAT_SKILLS)),
    ),
    Feature("holds_weapon", YES_OR_NO, "The agent holds a spear, a bow or a wand.", _has(_worn_of_kind(*WEAPONS))),
    Feature(
        "holds_tool", YES_OR_NO, "The agent holds a rod, gloves, a pickaxe, an axe or a chisel.",
        _has(_worn_of_kind(*TOOLS)),
    ),
    Feature(
        "n_ammunition", "pieces",
        "Whetstones, arrows and runes that the agent carries, counting every piece of a stack.",
        _total(_of_kind(*AMMUNITION), "quantity"),
    ),
    Feature("n_rations", "items", "Rations that the agent carries.", _count(_of_kind(RATION))),
    Feature("n_potions", "items", "Potions that the agent carries.", _count(_of_kind(POTION))),
    Feature("n_consumables", "items", "Rations and potions that the agent carries.", _count(_of_kind(RATION, POTION))),
    Feature(
        "n_listed_items", "items", "The agent's items that are for sale on the market.",
        _count(lambda seen: seen.item("listed_price") != 0),
    ),
    Feature(
        "inventory_fullness", "share", "Share of the inventory's slots that are in use.",
        lambda seen: seen.records.inventory.counts / seen.noop("Use.InventoryItem"),  # it follows one option per slot
    ),
)  # fmt: skip


LOOKING_BACK = 10
"""Ticks that `displacement` looks back."""


def earlier(values: np.ndarray, lives: Lives, ticks: int) -> np.ndarray:
    """Return each record's value `ticks` earlier, or at the life's first record: (B,) of every tick to (B,)."""
    return later(values, lives, -ticks)


def later(values: np.ndarray, lives: Lives, ticks: int) -> np.ndarray:
    """Return each record's value `ticks` later, or at the life's last record: (B,) of every tick to (B,)."""
    first = np.repeat(lives.starts, lives.lengths)
    last = first + np.repeat(lives.lengths, lives.lengths) - 1
    shifted = np.empty_like(values)
    shifted[lives.order] = values[lives.order][np.clip(np.arange(len(values)) + ticks, first, last)]
    return shifted


def ticks_since(happened: np.ndarray, lives: Lives) -> np.ndarray:
    """Return ticks since something last happened, or since the life's first record: (B,) bool to (B,) int64."""
    place = np.arange(len(happened))
    latest = np.maximum.accumulate(np.where(happened[lives.order], place, np.repeat(lives.starts, lives.lengths)))
    ticks = np.empty(len(happened), np.int64)
    ticks[lives.order] = place - latest
    return ticks


def _whole(seen: Observed, name: str) -> np.ndarray:
    return seen.own(name).astype(np.int64)


def change(name: str) -> Compute:
    """Return a function that computes a feature: the change of a column of the agent's own row since a tick before."""
    return lambda seen: _whole(seen, name) - earlier(_whole(seen, name), seen.lives, 1)


def was_replenished(now: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return where food or water was replenished between the tick before and now, (B,) bool."""
    # Every tick uses some up, so a value that did not fall was replenished, even if it was full before and after.
    return (now > 0) & (now >= before)


def _replenished(name: str) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        now = _whole(seen, name)
        return ticks_since(was_replenished(now, earlier(now, seen.lives, 1)), seen.lives)

    return compute


def _moved(seen: Observed, ticks: int) -> np.ndarray:
    apart = [np.abs(_whole(seen, axis) - earlier(_whole(seen, axis), seen.lives, ticks)) for axis in ("row", "col")]
    return np.maximum(*apart)


OVER_TIME = tuple(
    Feature(name, unit, definition, compute, over_time=True)
    for name, unit, definition, compute in (
        *(
            (f"{own}_change", unit, f"Change of the agent's {own} since the previous tick; 0 at spawn.", change(own))
            for own, unit in (("health", "points"), ("food", "points"), ("water", "points"), ("gold", "gold"))
        ),
        (
            "ticks_since_eating", "ticks",
            "Ticks since the agent last ate foilage or a ration, seen as food that did not fall; ticks since spawn if "
            "never.", _replenished("food"),
        ),
        (
            "ticks_since_drinking", "ticks",
            "Ticks since the agent last drank or ate a ration, seen as water that did not fall; ticks since spawn if "
            "never.", _replenished("water"),
        ),
        (
            "distance_to_spawn", "tiles", "Tiles to where the agent spawned, counting a diagonal step as one.",
            lambda seen: _moved(seen, len(seen)),
        ),
        (
            "displacement", "tiles",
            f"Tiles to where the agent was {LOOKING_BACK} ticks ago, or to where it spawned if it is younger.",
            lambda seen: _moved(seen, LOOKING_BACK),
        ),
        (
            "ticks_standing_still", "ticks", "Ticks since the agent arrived on the tile that it stands on.",
            lambda seen: ticks_since(_moved(seen, 1) > 0, seen.lives),
        ),
        (
            "has_moved", YES_OR_NO, "The agent is on a different tile than in the previous tick.",
            lambda seen: _moved(seen, 1) > 0,
        ),
    )
)  # fmt: skip
