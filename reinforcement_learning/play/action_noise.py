"""The random numbers behind agents' choices, which depend only on seed, episode, tick, agent and head.

An agent's numbers do not depend on which others are alive, on their policies, or on parallel episodes. So a run and the
same run with one agent changed are a paired experiment: all other agents use the same random numbers.

A counter-based generator makes this possible: Philox4x64-10, which computes any part of its stream from a key and a
counter without what comes before (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011, https://doi.org/10.1145/2063384.2063405).
"""

from collections.abc import Sequence

import numpy as np

from reinforcement_learning.game.episode_journal import Moment

ACTIONS, RANDOM_ACTIONS = 0, 1
"""Streams of numbers: behind the options that policies choose, and behind acts at random."""
_STREAMS = 2


def action_noise(
    moments: Sequence[Moment], agents: int, heads: int, stream: int = ACTIONS, throw: int = 0
) -> np.ndarray:
    """Draw a number for each agent and head of several worlds.

    Args:
        agents: number in each world, dead or alive.
        heads: choices of each agent in a tick.
        stream: which of the independent streams of numbers.
        throw: number of the throw of all dice; each has streams of its own. Episodes are played with throw 0.

    Returns:
        Numbers in [0, 1), (worlds * agents, heads) float64, in the order of the worlds and of their agents.
    """
    return np.concatenate([_of_world(moment, agents, heads, stream + _STREAMS * throw) for moment in moments])


def _of_world(moment: Moment, agents: int, heads: int, stream: int) -> np.ndarray:
    # The lowest word counts blocks of four numbers within the table; the other words identify the table.
    generator = np.random.Philox(key=moment.first_seed, counter=[0, moment.tick, moment.number, stream])
    # NumPy guarantees a stable stream for bit generators, but not for Generator.random.
    bits = generator.random_raw(agents * heads) >> 11  # the 53 highest bits, the precision of a float64
    return (bits * 2.0**-53).reshape(agents, heads)
