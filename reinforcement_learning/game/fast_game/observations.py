"""Observations of all living agents, written directly into the buffer that the policy reads.

The game goes through its tables once per agent and fills new tables, which PufferLib copies into the buffer. Here one
pass over the tables serves all agents, and only rows in use are written or cleared.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from nmmo.core.observation import COL_DELTA, ROW_DELTA, Observation
from nmmo.core.realm import Realm
from nmmo.entity.entity import EntityState
from nmmo.systems import item as items
from nmmo.systems.item import ItemState

_ENTITY = EntityState.State.attr_name_to_col
_ITEM = ItemState.State.attr_name_to_col
_AMMUNITION = [item.ITEM_TYPE_ID for item in items.AMMUNITION]
_SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")
_SKILL_LEVELS = [_ENTITY[f"{skill}_level"] for skill in _SKILLS]
# The skill that limits each kind of item; for other kinds it is the highest skill.
_SKILL_OF_ITEM = {
    items.Spear: "melee", items.Bow: "range", items.Wand: "mage", items.Rod: "fishing", items.Gloves: "herbalism",
    items.Pickaxe: "prospecting", items.Axe: "carving", items.Chisel: "alchemy", items.Whetstone: "melee",
    items.Arrow: "range", items.Runes: "mage",
}  # fmt: skip
_LEVEL_OF_ITEM = [(item.ITEM_TYPE_ID, _ENTITY[f"{skill}_level"]) for item, skill in _SKILL_OF_ITEM.items()]
_HIGHEST_LEVEL_ITEMS = [item.ITEM_TYPE_ID for item in items.ARMOR + items.CONSUMABLE]
_ITEM_TYPES = 100


@dataclass(frozen=True)
class Rows:
    """Rows of one of the game's tables that belong to n agents, grouped by agent, otherwise in the table's order."""

    values: np.ndarray  # (rows, columns) int16
    agent: np.ndarray  # owner of each row, (rows,), from 0 to n - 1
    position: np.ndarray  # of each row among its agent's rows, (rows,)
    starts: np.ndarray  # each agent's first row, followed by the number of rows, (n + 1,)

    @staticmethod
    def group(values: np.ndarray, agent: np.ndarray, agents: int) -> "Rows":
        """Build from rows sorted by agent."""
        starts = np.zeros(agents + 1, dtype=np.int64)
        np.cumsum(np.bincount(agent, minlength=agents), out=starts[1:])
        return Rows(values, agent, np.arange(len(agent)) - starts[agent], starts)

    @property
    def counts(self) -> np.ndarray:
        """Rows of each agent, (n,)."""
        return np.diff(self.starts)

    def of(self, agent: int) -> np.ndarray:
        """Return one agent's rows."""
        return self.values[self.starts[agent] : self.starts[agent + 1]]


class _Table:
    """One table of the buffer, (agents, rows, columns) int16; only rows that were in use are cleared."""

    def __init__(self, field: np.ndarray):
        self.field = field
        self.capacity = field.shape[1]
        self.used = 0

    def write(self, slots: np.ndarray, rows: Rows) -> None:
        self.field[:, : self.used] = 0
        fits = rows.position < self.capacity
        self.field[slots[rows.agent[fits]], rows.position[fits]] = rows.values[fits]
        self.used = min(self.capacity, int(rows.counts.max(initial=0)))

    def write_same(self, slots: np.ndarray, values: np.ndarray) -> None:
        """Write the same rows for all agents."""
        used = min(self.capacity, len(values))
        self.field[slots, :used] = values[:used]
        self.field[:, used : self.used] = 0
        self.used = used


