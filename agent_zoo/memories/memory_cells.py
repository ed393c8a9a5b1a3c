"""The memories that a policy can be given, by the name of their cell."""

from collections.abc import Callable

from activation_store.layers import MemoryCell
from agent_zoo.memories.gru_memory import GRU
from agent_zoo.memories.leaky_average import LeakyAverages
from agent_zoo.memories.lstm_memory import LSTM
from agent_zoo.memories.memory import Memory

CELLS: dict[MemoryCell, Callable[[int, int], Memory]] = {"lstm": LSTM, "gru": GRU, "ema": LeakyAverages}
"""Each builds a memory from its units and its number of layers."""
