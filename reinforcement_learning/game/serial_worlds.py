"""Worlds that all run in this process."""

from collections.abc import Callable, Sequence

import pufferlib.vector

from reinforcement_learning.game.environment import World


def serial_worlds(
    creators: Sequence[Callable[[], World]], kind: type[pufferlib.vector.Serial] = pufferlib.vector.Serial
) -> pufferlib.vector.Serial:
    """Build worlds in this process, each with its own creator, which PufferLib 1.0.1's `make` does not support."""
    return kind(creators, [()] * len(creators), [{}] * len(creators), len(creators))
