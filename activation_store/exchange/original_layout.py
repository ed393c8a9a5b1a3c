"""The layout of the original tools' files: they ran Neural MMO 2.1 and wrote numbers without column names."""

from activation_store.schema import ActionHead

_ENTITY = (
    "id npc_type row col damage time_alive freeze item_level attacker_id latest_combat_tick message gold health food "
    "water melee_level melee_exp range_level range_exp mage_level mage_exp fishing_level fishing_exp herbalism_level "
    "herbalism_exp prospecting_level prospecting_exp carving_level carving_exp alchemy_level alchemy_exp"
)
_INVENTORY = (
    "id type_id owner_id level capacity quantity melee_attack range_attack mage_attack melee_defense range_defense "
    "mage_defense health_restore resource_restore equipped listed_price"
)
ENTITY_COLUMNS = tuple(_ENTITY.split())
INVENTORY_COLUMNS = tuple(_INVENTORY.split())
ACTION_HEADS = (
    ActionHead("Attack.Style", 3, None),
    ActionHead("Attack.Target", 101, 100),
    ActionHead("Buy.MarketItem", 385, 384),
    ActionHead("Destroy.InventoryItem", 13, 12),
    ActionHead("Give.InventoryItem", 13, 12),
    ActionHead("Give.Target", 101, 100),
    ActionHead("GiveGold.Price", 99, None),
    ActionHead("GiveGold.Target", 101, 100),
    ActionHead("Move.Direction", 5, 4),
    ActionHead("Sell.InventoryItem", 13, 12),
    ActionHead("Sell.Price", 99, None),
    ActionHead("Use.InventoryItem", 13, 12),
)
COMBAT_STATUS_TICKS = 3
SLOTS_OF_A_PROCESS = 10_000_000
"""Offset added to the slots of each further recording process."""
