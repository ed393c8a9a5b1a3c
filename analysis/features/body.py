"""The agent itself: its age, injuries and skills, its place on the map, and what it carries and wears."""

from collections.abc import Callable

import numpy as np

from analysis.features import observed
from analysis.features.basics import highest_level, own
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import COMBAT_SKILLS, Observed
from common.user_error import UserError

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
    return np.where(latest > 0, seen.records.tick - latest, seen.own("time_alive"))


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


def _distance_to_centre(seen: Observed) -> np.ndarray:
    centre = (_map_size(seen) + 2 * MAP_BORDER) // 2
    return np.abs(_position(seen) - centre).max(axis=0)


def _distance_to_edge(seen: Observed) -> np.ndarray:
    inside = _position(seen) - MAP_BORDER
    return np.minimum(inside, _map_size(seen) - 1 - inside).min(axis=0)


PLACE = (
    Feature("self_row", "tiles", "The agent's row on the map, including the 16 rows of the border.", own("row")),
    Feature("self_col", "tiles", "The agent's column on the map, including the 16 columns of the border.", own("col")),
    Feature(
        "distance_to_centre", "tiles", "Tiles to the centre of the map, counting a diagonal step as one.",
        _distance_to_centre,
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


def _fullness(seen: Observed) -> np.ndarray:
    return seen.records.inventory.counts / seen.noop("Use.InventoryItem")  # the no-op follows one option per slot


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
    Feature("inventory_fullness", "share", "Share of the inventory's slots that are in use.", _fullness),
)  # fmt: skip
