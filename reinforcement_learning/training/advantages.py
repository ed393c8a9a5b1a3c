"""Generalised advantage estimation over lives that begin and end in the middle of a rollout."""

import numpy as np


def generalized_advantages(
    reward: np.ndarray, value: np.ndarray, acting: np.ndarray, gamma: float, gae_lambda: float
) -> np.ndarray:
    """Estimate advantages (Schulman et al. 2016, equations 11 and 16) for N slots over T ticks.

    A slot holds an agent that acts, or none. An agent that dies at tick t + 1 has value 0 there and is not acting; one
    whose episode is cut off has the value of its last observation and is not acting either, so what it would still
    have earned is estimated rather than taken for nothing.

    Args:
        reward: paid for the action at each tick, (T, N) float32.
        value: the critic's estimate, 0 where no agent lives, (T + 1, N) float32.
        acting: whether an agent chose an action at this tick, (T + 1, N) bool.
        gamma: discount per tick.
        gae_lambda: 0 takes one-tick differences, 1 whole returns.

    Returns:
        (T, N) float32; meaningless where no agent was acting.
    """
    advantage = np.zeros_like(reward)
    following = np.zeros_like(reward[0])
    for tick in reversed(range(len(reward))):
        difference = reward[tick] + gamma * value[tick + 1] - value[tick]
        following = difference + gamma * gae_lambda * acting[tick + 1] * following
        advantage[tick] = following
    return advantage
