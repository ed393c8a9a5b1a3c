"""What the agent chose to do. These are intentions: the game carries them out after the record is made."""

import numpy as np

from activation_store.schema import OPTIONS
from analysis.features.basics import chose, is_giving_item
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import Observed

STYLES = OPTIONS["Attack.Style"]

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
