"""Which agents of an episode are edited: drawn by lot, the same in every arm."""

import numpy as np

_STREAM = 0x1D7A  # apart from the streams that seats, tasks, maps and actions are drawn from


def drawn_agents(seed: int, number: int, agents: int, count: int) -> np.ndarray:
    """Draw `count` of an episode's agents, (agents,) bool.

    Args:
        seed: of the sequence of episodes.
        number: of the episode in it.
        agents: number in the world.
        count: how many to draw, at most all.
    """
    random = np.random.default_rng(np.random.SeedSequence([_STREAM, seed, number]))
    drawn = np.zeros(agents, dtype=bool)
    drawn[random.permutation(agents)[:count]] = True
    return drawn
