"""Agent-ticks in memory: columns with one entry per record, and tables whose rows belong to records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from common.user_error import UserError


@dataclass(frozen=True)
class RaggedRows:
    """Rows of a table grouped by record, without padding."""

    values: np.ndarray  # (total rows, columns) int16
    offsets: np.ndarray  # (records + 1,) int64; record i owns rows offsets[i] to offsets[i + 1]

    @property
    def counts(self) -> np.ndarray:
        """Rows of each record, (records,) int64."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> np.ndarray:
        """The record that each row belongs to, (total rows,) int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    def take(self, records: np.ndarray) -> "RaggedRows":
        """Return the rows of the given records (integer indices or a boolean mask), in their order."""
        records = np.flatnonzero(records) if records.dtype == bool else records
        counts = self.counts[records]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        positions = np.repeat(self.offsets[:-1][records] - offsets[:-1], counts) + np.arange(offsets[-1])
        return RaggedRows(self.values[positions], offsets)


@dataclass(frozen=True)
class Records:
    """Agent-ticks as columns; every array has one entry per record. B records, H action heads.

    Unrecorded fields are NaN (`reward`, `value`, `log_probability` of imported dumps); tables that were left out on
    reading have no rows.
    """

    step: np.ndarray  # ticks played since the recording of the episode began, (B,) int64
    env_id: np.ndarray  # the slot of its world that held the agent's memory, (B,) int64
    agent_id: np.ndarray  # the agent's id in the game, from 1, (B,) int64
    episode: np.ndarray  # number of the episode across all environments, (B,) int64
    tick: np.ndarray  # the game's tick in this episode, (B,) int64
    reward: np.ndarray  # for this record's action, (B,) float32
    value: np.ndarray  # the critic's estimate, (B,) float32
    action: np.ndarray  # index chosen in each head, (B, H) int64
    log_probability: np.ndarray  # of the chosen index in each head, (B, H) float32
    activations: dict[str, np.ndarray]  # layer name -> (B, units) float32
    tile: np.ndarray  # row, column and material of the 15x15 view, (B, 225, 3) int16
    entity: RaggedRows  # visible entities, including the agent itself; columns named in the metadata
    inventory: RaggedRows  # items carried; columns named in the metadata
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """Optional columns by name, (B,) or (B, width); dtype, unit and definition are in the metadata."""
    tables: dict[str, RaggedRows] = field(default_factory=dict)
    """Other optional tables by name, such as Market; columns named in the metadata."""

    def __len__(self) -> int:
        return len(self.step)

    def column(self, name: str) -> np.ndarray:
        """Return an optional column (UserError: the records do not have it)."""
        if name not in self.columns:
            there = ", ".join(self.columns) or "none"
            raise UserError(
                f"the dump has no column {name!r} (of the optional ones: {there}); extract it again with it"
            )
        return self.columns[name]

    @property
    def all_tables(self) -> dict[str, RaggedRows]:
        """Every table by its name in the game's observation."""
        return {"Entity": self.entity, "Inventory": self.inventory, **self.tables}

    def take(self, records: np.ndarray) -> "Records":
        """Return the given records (integer indices or a boolean mask), in their order."""
        return Records(**{column.name: _take(getattr(self, column.name), records) for column in fields(self)})

    @staticmethod
    def concatenate(parts: "Sequence[Records]") -> "Records":
        """Join one or more parts with the same layers, columns and tables."""
        return Records(
            **{column.name: _joined([getattr(part, column.name) for part in parts]) for column in fields(Records)}
        )


def _take(value: Any, records: np.ndarray) -> Any:
    if isinstance(value, Mapping):
        return {name: _take(item, records) for name, item in value.items()}
    return value.take(records) if isinstance(value, RaggedRows) else value[records]


def _joined(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _joined([part[name] for part in values]) for name in first}
    if isinstance(first, RaggedRows):
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.counts for part in values]))])
        return RaggedRows(np.concatenate([part.values for part in values]), offsets)
    return np.concatenate(values)
