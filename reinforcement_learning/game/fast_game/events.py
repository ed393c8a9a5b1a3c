"""An event log without one object per event and without a search through the episode's events in every tick.

The game creates nine attribute objects per event and, in every tick, searches the whole log for the tick's events,
copies it, and rebuilds its index by agent. The log only grows at its end, so all of this can be updated incrementally.
"""

from typing import Any

import numpy as np
from nmmo.core.realm import Realm
from nmmo.lib.event_log import EventLogger, EventState

from reinforcement_learning.game.fast_game.state import Cells, CellTable

_COLUMN = EventState.State.attr_name_to_col
_FIRST_ROWS = 1024


class _EventTable(CellTable):
    """A table whose rows are allocated in the game's order and never freed."""

    def reset(self) -> None:
        self.next_row = 1
        super().reset()

    def add_row(self) -> int:
        if self.next_row == self._max_rows:
            self._expand(self._max_rows * 2)
        self.next_row += 1
        return self.next_row - 1


def write_event(cells: Cells, row: int, tick: int, code: int, entity: int, details: tuple) -> None:
    """Write one row of the table of events.

    Args:
        tick: in which the event happens.
        entity: number of the entity that it happens to.
        details: type, level, number, gold and target, as far as the event has them, otherwise 0; () for none.
    """
    cells.data[row, 0] = 1
    cells.data[row, 1] = entity
    cells.data[row, 2] = tick
    cells.data[row, 3] = code
    for column, value in enumerate(details):
        cells.data[row, 4 + column] = value


class _Cell:
    """One column of the event being recorded."""

    def __init__(self, log: "FastEventLog", column: int):
        self.log = log
        self.column = column

    def update(self, value: int) -> None:
        self.log.table._data[self.log.row, self.column] = value


class _Event:
    """The columns that `EventLogger.record` fills in."""

    def __init__(self, log: "FastEventLog"):
        for name in ("type", "level", "number", "gold", "target_ent"):
            setattr(self, name, _Cell(log, _COLUMN[name]))


class FastEventLog(EventLogger):
    """The game's event log."""

    table: _EventTable
    row: int
    _last_tick: int
    rows_of: dict[int, list[int]]  # rows of `data` about each entity

    @classmethod
    def take_over(cls, realm: Realm) -> None:
        """Replace a world's event log with this class."""
        log: Any = realm.event_log
        log.__class__ = cls
        log.table = _EventTable.take_over(realm, "Event", EventState.State.num_attributes, _FIRST_ROWS)
        log._event = _Event(log)
        log.reset()

    def reset(self) -> None:
        """Forget all events."""
        self.table.reset()
        self._noted = 1  # rows before this one belong to ticks that are over
        self._indexed = 1  # rows before this one are in the index
        self.rows_of = {}

    @property
    def data(self) -> np.ndarray:
        """All events, (events, columns) int16; they no longer change."""
        return self.table._data[1 : self.table.next_row]

    def index_new(self) -> set[tuple[int, int]]:
        """Update `rows_of`, and return the entity and code of each new event."""
        new = self.table._data[self._indexed : self.table.next_row]
        entities = new[:, _COLUMN["ent_id"]].tolist()
        for row, entity in enumerate(entities, start=self._indexed - 1):
            self.rows_of.setdefault(entity, []).append(row)
        self._indexed = self.table.next_row
        return set(zip(entities, new[:, _COLUMN["event"]].tolist(), strict=True))

    def update(self) -> None:
        """Mark the events after the last tick's as those of the tick just played."""
        tick = self.realm.tick
        if tick > self._last_tick:
            self._data_by_tick[tick] = self.table._data[self._noted : self.table.next_row]
            self._last_tick = tick
        self._noted = self.table.next_row

    def note(self, code: int, entity: int, details: tuple = ()) -> None:
        """Record an event as `record` does, without its checks; arguments as in `write_event`."""
        table = self.table
        write_event(table.cells, table.add_row(), self.realm.tick + 1, code, entity, details)

    def _create_event(self, entity: Any, event_code: int) -> _Event:
        self.row = self.table.add_row()
        write_event(self.table.cells, self.row, self.realm.tick + 1, event_code, entity.ent_id, ())
        return self._event
