"""The start kit of the NeurIPS 2023 competition: the simplest agent, rewarded for health and for new events.

Its network: two convolutions over tiles, mean-pooled tables, one LSTM.
"""

import numpy as np

from agent_zoo.agent_settings import RewardRules
from agent_zoo.base import RecurrentPolicy as Recurrent
from agent_zoo.linear_rows import LinearRowsPolicy
from agent_zoo.network_parts.layers import RowFeatures, entity_features, item_features
from agent_zoo.network_parts.published_features import raw_entity_features, raw_item_features
from agent_zoo.observation import ObservationLayout
from agent_zoo.rewards import WeightedReward

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]


class Policy(LinearRowsPolicy):
    """Reads the mean of each table, and as published rows in the game's own units."""

    linear_parts = ("tiles", "own row", "entities", "inventory", "market", "task")
    tile_channels = (32, 8)
    embeds_places = reads_entities = True
    reads_item_places = False

    def row_features(self, layout: ObservationLayout) -> tuple[RowFeatures, RowFeatures]:
        """Build what turns rows of entities, and of items, into features."""
        if self.published:
            return raw_entity_features(layout), raw_item_features(layout)
        return entity_features(layout), item_features(layout)


class EarlierPolicy(Policy):
    """The network before it computed what the published one does; rows are scaled, and they and the task rectified."""

    published = False


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
                offer, observation = action["Sell"], observations[agent]
                nothing = len(observation["ActionTargets"]["Sell"]["InventoryItem"]) - 1
                if self.rules.as_published or offer["InventoryItem"] != nothing:
                    _prices(observation)[offer["Price"]] = 0


def _prices(observation: dict) -> np.ndarray:
    return observation["ActionTargets"]["Sell"]["Price"]
