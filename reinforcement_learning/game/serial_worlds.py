"""Worlds that all run in this process."""

from collections.abc import Callable, Sequence

import pufferlib.vector

from reinforcement_learning.game.environment import World


def serial_worlds(
    creators: Sequence[Callable[[], World]], kind: type[pufferlib.vector.Serial] = pufferlib.vector.Serial
) -> pufferlib.vector.Serial:
    """Build worlds in this process, each with its own creator, which PufferLib 1.0.1's `make` does not support."""
    return kind(creators, *no_arguments(creators), len(creators))


def no_arguments(creators: Sequence[Callable[[], World]]) -> tuple[list[tuple], list[dict]]:
    """Return empty positional and keyword arguments for each creator, as PufferLib requires."""
    return [()] * len(creators), [{}] * len(creators)
