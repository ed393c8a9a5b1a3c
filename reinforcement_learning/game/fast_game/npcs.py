"""NPCs: their decisions, and their updates in each tick.

`npcs.pxd` gives the types with which this file is compiled.
"""

from typing import Any

import numpy as np
from nmmo.entity.entity import Entity, EntityState
from nmmo.entity.npc_manager import NPCManager

from reinforcement_learning.game.fast_game.ground import Ground, wander
from reinforcement_learning.game.fast_game.players import FastGroup, forget_fight
from reinforcement_learning.game.fast_game.state import DEFENSIVE, PEACEFUL, Body

_COLUMN = EntityState.State.attr_name_to_col
_HOSTILE_TYPE = 3


class Decisions:
    """What NPCs do in a tick.

    Attributes:
        moves: body, rows down and columns right of each NPC that moves.
        attacks: attacker's body, style and target's body of each attack.
    """

    def __init__(self) -> None:
        self.moves: list[tuple[Body, int, int]] = []
        self.attacks: list[tuple[Body, Any, Body]] = []


def decide_all(ground: Ground, random: Any, entities: dict[int, Any], watching: set[int]) -> Decisions:
    """Return what all NPCs do; those that never fight, or have no reason to, wander.

    Args:
        random: the world's random numbers.
        entities: all NPCs by number.
        watching: numbers of hostile NPCs near a player.
    """
    decisions = Decisions()
    sequence, wrap, index = random._dir_seq, random._wrap, random._dir_idx
    for entity in entities.values():
        body = entity.body
        idle = body.kind == PEACEFUL or (entity.target is None and entity.attacker is None)
        if idle and (body.kind <= DEFENSIVE or body.number not in watching):
            index = (index + 1) & wrap  # as `random.get_direction` does
            down, right = wander(ground, body, sequence[index])
            decisions.moves.append((body, down, right))
            continue
        random._dir_idx = index
        made = entity.decide()
        index = random._dir_idx
        for action, arguments in made.items():
            if action.__name__ == "Move":
                (direction,) = arguments.values()
                decisions.moves.append((body, *direction.delta))
            else:
                style, target = arguments.values()
                decisions.attacks.append((body, style, target.body))
    random._dir_idx = index
    return decisions


def refresh(body: Body, age: int) -> None:
    """Do the same as `NPC.update` at an age in ticks, except that the NPC's last actions are not kept."""
    body.time_alive._val = age
    forget_fight(body)
    body.item_level.update(body.equipment.level)
    if body.freeze._val > 0:
        body.freeze.decrement()
    body.time_alive.increment()
    if body.health._val > 0:
        body.health.increment()


class FastNPCs(NPCManager, FastGroup):
    """The game's non-player characters.

    In most ticks most NPCs only grow older, which is counted in the table alone; an NPC's own counter is updated before
    it is read. The last actions of NPCs (`history.actions`, `last_action`), which nothing in the game reads, are not
    kept.
    """

    def decide(self) -> Decisions:
        """Return what all NPCs do."""
        realm = self.realm
        return decide_all(realm.map.ground, realm._np_random, self.entities, self._watching())

    def grow_older(self) -> None:
        """Update NPCs that are new, wounded or in combat individually, and only age the others."""
        table = self.datastore.table("Entity")._data
        records = np.flatnonzero(table[:, _COLUMN["id"]] < 0)
        own = table[records]
        eventful = _fought(own, self.realm.tick) | (own[:, _COLUMN["health"]] < self.config.PLAYER_BASE_HEALTH)
        eventful |= (own[:, _COLUMN["time_alive"]] == 0) | (own[:, _COLUMN["freeze"]] > 0)
        marked = own[eventful]
        for number, age in zip(
            marked[:, _COLUMN["id"]].tolist(), marked[:, _COLUMN["time_alive"]].tolist(), strict=True
        ):
            refresh(self.entities[number].body, age)
        table[records[~eventful], _COLUMN["time_alive"]] += 1

    def cull(self) -> dict[int, Entity]:
        """Remove the dead, if there are any."""
        table = self.datastore.table("Entity")._data
        dead = table[(table[:, _COLUMN["id"]] < 0) & (table[:, _COLUMN["health"]] <= 0), _COLUMN["id"]].tolist()
        for number in dead:
            _set_age(self.entities[number])
        return self._cull(dead)

    @property
    def packet(self) -> dict:
        """Return the NPCs' part of a replay's packet."""
        for npc in self.entities.values():
            _set_age(npc)
        return super().packet

    def _watching(self) -> set[int]:
        """Return the numbers of hostile NPCs that have a player, or if the configuration allows it anyone, in view."""
        if self.config.NPC_ALLOW_ATTACK_OTHER_NPCS:
            return set(self.entities)
        table = self.datastore.table("Entity")._data
        ids = table[:, _COLUMN["id"]]
        npcs, players = table[(ids < 0) & (table[:, _COLUMN["npc_type"]] == _HOSTILE_TYPE)], table[ids > 0]
        radius = self.config.PLAYER_VISION_RADIUS
        near = np.abs(npcs[:, _COLUMN["row"], None] - players[:, _COLUMN["row"]]) <= radius  # (NPCs, players)
        near &= np.abs(npcs[:, _COLUMN["col"], None] - players[:, _COLUMN["col"]]) <= radius
        return set(npcs[near.any(axis=1), _COLUMN["id"]].tolist())


def _fought(own: np.ndarray, tick: int) -> np.ndarray:
    """Return which entities have combat state of the last tick to clear: damage, an attacker or their own attack."""
    marks = own[:, [_COLUMN["damage"], _COLUMN["attacker_id"]]].any(axis=1)
    return marks | (own[:, _COLUMN["latest_combat_tick"]] == tick)


def _set_age(npc: Any) -> None:
    npc.time_alive._val = int(npc.datastore_record.get(_COLUMN["time_alive"]))
