"""Rewards for the state of agents' bodies, in addition to or instead of their own reward."""

from dataclasses import replace
from typing import Any

import nmmo
import numpy as np
from pettingzoo.utils.wrappers import BaseParallelWrapper

import agent_zoo
from agent_zoo.rewards import WeightedReward
from common.user_error import UserError
from reinforcement_learning.settings import RewardSettings

FULL = 100
_POWER, _ROOT = 4, 2  # n and m of the drive


class TaskReward(BaseParallelWrapper):
    """Keeps the task's reward of the tick just played, before an agent's own reward adds to it."""

    def __init__(self, env: BaseParallelWrapper):
        super().__init__(env)
        self.paid: dict[int, float] = {}

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick."""
        played = super().step(actions)
        self.paid = dict(played[1])
        return played


class HomeostaticReward(BaseParallelWrapper):
    """Weighted sum of the task's reward, the agent's own bonus, changes in health, and reductions of the drive."""

    def __init__(self, env: BaseParallelWrapper, task: TaskReward, game: nmmo.Env, settings: RewardSettings):
        super().__init__(env)
        self.task = task
        self.game = game
        self.settings = settings
        self._body: dict[int, np.ndarray] = {}

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        started = super().reset(seed=seed, options=options)
        self._body = {agent: body(self.game.realm.players[agent]) for agent in started[0]}
        return started

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick; an agent's last reward includes the cost of its death to its body."""
        observations, rewards, died, cut_off, infos = super().step(actions)
        return observations, {agent: self._pay(agent, rewards[agent]) for agent in rewards}, died, cut_off, infos

    def _pay(self, agent: int, reward: float) -> float:
        fallen = self.game.dead_this_tick.get(agent)
        now = body(self.game.realm.players[agent] if fallen is None else fallen)
        before, self._body[agent] = self._body[agent], now
        settings, task = self.settings, self.task.paid[agent]
        return float(
            settings.task_coef * task
            + settings.bonus_coef * (reward - task)
            + settings.hp_coef * (now[0] - before[0])
            + settings.drive_coef * (drive(before) - drive(now))
        )


def body(player: Any) -> np.ndarray:
    """Return health, food and water of one of the engine's players as shares of their maxima, (3,) float64."""
    resources = player.resources
    return np.array([resources.health.val, resources.food.val, resources.water.val]) / FULL


def drive(body: np.ndarray) -> float:
    """Return the distance of a body from its setpoint of full health, food and water: 0 to the square root of 3.

    D = (sum of |setpoint - state|^n)^(1/m) with n = 4 and m = 2 (Keramati and Gutkin 2014, eLife 3:e04811, equation 1).
    """
    return float((np.abs(1 - body) ** _POWER).sum() ** (1 / _ROOT))


def rewarded(env: BaseParallelWrapper, game: nmmo.Env, agent: str, settings: RewardSettings) -> BaseParallelWrapper:
    """Wrap a world in an agent's reward and what these settings add to it.

    Args:
        settings: the default leaves the agent's own reward unchanged.

    Raises:
        UserError: the settings weight the parts of a reward that has no such parts.
    """
    if not settings.adds_to_agent:
        return _own_reward(env, game, agent, settings)
    task = TaskReward(env)
    return HomeostaticReward(_own_reward(task, game, agent, settings), task, game, settings)


def _own_reward(env: BaseParallelWrapper, game: nmmo.Env, agent: str, settings: RewardSettings) -> BaseParallelWrapper:
    kind, chosen = agent_zoo.load(agent).RewardWrapper, settings.chosen_rules
    if issubclass(kind, WeightedReward):
        return kind(env, game, replace(kind.default, as_published=settings.as_published, **chosen))
    if chosen:
        option = f"--reward.{next(iter(chosen)).replace('_', '-')}"
        raise UserError(
            f"{option}: the reward of the agent {agent} has no such part, since its RewardWrapper is not made of "
            "agent_zoo.rewards.WeightedReward: leave it out"
        )
    return kind(env, game)
