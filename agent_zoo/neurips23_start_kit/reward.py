"""What the start kit pays for beside the task: getting healthier, and doing something for the first time."""

from typing import Any

import nmmo
from nmmo.lib.event_log import EventState

from agent_zoo.base import BaseRewardWrapper

HEALTH_BONUS = 0.03
NEW_EVENT_BONUS = 0.01
NEW_EVENTS_PAID_A_TICK = 3
_COLUMN = EventState.State.attr_name_to_col
_IDENTITY = (_COLUMN["event"], _COLUMN["type"], _COLUMN["level"])


class RewardWrapper(BaseRewardWrapper):
    """Task reward, +0.03 on ticks that restored health, +0.01 for each kind of event new to this life (3 a tick).

    Asking again for the price just asked is made illegal, so that an item does not sit on the market unsold.
    """

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env, game)
        self._known_events: dict[int, set[tuple[int, ...]]] = {}
        self._new_events: dict[int, int] = {}

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        self._known_events = {agent: set() for agent in self.game.possible_agents}
        return super().reset(seed=seed, options=options)

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Count each agent's new kinds of events, and forbid the prices just asked."""
        self._count_new_events()
        for agent, action in actions.items():
            if agent in died and not died[agent]:
                self._forbid_same_price(action["Sell"], observations[agent]["ActionTargets"]["Sell"])

    def reward(self, agent: int, task_reward: float) -> float:
        """Return what a living agent is paid for this tick."""
        healthier = self.game.realm.players[agent].resources.health_restore > 0
        return (
            task_reward
            + HEALTH_BONUS * healthier
            + NEW_EVENT_BONUS * min(self._new_events[agent], NEW_EVENTS_PAID_A_TICK)
        )

    def _count_new_events(self) -> None:
        self._new_events = dict.fromkeys(self._known_events, 0)
        realm = self.game.realm
        for row in realm.event_log.get_data(tick=realm.tick):
            known = self._known_events.get(row[_COLUMN["ent_id"]])
            identity = tuple(int(row[column]) for column in _IDENTITY)
            if known is not None and identity not in known:
                known.add(identity)
                self._new_events[row[_COLUMN["ent_id"]]] += 1

    @staticmethod
    def _forbid_same_price(offer: dict, legal: dict) -> None:
        nothing_offered = offer["InventoryItem"] == len(legal["InventoryItem"]) - 1
        if not nothing_offered:
            legal["Price"][offer["Price"]] = 0
