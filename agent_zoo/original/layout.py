"""What the original's agents observe and choose: the layout of the game that its repository configured."""

from agent_zoo.observation import ActionHead, CandidateTable, ObservationLayout

_TILE = ("row", "col", "material_id")
_ENTITY = (
    "id", "npc_type", "row", "col", "damage", "time_alive", "freeze", "item_level", "attacker_id", "latest_combat_tick",
    "message", "gold", "health", "food", "water",
)  # fmt: skip
_SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")
_ITEM = (
    "id", "type_id", "owner_id", "level", "capacity", "quantity", "melee_attack", "range_attack", "mage_attack",
    "melee_defense", "range_defense", "mage_defense", "health_restore", "resource_restore", "equipped", "listed_price",
)  # fmt: skip
_ROWS: dict[CandidateTable, int] = {"entity": 100, "inventory": 12, "market": 384}
_HEADS: tuple[tuple[str, CandidateTable | int], ...] = (
    ("Attack.Style", 3), ("Attack.Target", "entity"), ("Buy.MarketItem", "market"),
    ("Destroy.InventoryItem", "inventory"), ("Give.InventoryItem", "inventory"), ("Give.Target", "entity"),
    ("GiveGold.Price", 99), ("GiveGold.Target", "entity"), ("Move.Direction", 5),
    ("Sell.InventoryItem", "inventory"), ("Sell.Price", 99), ("Use.InventoryItem", "inventory"),
)  # fmt: skip


def original_layout(task_size: int) -> ObservationLayout:
    """Return the layout, given how many numbers the embedding of a task has."""
    return ObservationLayout(
        tile_columns=_TILE,
        entity_columns=_ENTITY + tuple(f"{skill}_{kind}" for skill in _SKILLS for kind in ("level", "exp")),
        item_columns=_ITEM,
        tiles=225,
        entities=_ROWS["entity"],
        inventory=_ROWS["inventory"],
        market=_ROWS["market"],
        materials=16,
        map_side=160,
        task_size=task_size,
        heads=tuple(_head(name, options) for name, options in _HEADS),
    )


def _head(name: str, options: CandidateTable | int) -> ActionHead:
    if isinstance(options, int):
        return ActionHead(name, options, options - 1 if name == "Move.Direction" else None, None)
    size = _ROWS[options] + 1
    return ActionHead(name, size, size - 1, options)
