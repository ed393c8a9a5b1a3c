"""What players and NPCs have in common."""

from collections.abc import Sequence
from typing import Any

from nmmo.entity.entity import Entity
from nmmo.entity.entity_manager import EntityGroup

from reinforcement_learning.game.fast_game.state import take_over_entity


class FastGroup(EntityGroup):
    """A group of the game's entities, which get the faster classes when they spawn."""

    def spawn_entity(self, entity: Any) -> None:
        """Add a new player or NPC to the world."""
        take_over_entity(entity, self.datastore.table("Entity").cells)
        super().spawn_entity(entity)

    def _cull(self, dead: Sequence[int]) -> dict[int, Entity]:
        """Remove the dead, given their numbers, as `cull` does."""
        self.dead_this_tick.clear()
        for number in [number for number in self.entities if number in dead] if dead else ():
            entity = self.dead_this_tick[number] = self.entities[number]
            self.cull_entity(entity)
            if self._delete_dead_entity:
                entity.datastore_record.delete()
        return self.dead_this_tick
