"""yaofeng: normalised perceptrons, two LSTM layers, rewarded for health, skill, armour and gold."""

from agent_zoo.yaofeng.policy import Policy, Recurrent
from agent_zoo.yaofeng.reward import RewardWrapper

__all__ = ["Policy", "Recurrent", "RewardWrapper"]
