"""One world of Neural MMO as PufferLib runs it: seeded episodes, tasks as code, the agent's reward, life statistics.

Every episode starts from a seed that depends only on the world's first seed and the episode's number, so an episode
can be run again without those before it.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nmmo
import numpy as np
import pufferlib.emulation
from nmmo.core.config import Config
from nmmo.task.task_spec import TaskSpec
from pettingzoo.utils.wrappers import BaseParallelWrapper

import agent_zoo
from agent_zoo.observation import ActionHead, CandidateTable, ObservationLayout
from reinforcement_learning.game_config import game_config
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from reinforcement_learning.tasks import draw_tasks, fixed_weights, offered_tasks, read_weights

_CANDIDATES: dict[str, CandidateTable] = {"Target": "entity", "InventoryItem": "inventory", "MarketItem": "market"}
_PARENT_CHECK_SECONDS = 2.0


@dataclass(frozen=True)
class Life:
    """How one agent's life ended: what `EpisodeStatistics` reports when it does."""

    agent_id: int
    ticks: int
    total_reward: float
    died: bool
    task: str
    task_progress: float


@dataclass(frozen=True)
class Episode:
    """One episode of one world: what rebuilds it.

    Attributes:
        first_seed: of the world's whole sequence of episodes.
        number: of the episode in that sequence, from 0.
        map_number: of the map that it is played on, from 1.
    """

    first_seed: int
    number: int
    map_number: int


class SeededEpisodes(BaseParallelWrapper):
    """Gives each episode its own seed, map and tasks, and ends it early when few agents are left."""

    def __init__(
        self, env: nmmo.Env, settings: EnvironmentSettings, specs: Sequence[TaskSpec], weights_file: Path | None
    ):
        super().__init__(env)
        self.game = env
        self.settings = settings
        self.specs = specs
        self.weights_file = weights_file
        self.episode = Episode(first_seed=0, number=-1, map_number=0)
        self.agents: list[int] = []

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start the next episode; a seed starts the sequence of episodes anew."""
        first_seed = self.episode.first_seed if seed is None else seed
        number = self.episode.number + 1 if seed is None else 0
        random = np.random.default_rng([first_seed, number])
        self.episode = Episode(first_seed, number, map_number=int(random.integers(self.settings.num_maps)) + 1)
        weights = read_weights(self.weights_file, self.specs) if self.weights_file else fixed_weights(self.specs)
        tasks = draw_tasks(self.specs, weights, self.game.possible_agents, random)
        self._forget_last_episode()
        observations, _ = super().reset(
            seed=int(random.integers(2**31)),
            options={"map_id": self.episode.map_number, "make_task_fn": lambda: tasks},
        )
        return observations, {"episode": self.episode}

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick."""
        observations, rewards, terminated, truncated, infos = super().step(actions)
        if len(self.agents) <= self.settings.early_stop_agents:
            truncated = {agent: not terminated[agent] for agent in terminated}
            self.agents = []
        return observations, rewards, terminated, truncated, infos

    def _forget_last_episode(self) -> None:
        """Clear what Neural MMO 2.1.2 carries over from one episode to the next.

        The event log serves the last episode's ticks under the new ones' numbers, and the path cache serves paths
        around another map's obstacles.
        """
        realm = self.game.realm
        realm.event_log._data_by_tick.clear()
        realm.event_log._last_tick = 0
        realm.map.pathfinding_cache.clear()


class EpisodeStatistics(BaseParallelWrapper):
    """Adds up each life's reward, and reports the lives that ended in a tick as `{"lives": [...]}`."""

    def __init__(self, env: BaseParallelWrapper, game: nmmo.Env):
        super().__init__(env)
        self.game = game
        self._total_reward: dict[int, float] = {}

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start the next episode."""
        self._total_reward = dict.fromkeys(self.game.possible_agents, 0.0)
        return super().reset(seed=seed, options=options)

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick."""
        observations, rewards, terminated, truncated, _ = super().step(actions)
        for agent, reward in rewards.items():
            self._total_reward[agent] += reward
        ended = [agent for agent in terminated if terminated[agent] or truncated[agent]]
        infos = {"lives": [self._life(agent, terminated[agent]) for agent in ended]} if ended else {}
        return observations, rewards, terminated, truncated, infos

    def _life(self, agent: int, died: bool) -> Life:
        entity = self.game.dead_this_tick[agent] if died else self.game.realm.players[agent]
        task = self.game.agent_task_map[agent][0]
        return Life(
            agent_id=agent,
            ticks=int(entity.history.time_alive.val),
            total_reward=float(self._total_reward[agent]),
            died=died,
            task=task.spec_name,
            task_progress=float(task.progress_info["max_progress"]),
        )


def make_environment(
    agent: str, settings: EnvironmentSettings, task: TaskSettings, maps: Path, specs: Sequence[TaskSpec] | None = None,
    weights_file: Path | None = None,
) -> pufferlib.emulation.PettingZooPufferEnv:  # fmt: skip
    """Build one world as PufferLib runs it.

    Args:
        agent: folder in agent_zoo/.
        settings: the world.
        task: what agents are asked to do.
        maps: a finished folder from `ensure_maps`.
        specs: what `offered_tasks` returns for these settings, where somebody has already called it.
        weights_file: sampling weights to read when an episode starts; without it those of the curriculum hold.
    """
    _outlive_nobody()
    logging.getLogger().setLevel(logging.ERROR)
    game = nmmo.Env(game_config(settings, task.embedding_size, maps))
    episodes = SeededEpisodes(game, settings, specs or offered_tasks(task, settings), weights_file)
    rewarded = agent_zoo.load(agent).RewardWrapper(episodes, game)
    return pufferlib.emulation.PettingZooPufferEnv(env=EpisodeStatistics(rewarded, game))


def observation_layout(env: pufferlib.emulation.PettingZooPufferEnv) -> ObservationLayout:
    """Read from the environment what its observations hold and which actions it takes."""
    from nmmo.core.tile import TileState
    from nmmo.entity.entity import EntityState
    from nmmo.systems.item import ItemState

    space = env.env_single_observation_space
    return ObservationLayout(
        tile_columns=tuple(TileState.State.attr_name_to_col),
        entity_columns=tuple(EntityState.State.attr_name_to_col),
        item_columns=tuple(ItemState.State.attr_name_to_col),
        tiles=space["Tile"].shape[0],
        entities=space["Entity"].shape[0],
        inventory=space["Inventory"].shape[0],
        market=space["Market"].shape[0],
        materials=Config.MAP_N_TILE,
        map_side=env.env.game.config.MAP_SIZE,
        task_size=space["Task"].shape[0],
        heads=_action_heads(env),
    )


def _action_heads(env: pufferlib.emulation.PettingZooPufferEnv) -> tuple[ActionHead, ...]:
    """The heads in the order in which PufferLib flattens them (alphabetical)."""
    heads = []
    for action, arguments in env.env_single_action_space.items():
        for argument, space in arguments.items():
            candidates = _CANDIDATES.get(argument)
            has_noop = candidates is not None or argument == "Direction"
            size = int(space.n)
            heads.append(ActionHead(f"{action}.{argument}", size, size - 1 if has_noop else None, candidates))
    return tuple(heads)


def _outlive_nobody() -> None:
    """In a worker process, leave Ctrl-C to the parent, and end when the parent says so or is gone."""
    if multiprocessing.parent_process() is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker would inherit the parent's handler
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
