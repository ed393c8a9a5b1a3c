"""State of players and NPCs: the game's attributes, which write to their table directly, and quick access to them.

`state.pxd` gives the types with which this file is compiled.
"""

from bisect import bisect_right
from collections import OrderedDict
from typing import Any

import numpy as np
from nmmo.core.realm import Realm
from nmmo.datastore.numpy_datastore import NumpyDatastore, NumpyTable
from nmmo.entity.entity import EntityState
from nmmo.entity.npc import Aggressive, Passive, PassiveAggressive
from nmmo.entity.player import Player

_COLUMN = EntityState.State.attr_name_to_col
_FIRST_ROWS = 512
_SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")
PLAYER, PEACEFUL, DEFENSIVE, HOSTILE = range(4)  # kinds of bodies: the last three are NPCs


class Cells:
    """Contents of a table, (rows, columns) int16; replaced when the table grows."""

    def __init__(self) -> None:
        self.data = np.zeros((1, 1), dtype=np.int16)


class FreeRows:
    """The game's `IdAllocator`: rows that have never been used in their order, then freed ones in the order of freeing.

    The game keeps all of them in an ordered set, which it fills row by row whenever a table grows. A table only grows
    once no row is free.
    """

    def __init__(self) -> None:
        self.next_new = 1  # row 0 is padding
        self.max_id = 1
        self.freed: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> list[int]:
        """Free rows, in the order in which they will be used."""
        return [*range(self.next_new, self.max_id), *self.freed]

    def full(self) -> bool:
        """Return whether no row is free."""
        return self.next_new == self.max_id and not self.freed

    def allocate(self) -> int:
        """Take the next free row."""
        if self.next_new < self.max_id:
            self.next_new += 1
            return self.next_new - 1
        return self.freed.popitem(last=False)[0]

    def remove(self, row: int) -> None:
        """Free a row; nothing happens if it is free already."""
        self.freed.setdefault(row)

    def expand(self, rows: int) -> None:
        """Let the table have so many rows."""
        self.max_id = rows


class CellTable(NumpyTable):
    """One of the game's tables, whose contents can be reached without going through the table."""

    def __init__(self, columns: int, rows: int):
        self.cells = Cells()
        super().__init__(columns, rows)

    @classmethod
    def take_over(cls, realm: Realm, name: str, columns: int, rows: int = _FIRST_ROWS) -> "CellTable":
        """Replace one of a world's tables, which must be empty."""
        table = realm.datastore._tables[name] = cls(columns, rows)
        return table

    def _expand(self, rows: int) -> None:
        if self._max_rows == 0:
            self._id_allocator = FreeRows()
        super()._expand(rows)
        self.cells.data = self._data


class CellRecord:
    """The game's `DatastoreRecord` of a row of a `CellTable`."""

    def __init__(self, datastore: Any, table: CellTable, row: int):
        self.datastore = datastore
        self.table = table
        self.id = row
        self.cells = table.cells

    def update(self, column: int, value: Any) -> None:
        """Set the value of a column."""
        self.cells.data[self.id, column] = int(value)

    def get(self, column: int) -> Any:
        """Return the value of a column."""
        return self.table.get(self.id)[column]

    def delete(self) -> None:
        """Free the row."""
        self.table.remove_row(self.id)


class FastDatastore(NumpyDatastore):
    """The game's tables, of which some are `CellTable`."""

    def create_record(self, object_type: str) -> Any:
        """Add a row to a table."""
        table = self._tables[object_type]
        if type(table) is CellTable:
            return CellRecord(self, table, table.add_row())
        return super().create_record(object_type)


class Attribute:
    """The game's `SerializedAttribute`: a value between two limits, and a copy of it in a table."""

    def __init__(self, original: Any, cells: Cells):
        self.datastore_record = original.datastore_record
        self._name = original._name
        self._column = original._column
        self._min = original._min
        self._max = original._max
        self._val = original._val
        self.row = original.datastore_record.id
        self.cells = cells

    @property
    def val(self) -> Any:
        """The value."""
        return self._val

    @property
    def min(self) -> Any:
        """The lower limit."""
        return self._min

    @property
    def max(self) -> Any:
        """The upper limit."""
        return self._max

    @property
    def empty(self) -> bool:
        """Whether the value is 0."""
        return self._val == 0

    def update(self, value: Any) -> None:
        """Set the value, moved into its limits."""
        if value > self._max:
            value = self._max
        elif value < self._min:
            value = self._min
        self.cells.data[self.row, self._column] = int(value)
        self._val = value

    def increment(self, by: Any = 1) -> "Attribute":
        """Add to the value."""
        self.update(self._val + by)
        return self

    def decrement(self, by: Any = 1) -> "Attribute":
        """Subtract from the value."""
        self.update(self._val - by)
        return self

    def __eq__(self, other: object) -> bool:
        return self._val == other

    def __ne__(self, other: object) -> bool:
        return self._val != other

    def __lt__(self, other: Any) -> bool:
        return self._val < other

    def __le__(self, other: Any) -> bool:
        return self._val <= other

    def __gt__(self, other: Any) -> bool:
        return self._val > other

    def __ge__(self, other: Any) -> bool:
        return self._val >= other


