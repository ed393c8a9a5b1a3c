"""What the agent carries and wears."""

from collections.abc import Callable

import numpy as np

from analysis.features import ragged
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import Observed

WEAPONS = (5, 6, 7)
TOOLS = (8, 9, 10, 11, 12)
AMMUNITION = (13, 14, 15)
RATION, POTION = 16, 17
"""The game's `type_id` values of items."""

_STYLES = ("melee", "range", "mage")

Which = Callable[[Observed], np.ndarray]
"""Marks item rows: (I,) bool."""


def _worn(seen: Observed) -> np.ndarray:
    return seen.item("equipped") != 0


def _of_kind(*kinds: int) -> Which:
    return lambda seen: np.isin(seen.item("type_id"), kinds)


def _worn_of_kind(*kinds: int) -> Which:
    return lambda seen: _worn(seen) & np.isin(seen.item("type_id"), kinds)


def _count(which: Which) -> Compute:
    return lambda seen: ragged.count(which(seen), seen.item_owner, len(seen))


def _has(which: Which) -> Compute:
    return lambda seen: ragged.count(which(seen), seen.item_owner, len(seen)) > 0


def _total(which: Which, *columns: str) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        rows = which(seen)
        values = np.sum([seen.item(column)[rows].astype(np.int64) for column in columns], axis=0)
        return ragged.total(values, seen.item_owner[rows], len(seen))

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
        for style in _STYLES
    ),
    Feature(
        "worn_attack", "points", "Sum of worn_melee_attack, worn_range_attack and worn_mage_attack.",
        _total(_worn, *(f"{style}_attack" for style in _STYLES)),
    ),
    Feature(
        "worn_defence", "points",
        "Sum of the melee, range and mage defence of the items that the agent wears or holds.",
        _total(_worn, *(f"{style}_defense" for style in _STYLES)),
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
