"""Records as features read them: columns and action heads by name, with derived arrays cached; sums of table rows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from activation_store.columns import TRUTH
from activation_store.schema import TILE_COLUMNS, DumpMetadata, Records
from analysis.lives import Lives, lives_of
from analysis.position import POSITION_COLUMNS
from common.user_error import UserError

_TASK = TRUTH + "task"
COMBAT_SKILLS = ("melee", "range", "mage")


@dataclass(frozen=True, eq=False)
class Observed:
    """Records with their dump's metadata. B records, E rows of visible entities, I rows of items."""

    records: Records
    metadata: DumpMetadata
    _computed: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.records)

    def remembered(self, name: str, compute: Callable[["Observed"], np.ndarray]) -> np.ndarray:
        """Return what a function computes from these records, which is computed once for each name."""
        if name not in self._computed:
            self._computed[name] = compute(self)
        return self._computed[name]

    def entity(self, name: str) -> np.ndarray:
        """Return a column of every visible entity, (E,) int16; `UserError` if the dump lacks it."""
        return self.records.entity.values[:, _index_of(name, self.metadata.entity_columns, "entity column")]

    def item(self, name: str) -> np.ndarray:
        """Return a column of every item carried, (I,) int16; `UserError` if the dump lacks it."""
        return self.records.inventory.values[:, _index_of(name, self.metadata.inventory_columns, "inventory column")]

    def own(self, name: str) -> np.ndarray:
        """Return a column of the agent's own row as the game has it, even if it was hidden from the policy, (B,) int16.

        Raises:
            UserError: as `own_as_seen`.
            ValueError: the records were read without the columns of `own_truth_columns`.
        """
        truth = own_truth(name)
        if truth not in self.metadata.columns:
            return self.own_as_seen(name)
        if truth not in self.records.columns:
            raise ValueError(f"the records must be read with the column {truth!r} of their dump")
        return self.records.columns[truth]

    def own_as_seen(self, name: str) -> np.ndarray:
        """Return a column of the agent's own row among the entities, (B,) int16; `UserError` if there is none."""
        return self._own_entities[:, _index_of(name, self.metadata.entity_columns, "entity column")]

    def option(self, head: str) -> np.ndarray:
        """Return the option chosen in an action head, (B,) int64; `UserError` if the dump lacks the head."""
        return self.records.action[:, self._head(head)]

    def chose(self, head: str) -> np.ndarray:
        """Return where the agent chose another option than a head's no-op, (B,) bool; `UserError` as `noop`."""
        return self.option(head) != self.noop(head)

    def noop(self, head: str) -> int:
        """Return the index of a head's no-op; `UserError` if the dump lacks the head, or the head has none."""
        noop = self.metadata.action_heads[self._head(head)].noop
        if noop is None:
            raise UserError(f"action head {head!r} has no no-op in this dump: it must be extracted with no-op targets")
        return noop

    def _head(self, name: str) -> int:
        return _index_of(name, tuple(head.name for head in self.metadata.action_heads), "action head")

    @cached_property
    def clock(self) -> np.ndarray:
        """The tick of the game at each record, (B,) int64, in which columns of entities tell when something happened.

        Ticks of simulated lives count from where they begin. Of them it is the agent's age, since all spawn together.
        """
        return self.own("time_alive").astype(np.int64) if self.simulated else self.records.tick

    @property
    def simulated(self) -> bool:
        """Whether a world model made the records; the others in view then have no identity, but the ids of tiles."""
        return self.metadata.origin == "simulated"

    @cached_property
    def entity_owner(self) -> np.ndarray:
        """The record that each entity row belongs to, (E,) int64."""
        return self.records.entity.owner

    @cached_property
    def item_owner(self) -> np.ndarray:
        """The record that each item row belongs to, (I,) int64."""
        return self.records.inventory.owner

    @cached_property
    def is_self(self) -> np.ndarray:
        """Which entity rows are the observing agent's own, (E,) bool; this can be any row of a record."""
        return self.entity("id") == self.records.agent_id[self.entity_owner]

    @cached_property
    def own_rows(self) -> np.ndarray:
        """The entity row of each record's agent, (B,) int64."""
        own = np.flatnonzero(self.is_self)
        seen = np.bincount(self.entity_owner[own], minlength=len(self))
        if (seen != 1).any():
            i = int(np.argmax(seen != 1))
            raise UserError(
                f"agent {self.records.agent_id[i]} at step {self.records.step[i]} appears {seen[i]} times among the "
                "entities it sees, not once: the dump holds dead or mixed-up records; extract it again"
            )
        return own

    @cached_property
    def _own_entities(self) -> np.ndarray:
        """The agents' own rows, (B, columns) int16; cached, since many features read them."""
        return self.records.entity.values[self.own_rows]

    @cached_property
    def is_npc(self) -> np.ndarray:
        """Which entity rows are NPCs, (E,) bool."""
        return self.entity("npc_type") > 0

    @cached_property
    def is_player(self) -> np.ndarray:
        """Which entity rows are players other than the agent, (E,) bool."""
        # npc_type is 0 for players, and negative for a player that cannot die.
        return (self.entity("npc_type") <= 0) & ~self.is_self

    @cached_property
    def distance(self) -> np.ndarray:
        """Tiles from the agent to each entity, the larger of row and column difference as in the game, (E,) int64."""
        apart = [
            np.abs(self.entity(axis).astype(np.int64) - self.own_as_seen(axis)[self.entity_owner])
            for axis in ("row", "col")
        ]
        return np.maximum(*apart)

    @cached_property
    def target_rows(self) -> np.ndarray:
        """The entity row that each agent chose to attack, -1 where it chose none, (B,) int64."""
        # An option of this head is the index of one of the record's entity rows.
        target, entities = self.option("Attack.Target"), self.records.entity
        real = self.chose("Attack.Target") & (target < entities.counts)
        return np.where(real, entities.offsets[:-1] + target, -1)

    @cached_property
    def combat_level(self) -> np.ndarray:
        """The highest of each entity's melee, range and mage levels, (E,) int16."""
        return np.maximum.reduce([self.entity(f"{style}_level") for style in COMBAT_SKILLS])

    @cached_property
    def material(self) -> np.ndarray:
        """The material of each tile in view, row by row, the agent's tile in the middle, (B, 225) int16."""
        return np.ascontiguousarray(self.records.tile[:, :, TILE_COLUMNS.index("material")])

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """The names of the dump's tasks; empty if it does not say which records have which."""
        names = self.metadata.environment.get("tasks")
        return tuple(map(str, names)) if _TASK in self.metadata.columns and isinstance(names, list) else ()

    @cached_property
    def task(self) -> np.ndarray:
        """The number of each record's task in `task_names`, which must not be empty, (B,) int32.

        Raises:
            UserError: a number belongs to none.
            ValueError: the records were read without the columns of `own_truth_columns`.
        """
        if _TASK not in self.records.columns:
            raise ValueError(f"the records must be read with the column {_TASK!r} of their dump")
        numbers = self.records.columns[_TASK]
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self.task_names):
            raise UserError(
                f"{_TASK} holds numbers from {numbers.min()} to {numbers.max()}, and the dump has "
                f"{len(self.task_names)} tasks: extract it again"
            )
        return numbers

    @cached_property
    def lives(self) -> Lives:
        """The lives that the records belong to."""
        return lives_of(self.records)


