"""takeru: learnt identity embeddings, other entities visible to the action heads only; published without a memory."""

from agent_zoo.takeru.policy import EarlierPolicy, Policy, Recurrent
from agent_zoo.takeru.reward import RewardWrapper

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]
