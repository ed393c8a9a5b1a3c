"""Acts at random: in some ticks, agents choose among their legal options at random instead of by their policy.

The numbers behind these acts come from a stream of their own, so the policy's choices use the same numbers with and
without them.
"""

from collections.abc import Sequence

import numpy as np
import torch

from reinforcement_learning.game.episode_journal import Moment
from reinforcement_learning.play.action_noise import RANDOM_ACTIONS, action_noise
from reinforcement_learning.play.stepper import Decision


def with_random_actions(
    decision: Decision, chosen: torch.Tensor, share: float, moments: Sequence[Moment], agents: int, throw: int = 0
) -> torch.Tensor:
    """Replace the choices of the agents that act at random in this tick.

    Args:
        chosen: by their policy, (P, heads) int64.
        share: probability that an agent acts at random in a tick, in all heads at once.
        agents: number in each world, dead or alive.

    Returns:
        Options, (P, heads) int64; an agent that acts at random chooses each legal option of a head equally often.
    """
    numbers = action_noise(moments, agents, 1 + chosen.shape[1], RANDOM_ACTIONS, throw)[decision.present]
    drawn, options = (torch.from_numpy(column).to(chosen.device) for column in np.split(numbers, [1], axis=1))
    return torch.where(drawn < share, decision.distribution.uniform().sample(options), chosen)