def own_truth(name: str) -> str:
    """Return the name of the optional column that holds the game's value of a column of the agent's own row."""
    return name if name in ("row", "col") else TRUTH + name


def own_truth_columns(metadata: DumpMetadata) -> list[str]:
    """Return the optional columns of a dump that `Observed.own` and `Observed.task` need."""
    return [truth for truth in (*map(own_truth, metadata.entity_columns), _TASK) if truth in metadata.columns]


def feature_columns(metadata: DumpMetadata) -> list[str]:
    """Return the optional columns of a dump that features may need."""
    wanted = {*own_truth_columns(metadata), "map", *POSITION_COLUMNS}
    return sorted(wanted & metadata.columns.keys())


def _index_of(name: str, names: tuple[str, ...], kind: str) -> int:
    if name not in names:
        raise UserError(f"the dump has no {kind} {name!r}, which the behavioural features need; extract it again")
    return names.index(name)


def count(marked: np.ndarray, owner: np.ndarray, records: int) -> np.ndarray:
    """Count the marked rows of each record: (R,) bool and (R,) int64 to (B,) int64."""
    return np.bincount(owner[marked], minlength=records)


def total(values: np.ndarray, owner: np.ndarray, records: int) -> np.ndarray:
    """Add up the rows of each record: (R,) and (R,) int64 to (B,) float64."""
    return np.bincount(owner, weights=values, minlength=records)


def extreme(
    values: np.ndarray, owner: np.ndarray, records: int, none: int, choose: np.ufunc = np.minimum
) -> np.ndarray:
    """Return the smallest value of each record's rows, or what else to choose, `none` without rows: (B,) int64."""
    # Rows are ordered by record, so each record's rows are contiguous.
    extremes = np.full(records, none, np.int64)
    if len(owner):
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        extremes[owner[starts]] = choose.reduceat(values, starts)
    return extremes
