"""takeru's network with an LSTM."""

from activation_store.layers import MemoryCell
from agent_zoo.base import RecurrentPolicy
from agent_zoo.takeru.policy import EarlierPolicy, Policy

__all__ = ["EarlierPolicy", "Policy", "Recurrent"]


class Recurrent(RecurrentPolicy):
    """One LSTM layer by default."""

    def __init__(self, policy: Policy, layers: int = 1, cell: MemoryCell = "lstm"):
        super().__init__(policy, layers, cell)
