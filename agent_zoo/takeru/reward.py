"""What takeru pays for beside the task: doing something for the first time."""

from typing import Any

import nmmo

from agent_zoo.base import BaseRewardWrapper
from agent_zoo.rewards import NewEvents, forbid_giving

NEW_EVENT_BONUS = 0.01
NEW_EVENTS_PAID_A_TICK = 3


class RewardWrapper(BaseRewardWrapper):
    """Task reward, and +0.01 for each kind of event new to this life (3 a tick). Giving anything away is illegal."""

    def __init__(self, env: Any, game: nmmo.Env):
        super().__init__(env, game)
        self.new_events = NewEvents(game)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        self.new_events.start_episode()
        return super().reset(seed=seed, options=options)

    def restrict(self, observation: dict) -> None:
        """Forbid giving."""
        forbid_giving(observation)

    def after_tick(self, actions: dict, observations: dict, died: dict) -> None:
        """Count each agent's new kinds of events."""
        self.new_events.count()

    def reward(self, agent: int, task_reward: float) -> float:
        """Return what a living agent is paid for this tick."""
        return task_reward + NEW_EVENT_BONUS * min(self.new_events.of(agent), NEW_EVENTS_PAID_A_TICK)
