"""takeru's reward beyond the task: events that are new to the life."""

from agent_zoo.reward_rules import RewardRules
from agent_zoo.rewards import WeightedReward


class RewardWrapper(WeightedReward):
    """Task reward, and +0.01 per kind of event new to this life (at most 3 a tick). Giving is illegal."""

    default = RewardRules(explore=0.01, disable_give=True)
