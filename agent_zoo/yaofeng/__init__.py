"""yaofeng: normalised perceptrons, two LSTM layers, rewarded for health, skill, armour and gold."""

from agent_zoo.yaofeng.policy import Policy, Recurrent
from agent_zoo.yaofeng.reward import RewardWrapper

EarlierPolicy = None  # no policy has that network any more

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]
