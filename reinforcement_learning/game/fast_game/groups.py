"""What players and NPCs have in common."""

from typing import Any

import numpy as np
from nmmo.entity.entity import Entity, EntityState
from nmmo.entity.entity_manager import EntityGroup

from reinforcement_learning.game.fast_game.state import take_over_entity

_COLUMN = EntityState.State.attr_name_to_col


class FastGroup(EntityGroup):
    """A group of the game's entities, which get the faster classes when they spawn."""

    def spawn_entity(self, entity: Any) -> None:
        """Add a new player or NPC to the world."""
        take_over_entity(entity, self.datastore.table("Entity").cells)
        super().spawn_entity(entity)

    def _cull_if(self, dead: np.ndarray) -> dict[int, Entity]:
        """Remove the dead, if any row of the table is marked."""
        if dead.any():
            return EntityGroup.cull(self)
        self.dead_this_tick.clear()
        return self.dead_this_tick


def fought(own: np.ndarray, tick: int) -> np.ndarray:
    """Return which entities have combat state of the last tick to clear: damage, an attacker or their own attack."""
    marks = own[:, [_COLUMN["damage"], _COLUMN["attacker_id"]]].any(axis=1)
    return marks | (own[:, _COLUMN["latest_combat_tick"]] == tick)
