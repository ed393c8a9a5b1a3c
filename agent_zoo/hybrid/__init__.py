"""hybrid: takeru's network with a memory, and yaofeng's reward."""

from activation_store.layers import MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.takeru.policy import EarlierPolicy, Policy
from agent_zoo.yaofeng.reward import RewardWrapper

__all__ = ["EarlierPolicy", "Policy", "Recurrent", "RewardWrapper"]


class Recurrent(RecurrentPolicy):
    """One LSTM layer by default."""

    def __init__(self, policy: Policy, layers: int = 1, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)
