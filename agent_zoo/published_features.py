"""What the networks as published read of table rows."""

from agent_zoo.layers import ITEM_TYPE, NPC_TYPE, Category, RowFeatures
from agent_zoo.observation import ObservationLayout

EQUIPPED = Category(first=0, count=2)
_ITEM_CATEGORIES = {"type_id": ITEM_TYPE, "equipped": EQUIPPED}
_UNREAD_OF_ITEMS = ("id", "owner_id")


def raw_entity_features(layout: ObservationLayout) -> RowFeatures:
    """Features of entity rows as the start kit reads them: the kind as one-hot, 30 columns in the game's own units."""
    return RowFeatures(layout.entity_columns, {"npc_type": NPC_TYPE}, dict.fromkeys(layout.entity_columns, 1))


def raw_item_features(layout: ObservationLayout) -> RowFeatures:
    """Features of item rows as the start kit reads them: two categories as one-hot, 12 columns in hundreds."""
    scales = dict.fromkeys(layout.item_columns, 100)
    return RowFeatures(layout.item_columns, _ITEM_CATEGORIES, scales, _UNREAD_OF_ITEMS)
