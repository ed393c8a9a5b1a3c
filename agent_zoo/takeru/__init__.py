"""takeru: learnt identity embeddings, other entities visible to the action heads only; published without a memory."""

from agent_zoo.agent_settings import RewardRules
from agent_zoo.rewards import WeightedReward
from agent_zoo.takeru.policy import EarlierPolicy, Policy, Recurrent

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]


class RewardWrapper(WeightedReward):
    """Task reward, and +0.01 per kind of event new to this life (at most 3 a tick). Giving is illegal."""

    default = RewardRules(explore=0.01, disable_give=True)
