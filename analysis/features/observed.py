"""Records as features see them: columns and action heads by name, each worked out once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activation_store.schema import TILE_COLUMNS, DumpMetadata, Records
from analysis.lives import Lives, lives_of
from user_error import UserError


@dataclass(frozen=True, eq=False)
class Observed:
    """Records, and what their metadata says of them. B records, E rows of visible entities, I rows of items.

    Attributes:
        records: to read.
        metadata: of their dump.
    """

    records: Records
    metadata: DumpMetadata

    def __len__(self) -> int:
        return len(self.records)

    def entity(self, name: str) -> np.ndarray:
        """Return a column of every visible entity, (E,) int16.

        Raises:
            UserError: the dump lacks it.
        """
        return self.records.entity.values[:, _index_of(name, self.metadata.entity_columns, "entity column")]

    def item(self, name: str) -> np.ndarray:
        """Return a column of every item that is carried, (I,) int16.

        Raises:
            UserError: the dump lacks it.
        """
        return self.records.inventory.values[:, _index_of(name, self.metadata.inventory_columns, "inventory column")]

    def own(self, name: str) -> np.ndarray:
        """Return a column of the agent's own row among the entities, (B,) int16.

        Raises:
            UserError: the dump lacks it, or an agent is not among the entities that it sees.
        """
        return self.entity(name)[self.own_rows]

    def option(self, head: str) -> np.ndarray:
        """Return the option chosen in an action head, (B,) int64.

        Raises:
            UserError: the dump lacks it.
        """
        return self.records.action[:, self._head(head)]

    def chose(self, head: str) -> np.ndarray:
        """Tell where the agent chose something else than a head's no-op, (B,) bool.

        Raises:
            UserError: the dump lacks the head, or it has no no-op.
        """
        return self.option(head) != self.noop(head)

    def noop(self, head: str) -> int:
        """Return the option of a head that does nothing.

        Raises:
            UserError: as `chose`.
        """
        noop = self.metadata.action_heads[self._head(head)].noop
        if noop is None:
            raise UserError(f"action head {head!r} has no no-op in this dump: it must be extracted with no-op targets")
        return noop

    def _head(self, name: str) -> int:
        return _index_of(name, tuple(head.name for head in self.metadata.action_heads), "action head")

    @cached_property
    def entity_owner(self) -> np.ndarray:
        """The record of each entity row, (E,) int64."""
        return self.records.entity.owner

    @cached_property
    def item_owner(self) -> np.ndarray:
        """The record of each item row, (I,) int64."""
        return self.records.inventory.owner

    @cached_property
    def is_self(self) -> np.ndarray:
        """Which entity rows are the observing agent's own, (E,) bool; it may be any row of a record."""
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
    def is_npc(self) -> np.ndarray:
        """Which entity rows are NPCs, (E,) bool."""
        return self.entity("npc_type") > 0

    @cached_property
    def is_player(self) -> np.ndarray:
        """Which entity rows are players other than the agent, (E,) bool."""
        # Types at or below zero are players; a negative one marks a player that cannot die.
        return (self.entity("npc_type") <= 0) & ~self.is_self

    @cached_property
    def distance(self) -> np.ndarray:
        """Tiles from the agent to each entity, the larger of rows and columns apart as the game has it, (E,) int64."""
        apart = [
            np.abs(self.entity(axis).astype(np.int64) - self.own(axis)[self.entity_owner]) for axis in ("row", "col")
        ]
        return np.maximum(*apart)

    @cached_property
    def target_rows(self) -> np.ndarray:
        """The entity row that each agent chose to attack, -1 where it chose none, (B,) int64."""
        # Options of the head are the rows of the record's entities.
        target, entities = self.option("Attack.Target"), self.records.entity
        real = self.chose("Attack.Target") & (target < entities.counts)
        return np.where(real, entities.offsets[:-1] + target, -1)

    @cached_property
    def combat_level(self) -> np.ndarray:
        """The highest of each entity's melee, range and mage levels, (E,) int16."""
        return np.maximum.reduce([self.entity(f"{style}_level") for style in ("melee", "range", "mage")])

    @cached_property
    def material(self) -> np.ndarray:
        """The material of each tile in view, row by row, the agent's own in the middle, (B, 225) int16."""
        return self.records.tile[:, :, TILE_COLUMNS.index("material")]

    @cached_property
    def lives(self) -> Lives:
        """The lives that the records belong to."""
        return lives_of(self.records)


def _index_of(name: str, names: tuple[str, ...], kind: str) -> int:
    if name not in names:
        raise UserError(f"the dump has no {kind} {name!r}, which the behavioural features need; extract it again")
    return names.index(name)