class ObservationWriter:
    """Writes the observations of one world, and keeps what the agents saw, since actions point at it."""

    def __init__(self, config: Any, dtype: np.dtype):
        assert list(config.POSSIBLE_AGENTS) == list(range(1, config.PLAYER_N + 1))
        self.config = config
        self.blank = np.zeros(config.PLAYER_N, dtype=dtype)
        self.blank["AgentId"] = config.POSSIBLE_AGENTS
        for action, argument in self._masks():
            mask = self.blank["ActionTargets"][action][argument]
            if argument in ("Style", "Price"):
                mask[:] = 1
            else:
                mask[:, -1] = 1  # the no-op
        self.bind(np.zeros(config.PLAYER_N, dtype=dtype))

    def bind(self, buffer: np.ndarray) -> None:
        """Write into `buffer`, (agents,) structured, from now on."""
        self.buffer = buffer
        self.task = buffer["Task"]
        self.tile = buffer["Tile"].reshape(len(buffer), self.config.PLAYER_VISION_DIAMETER, -1, 3)
        self.mask = {pair: buffer["ActionTargets"][pair[0]][pair[1]] for pair in self._masks()}
        # The game never clears the mask of moves: its last entry stays, and all others are written each tick.
        self._cleared = [
            (mask, self.blank["ActionTargets"][action][argument][0].copy())
            for (action, argument), mask in self.mask.items()
            if action != "Move"
        ]
        self.start_episode()

    def start_episode(self) -> None:
        """Clear everything."""
        self.buffer[:] = self.blank
        self.entity, self.inventory, self.market = (
            _Table(self.buffer[table]) for table in ("Entity", "Inventory", "Market")
        )

    def show_nothing(self, agent: int) -> None:
        """Write an agent's observation in the tick of its death: no rows, and every option is legal."""
        self.buffer[agent - 1] = self.blank[agent - 1]

    def write(self, realm: Realm, tile_map: np.ndarray) -> None:
        """Write the observations of all living agents; in other slots, only rows that were in use are cleared.

        Args:
            tile_map: row, column and material of all tiles, (side, side, 3) int16.
        """
        players = realm.players.entities
        self.tick = realm.tick
        self.agents = np.fromiter(players, dtype=np.int64, count=len(players))
        self.index_of = dict(zip(players, range(len(players)), strict=True))
        slots = self.agents - 1
        records = [player.datastore_record.id for player in players.values()]
        entities = realm.datastore.table("Entity")._data
        own = entities[records]  # (n, columns)
        row, column = own[:, _ENTITY["row"]], own[:, _ENTITY["col"]]

        self.buffer["CurrentTick"][slots] = realm.tick
        self._write_tiles(slots, row, column, tile_map)
        self.seen = self._visible(entities, row, column)
        self.entity.write(slots, self.seen)
        item_data = realm.datastore.table("Item")._data
        self.owned = self._owned(item_data)
        self.inventory.write(slots, self.owned)
        self.listed = item_data[item_data[:, _ITEM["listed_price"]] != 0]
        self.market.write_same(slots, self.listed)

        latest_combat = own[:, _ENTITY["latest_combat_tick"]]
        self.in_combat = (latest_combat != 0) & (realm.tick - latest_combat < self.config.COMBAT_STATUS_DURATION)
        for mask, default in self._cleared:
            mask[slots] = default
        around = realm.map.habitable_tiles[row[:, None] + ROW_DELTA, column[:, None] + COL_DELTA]  # (n, 4)
        self.mask["Move", "Direction"][slots, :4] = around
        self._allow_attacks(slots, own)
        self._allow_items(slots, own)
        self._allow_gold(slots, own)
        self._allow_purchases(slots, own)

    def _write_tiles(self, slots: np.ndarray, row: np.ndarray, column: np.ndarray, tile_map: np.ndarray) -> None:
        side = self.config.PLAYER_VISION_DIAMETER
        windows = np.lib.stride_tricks.as_strided(
            tile_map,
            (tile_map.shape[0] - side + 1, tile_map.shape[1] - side + 1, side, side, 3),
            (*tile_map.strides[:2], *tile_map.strides),
            writeable=False,
        )
        radius = self.config.PLAYER_VISION_RADIUS
        self.tile[slots] = windows[row - radius, column - radius]

    def _visible(self, entities: np.ndarray, row: np.ndarray, column: np.ndarray) -> Rows:
        radius = self.config.PLAYER_VISION_RADIUS
        # As unsigned numbers, distances below -radius become large.
        near = (entities[:, _ENTITY["row"]] - (row - radius)[:, None]).view(np.uint16) <= 2 * radius  # (n, table rows)
        near &= (entities[:, _ENTITY["col"]] - (column - radius)[:, None]).view(np.uint16) <= 2 * radius
        agent, entity = near.nonzero()
        return Rows.group(entities[entity], agent, len(row))

    def _owned(self, item_data: np.ndarray) -> Rows:
        owner = item_data[:, _ITEM["owner_id"]]
        index = np.full(self.config.PLAYER_N + 1, -1)
        index[self.agents] = np.arange(len(self.agents))
        agent = index[np.maximum(owner, 0)]  # nobody has id 0
        owned = np.flatnonzero(agent >= 0)
        owned = owned[np.argsort(agent[owned], kind="stable")]
        return Rows.group(item_data[owned], agent[owned], len(self.agents))

    def _allow(self, action: str, argument: str, slots: np.ndarray, rows: Rows, legal: np.ndarray) -> None:
        """Set the mask of options that point at legal rows."""
        mask = self.mask[action, argument]
        fits = np.flatnonzero(legal & (rows.position < mask.shape[1] - 1))
        mask[slots[rows.agent[fits]], rows.position[fits]] = 1

    def _allow_attacks(self, slots: np.ndarray, own: np.ndarray) -> None:
        seen, reach = self.seen, self.config.COMBAT_RANGE_REACH
        seen_id = seen.values[:, _ENTITY["id"]]
        distance = np.abs(seen.values[:, [_ENTITY["row"], _ENTITY["col"]]]
                          - own[seen.agent][:, [_ENTITY["row"], _ENTITY["col"]]])  # fmt: skip
        immune = (seen_id > 0) & (seen.values[:, _ENTITY["time_alive"]] < self.config.COMBAT_SPAWN_IMMUNITY)
        legal = (distance <= reach).all(axis=1) & (seen_id != 0) & (seen_id != self.agents[seen.agent]) & ~immune
        legal &= seen.values[:, _ENTITY["npc_type"]] >= 0
        self._allow("Attack", "Target", slots, seen, legal)
        target = self.mask["Attack", "Target"]
        target[slots, -1] = ~target[slots, :-1].any(axis=1)  # an agent that can attack must

    def _allow_items(self, slots: np.ndarray, own: np.ndarray) -> None:
        owned = self.owned
        free = ~self.in_combat[owned.agent]
        equipped = owned.values[:, _ITEM["equipped"]] != 0
        listed = owned.values[:, _ITEM["listed_price"]] != 0
        level_of = np.full((len(own), _ITEM_TYPES), -1)  # each agent's level in the skill that each item needs
        for item, column in _LEVEL_OF_ITEM:
            level_of[:, item] = own[:, column]
        level_of[:, _HIGHEST_LEVEL_ITEMS] = np.maximum(own[:, _SKILL_LEVELS].max(axis=1), 1)[:, None]
        skilled = owned.values[:, _ITEM["level"]] <= level_of[owned.agent, owned.values[:, _ITEM["type_id"]]]
        self._allow("Use", "InventoryItem", slots, owned, free & ~listed & skilled)
        self._allow("Destroy", "InventoryItem", slots, owned, free & ~equipped)
        self._allow("Give", "InventoryItem", slots, owned, free & ~equipped & ~listed)
        self._allow("Sell", "InventoryItem", slots, owned, free & ~equipped & ~listed)
        self._allow("Give", "Target", slots, self.seen, self._other_players(~self.in_combat & (owned.counts > 0)))

    def _allow_gold(self, slots: np.ndarray, own: np.ndarray) -> None:
        gold = own[:, _ENTITY["gold"]]
        giving = ~self.in_combat & (gold > 2)
        self._allow("GiveGold", "Target", slots, self.seen, self._other_players(giving))
        price = self.mask["GiveGold", "Price"]
        price[slots[giving]] = np.arange(price.shape[1]) < gold[giving][:, None]

    def _other_players(self, giving: np.ndarray) -> np.ndarray:
        """Return which rows are players that an agent can give to; `giving` marks agents that may give, (n,) bool."""
        seen = self.seen
        others = seen.values[:, _ENTITY["id"]] != self.agents[seen.agent]
        return giving[seen.agent] & others & (seen.values[:, _ENTITY["npc_type"]] == 0)

    def _allow_purchases(self, slots: np.ndarray, own: np.ndarray) -> None:
        listed = self.listed[: self.market.capacity]
        if len(listed) == 0:
            return
        legal = listed[:, _ITEM["owner_id"]] != self.agents[:, None]  # (n, listed)
        legal &= listed[:, _ITEM["listed_price"]] <= own[:, _ENTITY["gold"], None]
        legal &= ~self.in_combat[:, None]
        for agent in np.flatnonzero(self.owned.counts >= self.config.ITEM_INVENTORY_CAPACITY):
            legal[agent] &= self._fits_stack(listed, self.owned.of(agent))
        self.mask["Buy", "MarketItem"][slots, : len(listed)] = legal

    @staticmethod
    def _fits_stack(listed: np.ndarray, owned: np.ndarray) -> np.ndarray:
        """Return which items on the market would be added to a stack that an agent has, (listed,) bool."""
        kind = [_ITEM["type_id"], _ITEM["level"]]
        stacks = owned[np.isin(owned[:, _ITEM["type_id"]], _AMMUNITION)][:, kind]
        return (listed[:, None, kind] == stacks).all(axis=2).any(axis=1)

    def _masks(self) -> list[tuple[str, str]]:
        targets = self.blank.dtype["ActionTargets"]
        return [(action, argument) for action in targets.names for argument in targets[action].names]


