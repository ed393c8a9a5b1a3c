"""takeru: learnt vectors for identities, other entities seen by the action heads alone; published without a memory."""

from agent_zoo.takeru.policy import Policy, Recurrent
from agent_zoo.takeru.reward import RewardWrapper

__all__ = ["Policy", "Recurrent", "RewardWrapper"]
