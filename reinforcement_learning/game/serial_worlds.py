"""Worlds that are all played in this process."""

from collections.abc import Callable, Sequence

import pufferlib.vector

from reinforcement_learning.game.environment import World


def serial_worlds(
    creators: Sequence[Callable[[], World]], kind: type[pufferlib.vector.Serial] = pufferlib.vector.Serial
) -> pufferlib.vector.Serial:
    """Build worlds in this process, each by its own creator, as `pufferlib.vector.make` of version 1.0.1 cannot."""
    return kind(creators, *no_arguments(creators), len(creators))


def no_arguments(creators: Sequence[Callable[[], World]]) -> tuple[list[tuple], list[dict]]:
    """Return what PufferLib hands to creators that need nothing: empty positional and named arguments for each."""
    return [()] * len(creators), [{}] * len(creators)
