"""Lives whose states follow known rules, without a game."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch

from activation_store.layers import MemoryCell
from activation_store.records import RaggedRows, Records
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import Memory
from analysis.dynamics.tracks import Tracks, Update, tensor
from analysis.lives import lives_of


def with_memory(memory: Memory, cell: MemoryCell, layers: int, units: int) -> RecurrentPolicy:
    """The parts of a policy that its update needs."""
    parts = SimpleNamespace(memory=memory, layers=layers, cell=cell, policy=SimpleNamespace(hidden_size=units))
    return cast(RecurrentPolicy, parts)


def states_of(update: Update, read: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """What a memory that starts empty holds in each tick of lives one after the other."""
    states = []
    for start, length in zip(np.cumsum(lengths) - lengths, lengths, strict=True):
        state = torch.zeros(1, update.size, dtype=torch.float64)
        for tick in range(start, start + length):
            state = update(state, tensor(read[tick : tick + 1]))
            states.append(state[0].numpy())
    return np.array(states)


def tracks_of(
    state: np.ndarray, read: np.ndarray, lengths: list[int], layer: np.ndarray | None = None,
    activations: dict[str, np.ndarray] | None = None,
) -> Tracks:  # fmt: skip
    """Return tracks of lives one after the other.

    Args:
        state: after each tick, (B, S).
        read: in each tick, (B, units).
        lengths: of the lives; they add up to B.
        layer: the states under study; the whole state where None.
        activations: of named layers, (B, units) each.
    """
    count = sum(lengths)
    tick = np.concatenate([np.arange(length) for length in lengths])
    agent = np.repeat(np.arange(len(lengths)), lengths)
    none = RaggedRows(np.empty((0, 1), np.int16), np.zeros(count + 1, np.int64))
    zeros = np.zeros(count, np.int64)
    floats = np.zeros(count, np.float32)
    records = Records(
        step=tick, env_id=agent, agent_id=agent + 1, episode=zeros, tick=tick, reward=floats, value=floats,
        action=np.zeros((count, 1), np.int64), log_probability=np.zeros((count, 1), np.float32),
        activations=activations or {}, tile=np.empty((count, 0, 3), np.int16), entity=none, inventory=none,
    )  # fmt: skip
    return Tracks(records, lives_of(records), state, read, state if layer is None else layer)


def nothing(share: float) -> None:
    """Report no progress."""
