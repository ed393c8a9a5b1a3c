"""The event log without an object for each event, and without going through all events of the episode in every tick.

The game makes nine attribute objects for each event, searches the whole log for the tick's events, copies it, and
indexes it anew by agent. The log only ever grows at its end, so all of that can be kept up instead.
"""

from typing import Any

import numpy as np
from nmmo.core.realm import Realm
from nmmo.datastore.numpy_datastore import NumpyTable
from nmmo.lib.event_log import EventLogger, EventState

_COLUMN = EventState.State.attr_name_to_col
_FIRST_ROWS = 1024


class _EventTable(NumpyTable):
    """A table whose rows are handed out in the same order as the game's, and never given back."""

    def reset(self) -> None:
        self.next_row = 1
        super().reset()

    def add_row(self) -> int:
        if self.next_row == self._max_rows:
            self._expand(self._max_rows * 2)
        self.next_row += 1
        return self.next_row - 1


class _Cell:
    """One column of the event that is being recorded."""

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
    """The game's event log.

    Attributes:
        rows_of: which rows of `data` are about each entity.
    """

    table: _EventTable
    row: int
    _last_tick: int
    rows_of: dict[int, list[int]]

    @classmethod
    def take_over(cls, realm: Realm) -> None:
        """Make a world's event log one of these."""
        realm.datastore._tables["Event"] = _EventTable(EventState.State.num_attributes, _FIRST_ROWS)
        log: Any = realm.event_log
        log.__class__ = cls
        log.table = realm.datastore.table("Event")
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
        """All events, (events, columns) int16; they do not change any more."""
        return self.table._data[1 : self.table.next_row]

    def index_new(self) -> set[tuple[int, int]]:
        """Bring `rows_of` up to date, and return whom the new events are about, each with the event's code."""
        new = self.table._data[self._indexed : self.table.next_row]
        entities = new[:, _COLUMN["ent_id"]].tolist()
        for row, entity in enumerate(entities, start=self._indexed - 1):
            self.rows_of.setdefault(entity, []).append(row)
        self._indexed = self.table.next_row
        return set(zip(entities, new[:, _COLUMN["event"]].tolist(), strict=True))

    def update(self) -> None:
        """Note which events belong to the tick that has just been played: those behind the last tick's."""
        tick = self.realm.tick
        if tick > self._last_tick:
            self._data_by_tick[tick] = self.table._data[self._noted : self.table.next_row]
            self._last_tick = tick
        self._noted = self.table.next_row

    def _create_event(self, entity: Any, event_code: int) -> _Event:
        self.row = self.table.add_row()
        self.table._data[self.row, :4] = (1, entity.ent_id, self.realm.tick + 1, event_code)
        return self._event