class Body:
    """The parts of a player or NPC that change in most ticks.

    Attributes:
        kind: one of the kinds of bodies above.
        fighting: experience in melee, range and mage combat; `fighting_levels` are the levels.
        slots: of what a player wears, in the game's order; empty for NPCs.
        levels: of a player's skills that can be trained; empty for NPCs.
    """

    def __init__(self, entity: Any, kind: int):
        self.entity = entity
        self.kind = kind
        self.is_player = kind == PLAYER
        self.number = entity.ent_id
        self.history = entity.history
        self.resources = entity.resources
        self.row = entity.row
        self.column = entity.col
        self.health = entity.health
        self.food = entity.food
        self.water = entity.water
        self.freeze = entity.freeze
        self.damage = entity.damage
        self.time_alive = entity.time_alive
        self.item_level = entity.item_level
        self.attacker_id = entity.attacker_id
        self.latest_combat_tick = entity.latest_combat_tick
        self.fighting = [getattr(entity, f"{skill}_exp") for skill in _SKILLS[:3]]
        self.fighting_levels = [getattr(entity, f"{skill}_level") for skill in _SKILLS[:3]]
        self.equipment = equipment = entity.equipment
        self.ammunition = equipment.ammunition
        self.slots: list = []
        if self.is_player:
            self.slots = [equipment.hat, equipment.top, equipment.bottom, equipment.held, equipment.ammunition]
        self.levels = [getattr(entity, f"{skill}_level") for skill in _SKILLS] if self.is_player else []
        calculator = entity.skills.experience_calculator
        self.most_experience = int(calculator.max_exp)
        self.thresholds = calculator.exp_threshold.tolist()
        self.highest_level = entity.config.PROGRESSION_LEVEL_MAX

    def can_act(self) -> bool:
        """Return whether the player or NPC is alive and not frozen."""
        return self.health._val > 0 and not self.freeze._val > 0

    def level(self) -> int:
        """Return a player's highest level, as `combat.level` does."""
        highest = 0
        for level in self.levels:
            if level._val > highest:
                highest = level._val
        return highest

    def level_at(self, experience: Any) -> int:
        """Return the level that some experience gives, as `ExperienceCalculator.level_at_exp` does."""
        if experience >= self.most_experience:
            return self.highest_level
        return bisect_right(self.thresholds, experience)


class _Bodily:
    """Properties of players and NPCs that are read most often."""

    body: Body

    @property
    def pos(self) -> tuple[int, int]:
        """Row and column."""
        body = self.body
        return body.row._val, body.column._val

    @property
    def alive(self) -> bool:
        """Whether any health is left."""
        return self.body.health._val > 0


class FastPlayer(_Bodily, Player):
    """The game's player."""

    @property
    def level(self) -> int:
        """Highest level of all skills."""
        return self.body.level()


class FastPassive(_Bodily, Passive):
    """The game's passive NPC."""


class FastPassiveAggressive(_Bodily, PassiveAggressive):
    """The game's NPC that fights back."""


class FastAggressive(_Bodily, Aggressive):
    """The game's NPC that attacks players."""


_FAST = {
    Player: (FastPlayer, PLAYER), Passive: (FastPassive, PEACEFUL),
    PassiveAggressive: (FastPassiveAggressive, DEFENSIVE), Aggressive: (FastAggressive, HOSTILE),
}  # fmt: skip


def take_over_entity(entity: Any, cells: Cells) -> None:
    """Give a new player or NPC, whose attributes are in the table, the faster classes without changing its state."""
    parts = vars(entity)
    for name in _COLUMN:
        parts[name] = Attribute(parts[name], cells)
    for part in (entity.resources, entity.status, entity.history):
        for name in _COLUMN.keys() & vars(part).keys():
            setattr(part, name, parts[name])
    entity.__class__, kind = _FAST[type(entity)]
    entity.body = Body(entity, kind)
