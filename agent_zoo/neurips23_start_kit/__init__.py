"""The start kit of the NeurIPS 2023 competition: the simplest agent, rewarded for health and for new events."""

from agent_zoo.neurips23_start_kit.policy import EarlierPolicy, Policy, Recurrent
from agent_zoo.neurips23_start_kit.reward import RewardWrapper

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]
