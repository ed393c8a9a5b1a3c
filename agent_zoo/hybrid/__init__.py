"""hybrid: takeru's network with a memory, and yaofeng's reward."""

from agent_zoo.hybrid.policy import EarlierPolicy, Policy, Recurrent
from agent_zoo.yaofeng.reward import RewardWrapper

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]
