"""The fourteen features that every analysis starts from."""

from collections.abc import Sequence

import numpy as np

from analysis.features import observed
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import COMBAT_SKILLS, Observed


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


def _visible_players(seen: Observed) -> np.ndarray:
    return _visible_entities(seen) - _visible_npcs(seen)


def in_combat(seen: Observed) -> np.ndarray:
    """Return where the agent hit or was hit recently enough to count as in combat in the game, (B,) bool."""
    latest = seen.own("latest_combat_tick").astype(np.int64)
    # Zero means never: without this test every agent would be in combat in an episode's first ticks.
    return (latest > 0) & (seen.records.tick - latest < seen.metadata.combat_status_ticks)


def _is_trading(seen: Observed) -> np.ndarray:
    one_is_enough = ("Buy.MarketItem", "Sell.InventoryItem", "GiveGold.Target")
    return np.logical_or.reduce([is_giving_item(seen), *(seen.chose(head) for head in one_is_enough)])


BASICS = (
    Feature(
        "n_visible_entities", "entities", "Players and NPCs in view, excluding the agent itself.", _visible_entities
    ),
    Feature("n_visible_npcs", "NPCs", "NPCs in view.", _visible_npcs),
    Feature("n_visible_players", "players", "Players in view, excluding the agent itself.", _visible_players),
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
        _is_trading,
    ),
)  # fmt: skip
