"""The registry of behavioural features: what an agent was doing, read from its observation and its actions.

To add a feature, add one entry to `FEATURES`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from activation_store.schema import DumpMetadata, Records
from user_error import UserError


@dataclass(frozen=True)
class Feature:
    """One behavioural feature.

    Attributes:
        name: how tables and figures call it.
        unit: the unit of its values; "0 or 1" for a yes-or-no feature.
        definition: one sentence that says exactly what is counted.
        compute: from records and their metadata to (B,) values.
    """

    name: str
    unit: str
    definition: str
    compute: Callable[[Records, DumpMetadata], np.ndarray]


def feature_matrix(records: Records, metadata: DumpMetadata) -> np.ndarray:
    """Return every registered feature of every record, (B, features) float64, in the registry's order.

    Raises:
        UserError: the dump lacks a column or an action head that a feature needs, or a record's agent is not among
            the entities that it sees.
    """
    return np.stack([feature.compute(records, metadata).astype(np.float64) for feature in FEATURES], axis=1)


def _index_of(name: str, names: tuple[str, ...], kind: str) -> int:
    if name not in names:
        raise UserError(f"the dump has no {kind} {name!r}, which the behavioural features need; extract it again")
    return names.index(name)


def _entity_column(name: str, records: Records, metadata: DumpMetadata) -> np.ndarray:
    """Return a column of every visible entity, (total rows,)."""
    return records.entity.values[:, _index_of(name, metadata.entity_columns, "entity column")]


def _is_self(records: Records, metadata: DumpMetadata) -> np.ndarray:
    """Tell which entity rows are the observing agent's own, (total rows,) bool; it may be any row of a record."""
    return _entity_column("id", records, metadata) == records.agent_id[records.entity.owner]


def _own(name: str) -> Callable[[Records, DumpMetadata], np.ndarray]:
    def compute(records: Records, metadata: DumpMetadata) -> np.ndarray:
        own = np.flatnonzero(_is_self(records, metadata))
        seen = np.bincount(records.entity.owner[own], minlength=len(records))
        if (seen != 1).any():
            i = int(np.argmax(seen != 1))
            raise UserError(
                f"agent {records.agent_id[i]} at step {records.step[i]} appears {seen[i]} times among the entities it "
                "sees, not once: the dump holds dead or mixed-up records; extract it again"
            )
        return _entity_column(name, records, metadata)[own]

    return compute


def _count(records: Records, rows: np.ndarray) -> np.ndarray:
    """Count the marked entity rows of each record, (B,) int64."""
    return np.bincount(records.entity.owner[rows], minlength=len(records))


def _visible_npcs(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return _count(records, _entity_column("npc_type", records, metadata) > 0)


def _visible_players(records: Records, metadata: DumpMetadata) -> np.ndarray:
    # Types at or below zero are players; a negative one marks a player that cannot die.
    players = _entity_column("npc_type", records, metadata) <= 0
    return _count(records, players & ~_is_self(records, metadata))


def _visible_entities(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return _visible_npcs(records, metadata) + _visible_players(records, metadata)


def _max_combat_level(records: Records, metadata: DumpMetadata) -> np.ndarray:
    levels = [_own(f"{style}_level")(records, metadata) for style in ("melee", "range", "mage")]
    return np.maximum.reduce(levels)


def _in_combat(records: Records, metadata: DumpMetadata) -> np.ndarray:
    latest = _own("latest_combat_tick")(records, metadata).astype(np.int64)
    # Zero means never: without this test everyone would be fighting in an episode's first ticks.
    return (latest > 0) & (records.tick - latest < metadata.combat_status_ticks)


def _inventory_items(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return records.inventory.counts


def _tick(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return records.tick


def _chosen(records: Records, metadata: DumpMetadata, head_name: str) -> np.ndarray:
    """Tell where the agent chose something else than a head's no-op, (B,) bool."""
    index = _index_of(head_name, tuple(head.name for head in metadata.action_heads), "action head")
    head = metadata.action_heads[index]
    if head.noop is None:
        raise UserError(f"action head {head_name!r} has no no-op in this dump: it must be extracted with no-op targets")
    return records.action[:, index] != head.noop


def _is_moving(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return _chosen(records, metadata, "Move.Direction")


def _is_attacking(records: Records, metadata: DumpMetadata) -> np.ndarray:
    return _chosen(records, metadata, "Attack.Target")


def _is_trading(records: Records, metadata: DumpMetadata) -> np.ndarray:
    one_is_enough = ("Buy.MarketItem", "Sell.InventoryItem", "GiveGold.Target")
    both_are_needed = ("Give.InventoryItem", "Give.Target")
    chosen = {name: _chosen(records, metadata, name) for name in one_is_enough + both_are_needed}
    traded = np.logical_or.reduce([chosen[name] for name in one_is_enough])
    return traded | np.logical_and.reduce([chosen[name] for name in both_are_needed])


FEATURES = (
    Feature("n_visible_entities", "entities", "Players and NPCs in view, without the agent itself.", _visible_entities),
    Feature("n_visible_npcs", "NPCs", "NPCs in view.", _visible_npcs),
    Feature("n_visible_players", "players", "Players in view, without the agent itself.", _visible_players),
    Feature("self_health", "points", "The agent's own health, 0 to 100.", _own("health")),
    Feature("self_food", "points", "The agent's own food, 0 to 100.", _own("food")),
    Feature("self_water", "points", "The agent's own water, 0 to 100.", _own("water")),
    Feature("self_gold", "gold", "Gold that the agent owns.", _own("gold")),
    Feature("max_combat_level", "level", "The highest of the agent's melee, range and mage levels.", _max_combat_level),
    Feature(
        "in_combat",
        "0 or 1",
        "The agent hit or was hit within the ticks that the game counts as being in combat.",
        _in_combat,
    ),
    Feature("n_inventory_items", "items", "Slots of the agent's inventory in use.", _inventory_items),
    Feature("tick", "ticks", "The game's clock in this episode.", _tick),
    Feature("is_moving", "0 or 1", "The agent chose a direction to move in.", _is_moving),
    Feature("is_attacking", "0 or 1", "The agent chose a target to attack.", _is_attacking),
    Feature(
        "is_trading",
        "0 or 1",
        "The agent chose to buy, to sell, to give gold, or to give an item to someone.",
        _is_trading,
    ),
)
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
