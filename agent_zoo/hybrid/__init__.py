"""hybrid: takeru's network with a memory, and yaofeng's reward."""

from agent_zoo.base import RecurrentPolicy as Recurrent
from agent_zoo.takeru import EarlierPolicy, Policy
from agent_zoo.yaofeng import RewardWrapper

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]
