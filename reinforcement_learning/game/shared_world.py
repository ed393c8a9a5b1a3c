"""One world shared by several policies, whose agents keep their policy's reward and restrictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nmmo
from nmmo.task.task_spec import TaskSpec
from pettingzoo.utils.wrappers import BaseParallelWrapper

from reinforcement_learning.game.body_reward import rewarded
from reinforcement_learning.game.environment import AS_THE_AGENT_HAS_IT, EpisodeStatistics, World, make_game
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, TaskSettings

Tick = tuple[dict, dict, dict, dict, dict]


@dataclass(frozen=True)
class Kind:
    """Agents with the same restrictions and rewards."""

    agent: str  # folder in agent_zoo/
    reward: RewardSettings = AS_THE_AGENT_HAS_IT  # settings of rewards beyond the agent's own


class OwnAgents(BaseParallelWrapper):
    """A shared world as seen by the reward wrapper of one kind of agent: only agents of that kind.

    `SharedRewards` steps the world itself; this class passes on its results.
    """

    def __init__(self, env: BaseParallelWrapper):
        super().__init__(env)
        self.started: tuple[dict, dict] = ({}, {})
        self.played: Tick = ({}, {}, {}, {}, {})

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Return the world's result of the reset."""
        self.agents = list(self.started[0])
        return self.started

    def step(self, actions: dict) -> Tick:
        """Return the world's result of the tick."""
        self.agents = [agent for agent, died in self.played[2].items() if not died]
        return self.played


class SharedRewards(BaseParallelWrapper):
    """Applies to each agent the `RewardWrapper` of the policy that plays it.

    Attributes:
        kind_of: agent -> its index in `kinds`; set this before an episode starts.
    """

    def __init__(self, env: BaseParallelWrapper, game: nmmo.Env, kinds: Sequence[Kind]):
        super().__init__(env)
        self.views = [OwnAgents(env) for _ in kinds]
        self.wrappers = [
            rewarded(view, game, kind.agent, kind.reward) for kind, view in zip(kinds, self.views, strict=True)
        ]
        self.kind_of: dict[int, int] = dict.fromkeys(game.possible_agents, 0)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        observations, infos = super().reset(seed=seed, options=options)
        started: dict[int, Any] = {}
        for kind, (view, wrapper) in enumerate(zip(self.views, self.wrappers, strict=True)):
            view.started = (self._own(observations, kind), {})
            started |= wrapper.reset(seed=seed, options=options)[0]
        return started, infos

    def step(self, actions: dict) -> Tick:
        """Play one tick."""
        played = super().step(actions)
        merged: list[dict] = [{}, {}, {}, {}, {}]
        for kind, (view, wrapper) in enumerate(zip(self.views, self.wrappers, strict=True)):
            observations, rewards, died, cut_off, infos = (self._own(part, kind) for part in played)
            view.played = (observations, rewards, died, cut_off, infos)
            for whole, part in zip(merged, wrapper.step(self._own(actions, kind)), strict=True):
                whole.update(part)
        observations, rewards, died, cut_off, infos = merged
        return observations, rewards, died, cut_off, infos

    def _own(self, by_agent: dict, kind: int) -> dict:
        return {agent: value for agent, value in by_agent.items() if self.kind_of.get(agent) == kind}


@dataclass(frozen=True)
class SharedWorld:
    """A world with agents of several kinds."""

    world: World
    rewards: SharedRewards  # on which each agent's kind is set
    agents: list[int]  # the game's numbers of the agents, in the order of their slots


def make_shared_world(
    kinds: Sequence[Kind], settings: EnvironmentSettings, task: TaskSettings, maps: Path, specs: Sequence[TaskSpec]
) -> SharedWorld:
    """Build one world with agents of several kinds; other arguments as `make_environment`."""
    game, episodes = make_game(settings, task, maps, specs)
    rewards = SharedRewards(episodes, game, kinds)
    world = World(EpisodeStatistics(rewards, game), game, episodes, start=None)
    return SharedWorld(world, rewards, list(world.possible_agents))
