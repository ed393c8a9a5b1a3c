"""What an intervention run leaves for its analysis: its arms, and a row for every life that was lived in them.

An arm is one way of playing the same episodes: unedited, edited, or edited as a control. Arms of the same policy use
the same maps, seats, tasks and random numbers, and the same agents are drawn at random in all of them. So a life in one
arm and the life of the same agent of the same episode in its twin are a pair.
"""

import functools
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict

from activation_store.formats.safe_parquet import arrow_faults, check_expansion, check_pages
from common.files import atomic_path, read_bytes
from common.user_error import UserError

RUN_FILE = "run.json"
"""Name of the file that says what a run does, with its arms."""

LIVES_FILE = "lives.parquet"
"""Name of the file of lives in an intervention run's folder."""

REPLAYED_EPISODE = 0
"""Number of the episode of which a run keeps replays."""

UNEDITED_REPLAY, EDITED_REPLAY = "unedited.replay.lzma", "edited.replay.lzma"
"""Names of the two replays that every intervention run with an edit keeps in its folder."""

FILMED_DOSES = 6
"""A run of more doses keeps replays of so many, evenly chosen."""

ArmKind = Literal[
    "unedited", "edit", "no edit", "random direction", "same variance", "random donor", "edited once",
    "random direction at once", "same variance at once",
]  # fmt: skip
"""unedited: the twin of the other arms. edit: what is studied. The others are controls: `no edit` calls the edit but
keeps its input; `random direction` changes the state as far as the edit does, in a random direction; `same variance`
is the same edit along a direction in which recorded states vary as much; `random donor` takes from agents that are
drawn whatever the variable that other donors are chosen by. `edited once` makes the edit in single ticks, and follows
what is left of it. The last two are not played: in the states of the edit's own arm, they only measure what such a
control would do at once, so their lives are those of the agents that were drawn to be edited."""

AT_ONCE: dict[ArmKind, ArmKind] = {
    "random direction": "random direction at once", "same variance": "same variance at once"
}  # fmt: skip
"""The kinds of controls that are only measured at once, by the kind that is played."""
_PLAYED = {at_once: played for played, at_once in AT_ONCE.items()}

Comparison = Literal["total", "in_play"]
"""What a change at once is compared with. total: what the agent would do in this tick if nobody had ever edited it,
after the same observations. in_play: what it would do without the edit of this tick; what earlier edits have left in
its memory counts on both sides."""

_CHANGES = ("kl", "value_change", "gain", "moved", "planned")
"""Changes at once; in files of versions that compared only in play, their names do not say with what."""

_MOST_NUMBERS = 1 << 26
"""In a table of lives: of all its rows and columns; half a gigabyte."""
KEYS: dict[str, type] = {"arm": np.str_, "episode": np.int64, "agent": np.int64, "edited": np.bool_}
"""Columns of every file of lives, with their types; all others are outcomes."""


@dataclass(frozen=True)
class Arm:
    """One way of playing the episodes."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    name: str  # unique in its run
    kind: ArmKind
    policy: Literal["trained", "untrained"]
    """Whose agents are edited: the trained policy, or one of the same architecture with random weights."""
    dose: float | None  # of the edit; None if the edit has none
    twin: str  # name of the unedited arm that its lives are compared with; its own name in an unedited arm
    direction: str | None = None
    """Name of the only direction or sparse feature that is edited, in a run that edits them one by one."""
    number: int = 0
    """Of a random control among those of its kind, dose and direction, from 1; 0 for other arms. It seeds the control
    while a run is played, and is not written."""

    @property
    def is_studied(self) -> bool:
        """Whether it is an edit of the trained policy."""
        return self.kind == "edit" and self.policy == "trained"

    @property
    def is_at_once(self) -> bool:
        """Whether it is a control that is not played, but only measured at once."""
        return self.kind in _PLAYED

    @property
    def played_kind(self) -> ArmKind:
        """Its kind, or of a control that is only measured at once the kind that does the same where it is played."""
        return _PLAYED.get(self.kind, self.kind)

    def content(self) -> dict[str, object]:
        """Return the arm as files hold it."""
        return {name: value for name, value in asdict(self).items() if name != "number"}

    def matches(self, other: "Arm") -> bool:
        """Tell whether two arms edit the same direction with the same dose, so that one can be the other's control."""
        return (self.dose, self.direction) == (other.dose, other.direction)


