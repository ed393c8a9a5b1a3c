"""The start kit's reward beyond the task: gaining health, and events that are new to the life."""

from agent_zoo.rewards import NewEventsReward

HEALTH_BONUS = 0.03


class RewardWrapper(NewEventsReward):
    """Task reward, +0.03 on ticks that restored health, +0.01 per kind of event new to this life (at most 3 a tick).

    Asking the same price twice in a row is illegal, so that items do not stay on the market unsold.
    """

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Count each agent's new kinds of events, and forbid the prices just asked."""
        super().after_tick(actions, observations, died)
        for agent, action in actions.items():
            if agent in died and not died[agent]:
                self._forbid_same_price(action["Sell"], observations[agent]["ActionTargets"]["Sell"])

    def reward(self, agent: int, task_reward: float) -> float:
        """Return a living agent's reward for this tick."""
        healthier = self.game.realm.players[agent].resources.health_restore > 0
        return super().reward(agent, task_reward + HEALTH_BONUS * healthier)

    @staticmethod
    def _forbid_same_price(offer: dict, legal: dict) -> None:
        nothing_offered = offer["InventoryItem"] == len(legal["InventoryItem"]) - 1
        if not nothing_offered:
            legal["Price"][offer["Price"]] = 0