class _Seen:
    """The rows of one table that an agent saw, in the form that the game's predicates and actions expect."""

    def __init__(self, values: np.ndarray, ids: np.ndarray, capacity: int):
        self.values = values[:capacity]
        self.ids = ids
        self.len = len(ids)


class FastObservation(Observation):
    """One agent's observation: views of the writer's buffer in the game's form."""

    def __init__(self, config: Any, agent_id: int, writer: ObservationWriter):
        # The game's own constructor would allocate two observations that are never used.
        self.config = config
        self.agent_id = agent_id
        self.vision_radius = config.PLAYER_VISION_RADIUS
        self.vision_diameter = config.PLAYER_VISION_DIAMETER
        self.writer = writer
        self._is_agent_dead = False
        self._last_seen: tuple[np.ndarray, _Seen, _Seen, _Seen]  # tiles, entities, inventory and market
        self._views: dict[str, Any] = {}
        self.habitable_tiles: np.ndarray | None = None

    def reset(self, habitable_tiles: np.ndarray, task_embedding: np.ndarray | None = None) -> "FastObservation":
        """Start an episode."""
        self._is_agent_dead = False
        self.habitable_tiles = habitable_tiles
        slot = self.agent_id - 1
        self.writer.task[slot] = 0 if task_embedding is None else task_embedding
        self._views = _views(self.writer.buffer, slot)
        self._views["AgentId"] = self.agent_id
        return self

    def to_gym(self) -> dict[str, Any]:
        """Return the observation as a dictionary of views; in-place changes, such as to masks, take effect."""
        return {**self._views, "CurrentTick": 0 if self._is_agent_dead else self.writer.tick}

    def set_agent_dead(self) -> None:
        """Keep what the agent saw last: its task is still evaluated in the tick of its death."""
        self._last_seen = (self.tiles.copy(), self.entities, self.inventory, self.market)
        self._is_agent_dead = True
        self.writer.show_nothing(self.agent_id)

    @property
    def current_tick(self) -> int:
        """Tick of the observation."""
        return self.writer.tick

    @property
    def tiles(self) -> np.ndarray:
        """Tiles in view, (tiles, 3)."""
        return self._last_seen[0] if self._is_agent_dead else self._views["Tile"]

    @property
    def entities(self) -> _Seen:
        """Entities in view."""
        if self._is_agent_dead:
            return self._last_seen[1]
        return self._rows(self.writer.seen, _ENTITY["id"], self.config.PLAYER_N_OBS)

    @property
    def inventory(self) -> _Seen:
        """Items owned."""
        if self._is_agent_dead:
            return self._last_seen[2]
        return self._rows(self.writer.owned, _ITEM["id"], self.config.INVENTORY_N_OBS)

    @property
    def market(self) -> _Seen:
        """Items for sale."""
        if self._is_agent_dead:
            return self._last_seen[3]
        listed = self.writer.listed
        return _Seen(listed, listed[:, _ITEM["id"]], self.config.MARKET_N_OBS)

    @property
    def agent(self) -> Any:
        """The agent's own row."""
        return self.entity(self.agent_id)

    @property
    def agent_in_combat(self) -> bool:
        """Whether the agent is in combat."""
        return bool(self.writer.in_combat[self.writer.index_of[self.agent_id]])

    def _rows(self, rows: Rows, column: int, capacity: int) -> _Seen:
        values = rows.of(self.writer.index_of[self.agent_id])
        return _Seen(values, values[:, column], capacity)


def _views(record: np.ndarray, slot: int) -> dict[str, Any]:
    names = record.dtype.names or ()
    return {name: _views(record[name], slot) if record[name].dtype.names else record[name][slot] for name in names}