@dataclass(frozen=True)
class Readability:
    """How well an erased variable can be read: R2 of least-squares read-outs, the share of its variance explained."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    arm: str
    layer: str
    variable: str
    states: int  # number of unedited states that the eraser was fitted to
    before: float
    after: float  # in these states once they are erased, by the best read-out from them
    unedited: float | None
    """In unedited states of episodes other than those that the read-out was fitted to; below 0 if it is worse there
    than a constant. None if all episodes were played in one group, or it does not vary."""
    in_play: float | None  # the same in the arm's edited states


@dataclass(frozen=True)
class Outcome:
    """What a column of a table of lives holds."""

    measure: str
    """Such as `ticks`, `died_of`, `kl`, `gain`; `planned`, by how many tiles an edit moved the read-out of a planned
    displacement; `lasting`, what is left of an edit; `follows_lower` and `follows_higher`, how often an option follows
    a donor."""
    of: str = ""  # which cause, head, option or direction, or what and how many ticks later; empty if there is only one
    against: Comparison | None = None  # of a change at once: what it is compared with; None for other outcomes

    @property
    def name(self) -> str:
        """Name of the column, such as `ticks`, `kl_in_play`, `kl_total/Move.Direction` or `lasting/cell/3`."""
        first = f"{self.measure}_{self.against}" if self.against else self.measure
        return f"{first}/{self.of}" if self.of else first

    @staticmethod
    @functools.cache
    def parse(name: str) -> "Outcome":
        """Return what the column of that name holds."""
        first, _, of = name.partition("/")
        for against in get_args(Comparison):
            if first.endswith(f"_{against}"):
                return Outcome(first.removesuffix(f"_{against}"), of, against)
        return Outcome(first, of)


def replayed_arms(arms: Sequence[Arm]) -> dict[str, Arm]:
    """Return the arms of which a run keeps a replay, by file name: the trained policy without and with the edit.

    `EDITED_REPLAY` is of the largest dose; if none is above 0, of the one that is farthest from 0. Other doses follow,
    the smallest first. Of directions that are edited one by one, only the first is taken.
    """
    trained = (arm for arm in arms if arm.policy == "trained")
    replayed = {UNEDITED_REPLAY: next(arm for arm in trained if arm.kind == "unedited")}
    edits = [arm for arm in arms if arm.is_studied]
    if edits:
        largest = max(edits, key=lambda arm: ((arm.dose or 0) > 0, abs(arm.dose or 0)))
        replayed[EDITED_REPLAY] = largest
        others = [arm for arm in edits if arm.direction == largest.direction and arm is not largest]
        others.sort(key=lambda arm: arm.dose or 0)
        if len(others) >= FILMED_DOSES:
            others = [others[place] for place in np.linspace(0, len(others) - 1, FILMED_DOSES - 1).round().astype(int)]
        replayed |= {f"edited_dose{arm.dose:+g}.replay.lzma": arm for arm in others}
    return replayed


@dataclass(frozen=True, eq=False)
class LivesTable:
    """One row for every life, of L lives."""

    arm: np.ndarray  # name of the arm, (L,) str
    episode: np.ndarray  # number of the episode, (L,) int64
    agent: np.ndarray  # the game's number of the agent, (L,) int64
    edited: np.ndarray  # whether the agent was drawn at random to be edited, also in unedited arms, (L,) bool
    outcomes: Mapping[str, np.ndarray]  # by name, (L,) float64 each; NaN where an outcome does not exist for a life

    def __len__(self) -> int:
        return len(self.arm)

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, object]]) -> "LivesTable":
        """Build the table from rows that each hold the columns of `KEYS` and outcomes; missing ones become NaN."""
        names = dict.fromkeys((*KEYS, *(name for row in rows for name in row)))
        return LivesTable.of_columns(
            {name: [row[name] if name in KEYS else row.get(name, np.nan) for row in rows] for name in names}
        )

    @staticmethod
    def of_columns(columns: Mapping[str, Any]) -> "LivesTable":
        """Build the table from the columns of `KEYS` and outcomes, (L,) each (ValueError or TypeError: no numbers)."""
        keys: dict[str, Any] = {name: np.asarray(columns[name], kind) for name, kind in KEYS.items()}
        outcomes = {name: np.asarray(column, np.float64) for name, column in columns.items() if name not in KEYS}
        return LivesTable(**keys, outcomes=outcomes)

    def of_arm(self, name: str) -> "LivesTable":
        """Return the lives of one arm, ordered by episode and agent."""
        rows = np.flatnonzero(self.arm == name)
        return self.rows(rows[np.lexsort((self.agent[rows], self.episode[rows]))])

    def rows(self, rows: np.ndarray) -> "LivesTable":
        """Return some of the lives, by their places or by a mask."""
        return LivesTable(
            self.arm[rows], self.episode[rows], self.agent[rows], self.edited[rows],
            {name: values[rows] for name, values in self.outcomes.items()},
        )  # fmt: skip


def write_lives(path: Path, table: LivesTable) -> None:
    """Write a table of lives atomically."""
    columns = {name: getattr(table, name) for name in KEYS}
    with atomic_path(path) as temporary:
        pq.write_table(pa.table({**columns, **table.outcomes}), temporary)


def read_lives(path: Path) -> LivesTable:
    """Read a table of lives; changes at once of earlier versions get the names of those in play, which they are.

    Raises:
        UserError: the file is missing, damaged, or lacks a column.
    """
    with arrow_faults(path, "it cannot be read as a table of lives"):
        read = _read_table(path)
    columns = {}
    for column in read.column_names:
        outcome = Outcome.parse(column)
        is_old = outcome.measure in _CHANGES and outcome.against is None
        name = replace(outcome, against="in_play").name if is_old else column
        columns[name] = read[column].to_numpy(zero_copy_only=False)
    if missing := [name for name in KEYS if name not in columns]:
        raise UserError(f"{path} is not a table of lives: it lacks the column {missing[0]}")
    try:
        return LivesTable.of_columns(columns)
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is not a table of lives: {error}") from None


def _read_table(path: Path) -> pa.Table:
    """Read all columns, after checking how much memory they will take: a small file can stand for any number of rows.

    Arms are kept as numbers of names, so that a long name is not repeated in every row.
    """
    content = read_bytes(path)
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=["arm"])
    rows, columns = file.metadata.num_rows, file.metadata.num_columns
    groups = sum(file.metadata.row_group(place).num_rows for place in range(file.metadata.num_row_groups))
    if not 0 <= rows * max(columns, len(KEYS)) <= _MOST_NUMBERS or groups != rows:
        raise UserError(f"{path} is not a table of lives: it claims {rows:,} rows of {columns:,} columns")
    others = (column for column in file.schema_arrow if column.name != "arm")
    if strange := [column.name for column in others if not pa.types.is_primitive(column.type)]:
        raise UserError(f"{path} is not a table of lives: {strange[0]!r} holds no numbers")
    check_expansion(file, len(content))
    for group in range(file.num_row_groups):
        check_pages(io.BytesIO(content), file.metadata.row_group(group), file.schema_arrow.names)
    read = file.read(use_threads=False)
    arms = read["arm"].chunks if "arm" in read.column_names else []
    names = [str(name) for chunk in arms if pa.types.is_dictionary(chunk.type) for name in chunk.dictionary.to_pylist()]
    if rows * max(map(len, names), default=0) > _MOST_NUMBERS * 2:
        raise UserError(f"{path} is not a table of lives: the names of its arms are too long")
    return read
