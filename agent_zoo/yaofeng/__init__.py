"""yaofeng: normalised perceptrons, two LSTM layers, rewarded for health, skill, armour and gold."""

from agent_zoo.agent_settings import RewardRules
from agent_zoo.rewards import WeightedReward
from agent_zoo.yaofeng.policy import Policy, Recurrent

EarlierPolicy = None  # no policy has that network any more

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]


class RewardWrapper(WeightedReward):
    """Task reward + 0.1 x (0.03 health + 0.002 best skill's experience + 0.04 defence + 0.001 gold).

    All are changes, except the defence, which pays in every tick. Giving, and attacking NPCs that fight back, are
    illegal.
    """

    default = RewardRules(
        hp=0.03, experience=0.002, defence=0.04, gold=0.001, scale=0.1, disable_give=True, spare_dangerous_npcs=True
    )
