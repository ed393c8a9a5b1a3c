"""Generalised advantage estimation over lives that can begin and end in the middle of a rollout."""

import numpy as np


def generalized_advantages(
    reward: np.ndarray, value: np.ndarray, acting: np.ndarray, gamma: float, gae_lambda: float
) -> np.ndarray:
    """Estimate advantages (Schulman et al. 2016, equations 11 and 16) for N slots over T ticks.

    A slot holds an acting agent or none. An agent that dies at tick t + 1 has value 0 there and is not acting. An agent
    whose episode is cut off is not acting either, but has the value of its last observation, so its future rewards are
    bootstrapped rather than counted as 0.

    Args:
        reward: for the action at each tick, (T, N) float32.
        value: the critic's estimate, 0 where no agent lives, (T + 1, N) float32.
        acting: whether an agent chose an action at this tick, (T + 1, N) bool.
        gamma: discount per tick.
        gae_lambda: 0 gives one-step temporal differences, 1 full returns.

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
