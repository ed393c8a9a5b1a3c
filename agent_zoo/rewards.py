"""Building blocks of rewards and restrictions shared by several agents."""

from typing import Any

import nmmo
import numpy as np
from nmmo.entity.entity import EntityState
from nmmo.lib.event_log import EventState

from agent_zoo.base import BaseRewardWrapper

NEW_EVENT_BONUS = 0.01
NEW_EVENTS_PAID_A_TICK = 3
_EVENT = EventState.State.attr_name_to_col
_DOER_AND_IDENTITY = [_EVENT["ent_id"], _EVENT["event"], _EVENT["type"], _EVENT["level"]]
_NPC_TYPE = EntityState.State.attr_name_to_col["npc_type"]
_PASSIVE = 1
_GIVING = (("Give", "InventoryItem"), ("Give", "Target"), ("GiveGold", "Target"))


class NewEvents:
    """Counts, tick by tick, the kinds of events that are new to each agent's life.

    Two events are of the same kind if they have the same type, object (a skill, an item, an opponent) and level.
    """

    def __init__(self, game: nmmo.Env):
        self.game = game
        self._known: dict[int, set[tuple[int, ...]]] = {}
        self._new: dict[int, int] = {}

    def start_episode(self) -> None:
        """Forget all events."""
        self._known = {agent: set() for agent in self.game.possible_agents}
        self._new = {}

    def count(self) -> None:
        """Read the events of the tick just played."""
        realm = self.game.realm
        self._new = {}
        events = realm.event_log.get_data(tick=realm.tick)[:, _DOER_AND_IDENTITY].astype(int)
        for agent, *kind in events.tolist():
            known, identity = self._known.get(agent), tuple(kind)
            if known is not None and identity not in known:
                known.add(identity)
                self._new[agent] = self._new.get(agent, 0) + 1

    def of(self, agent: int) -> int:
        """Return the number of kinds of events new to the agent in the tick just played."""
        return self._new.get(agent, 0)


class NewEventsReward(BaseRewardWrapper):
    """Task reward, and +0.01 per kind of event new to this life (at most 3 a tick)."""

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env, game)
        self.new_events = NewEvents(game)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        self.new_events.start_episode()
        return super().reset(seed=seed, options=options)

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Count each agent's new kinds of events."""
        self.new_events.count()

    def reward(self, agent: int, task_reward: float) -> float:
        """Return a living agent's reward for this tick."""
        return task_reward + NEW_EVENT_BONUS * min(self.new_events.of(agent), NEW_EVENTS_PAID_A_TICK)


def forbid_giving(observation: dict) -> None:
    """Leave only the no-op, the last option, in every head that gives away items or gold."""
    for action, argument in _GIVING:
        observation["ActionTargets"][action][argument][:-1] = 0


def forbid_attacking_dangerous_npcs(observation: dict) -> None:
    """Forbid attacks on NPCs that fight back: neutral and aggressive ones."""
    target = observation["ActionTargets"]["Attack"]["Target"]
    target[np.flatnonzero(observation["Entity"][:, _NPC_TYPE] > _PASSIVE)] = 0
    target[-1] = not target[:-1].any()  # as in the game: the no-op is legal only if there is no target
