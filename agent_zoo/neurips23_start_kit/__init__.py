"""The start kit of the NeurIPS 2023 competition: the simplest agent, rewarded for health and for new events."""

import numpy as np

from agent_zoo.agent_settings import RewardRules
from agent_zoo.base import RecurrentPolicy as Recurrent
from agent_zoo.neurips23_start_kit.policy import EarlierPolicy, Policy
from agent_zoo.rewards import WeightedReward

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]
FIRST_PRICE = 0


class RewardWrapper(WeightedReward):
    """Task reward, +0.03 on ticks that restored health, +0.01 per kind of event new to this life (at most 3 a tick).

    Asking the same price twice in a row is illegal, so that agents try new ones.
    """

    default = RewardRules(heal=0.03, explore=0.01)
    pays_the_last_tick = True

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        observations, infos = super().reset(seed=seed, options=options)
        if self.rules.as_published:  # whose first "last" price is the lowest
            for observation in observations.values():
                _prices(observation)[FIRST_PRICE] = 0
        return observations, infos

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Count each agent's new kinds of events, and forbid the prices just asked."""
        super().after_tick(actions, observations, died)
        for agent, action in actions.items():
            if agent in died and not died[agent]:
                self._forbid_same_price(action["Sell"], observations[agent])

    def _forbid_same_price(self, offer: dict, observation: dict) -> None:
        nothing_offered = offer["InventoryItem"] == len(observation["ActionTargets"]["Sell"]["InventoryItem"]) - 1
        if self.rules.as_published or not nothing_offered:
            _prices(observation)[offer["Price"]] = 0


def _prices(observation: dict) -> np.ndarray:
    return observation["ActionTargets"]["Sell"]["Price"]
