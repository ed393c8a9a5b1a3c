"""The registry of optional columns, which a record may have in addition to the fields of every record.

To add a column, add one entry to `COLUMNS`. Labels from the game engine need no entry; see `truth_column`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import ConfigDict

Dtype = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float32"]

TRUTH = "truth/"
"""Prefix of the names of labels from the engine."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(/[A-Za-z0-9_]+)*")
_WIDTH_AT_MOST = 1 << 16


@dataclass(frozen=True)
class Column:
    """One optional column."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    dtype: Dtype
    width: int | None  # numbers per record; None for a single number
    unit: str  # of its values; "0 or 1" for a yes-or-no column
    definition: str  # one sentence that says exactly what it holds

    def shape(self, records: int) -> tuple[int, ...]:
        """Return the shape of the column for this number of records."""
        return (records,) if self.width is None else (records, self.width)


COLUMNS = {
    "map": Column("int32", None, "number", "Number of the map that the episode is played on, as in the maps folder."),
    "row": Column("int16", None, "tiles", "The agent's row on the map before it acts."),
    "col": Column("int16", None, "tiles", "The agent's column on the map before it acts."),
    "life": Column("int32", None, "number", "Number of the life in its episode, from 0, in order of first records."),
    "done": Column("bool", None, "0 or 1", "The life ends with this tick, by death or by the episode's end."),
    "drawn": Column(
        "bool", None, "0 or 1", "The agent was drawn at random to be edited; the same agents in every arm."
    ),
    "edited": Column("bool", None, "0 or 1", "The agent's hidden state was edited in this tick."),
}
"""Columns that are the same for every policy."""


def legal_column(head_sizes: Iterable[int]) -> Column:
    """Describe `legal`, the concatenated action masks of all heads, eight options per byte (`pack_legal`)."""
    options = sum(head_sizes)
    definition = f"Which of the {options} options of all heads were allowed, head by head, 8 per byte, first bit first."
    return Column("uint8", -(-options // 8), "bits", definition)


def logits_column(head_sizes: Iterable[int]) -> Column:
    """Describe `logits`, the concatenated log-probabilities of all heads."""
    definition = "Log-probability of every option of all heads, head by head; about -1e9 if it is illegal."
    return Column("float32", sum(head_sizes), "nats", definition)


def task_column(size: int) -> Column:
    """Describe `task`, the embedding of the agent's task."""
    return Column("float32", size, "none", "Embedding of the agent's task, as the policy sees it.")


def truth_column(dtype: Dtype, unit: str, definition: str) -> Column:
    """Describe a label from the engine; its name in dumps is `truth/NAME`."""
    return Column(dtype, None, unit, definition)


def pack_legal(allowed: np.ndarray) -> np.ndarray:
    """Pack masks, (B, options) of 0 and 1 or bool, into the bytes of `legal`, (B, options / 8 rounded up) uint8."""
    return np.packbits(allowed.astype(bool), axis=1)


def unpack_legal(legal: np.ndarray, options: int) -> np.ndarray:
    """Return the masks that `pack_legal` packed, (B, options) bool."""
    return np.unpackbits(legal, axis=1, count=options).astype(bool)


def column_faults(columns: dict[str, Column], taken: Iterable[str]) -> Iterator[str]:
    """Yield one phrase per fault of declared columns; `taken` holds the first parts of names already in use."""
    for name, column in columns.items():
        if not _NAME.fullmatch(name) or len(name) > 100:
            yield f"column name {name[:40]!r} is not made of letters, digits, underscores and slashes"
        elif name.split("/")[0] in set(taken):
            yield f"column {name!r} has the name of another field"
        elif column.width is not None and not 1 <= column.width <= _WIDTH_AT_MOST:
            yield f"column {name!r} is {column.width} numbers wide"
