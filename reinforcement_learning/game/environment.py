"""One world of Neural MMO as PufferLib runs it: seeded episodes, tasks as code, the agent's reward, life statistics.

Several policies can share a world; their agents keep their policy's reward and restrictions.

Every episode starts from a seed that depends only on the world's first seed and the episode's number, so any episode
can be replayed without the earlier ones.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nmmo
import numpy as np
import pufferlib.emulation
import pufferlib.vector
from nmmo.core.config import Config
from nmmo.task.task_spec import TaskSpec
from pettingzoo.utils.wrappers import BaseParallelWrapper

from agent_zoo.observation import ActionHead, CandidateTable, ObservationLayout
from reinforcement_learning.game.body_reward import rewarded
from reinforcement_learning.game.fast_game.game import FastEmulation, FastGame
from reinforcement_learning.game.fast_game.ways import GoToWater, move_all_agents, see_water
from reinforcement_learning.game.life import Before, Life, cause_of_death, deeds
from reinforcement_learning.game.maps import game_config
from reinforcement_learning.game.tasks import draw_tasks, fixed_weights, offered_tasks, read_weights
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, TaskSettings

_CANDIDATES: dict[str, CandidateTable] = {"Target": "entity", "InventoryItem": "inventory", "MarketItem": "market"}
_PARENT_CHECK_SECONDS = 2.0
_MOVING = 1  # a stream of random numbers of its own: a moved agent's episode is otherwise the same
AS_THE_AGENT_HAS_IT = RewardSettings()


NO_ACTIONS = np.zeros((0, 0, 0), dtype=np.int16)


@dataclass(frozen=True)
class EpisodeStart:
    """Where a world starts: in an episode of its sequence, after the actions already taken in it."""

    first_seed: int  # of the world's whole sequence of episodes
    number: int = 0  # of the episode in that sequence, from 0
    actions: np.ndarray = field(default_factory=lambda: NO_ACTIONS)  # taken so far, (ticks, agents, heads) int16
    task_weights: np.ndarray | None = None
    """Used to draw the episode's tasks, (tasks,) float64; None for those in effect when it starts."""


def map_of_episode(settings: EnvironmentSettings, first_seed: int, number: int) -> int:
    """Return the number of the map that an episode is played on, from 1; arguments as in `EpisodeStart`."""
    return _episode_start(settings, first_seed, number)[1]


def _episode_start(settings: EnvironmentSettings, first_seed: int, number: int) -> tuple[np.random.Generator, int]:
    """Draw an episode's map; also return the random stream from which the rest of the episode is drawn."""
    random = np.random.default_rng([first_seed, number])
    return random, int(random.integers(settings.num_maps)) + 1


class SeededEpisodes(BaseParallelWrapper):
    """Gives each episode its own seed, map and tasks, and ends it early once few agents are left."""

    def __init__(
        self, env: nmmo.Env, settings: EnvironmentSettings, specs: Sequence[TaskSpec], weights_file: Path | None
    ):
        super().__init__(env)
        self.game = env
        self.settings = settings
        self.specs = specs
        self.weights_file = weights_file
        self._to_water = any(spec.eval_fn is GoToWater for spec in specs)
        self.next_weights: np.ndarray | None = None
        self.episode = EpisodeStart(first_seed=0, number=-1)
        self.map_number = 0  # of the episode's map, from 1
        self.agents: list[int] = []

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start the next episode; a seed restarts the sequence of episodes."""
        first_seed = self.episode.first_seed if seed is None else seed
        number = self.episode.number + 1 if seed is None else 0
        random, self.map_number = _episode_start(self.settings, first_seed, number)
        weights, self.next_weights = self.next_weights, None
        if weights is None and self.weights_file:
            weights = read_weights(self.weights_file, self.specs)
        self.episode = EpisodeStart(first_seed, number, task_weights=weights)
        if weights is None:
            weights = fixed_weights(self.specs)
        tasks = draw_tasks(self.specs, weights, self.game.possible_agents, random)
        # Neural MMO 2.1.2 wrongly keeps state from one episode to the next: its event log would return the last
        # episode's ticks for the new ones' numbers, and the path cache paths around another map's obstacles.
        self.game.realm.event_log._data_by_tick.clear()
        self.game.realm.event_log._last_tick = 0
        self.game.realm.map.pathfinding_cache.clear()
        observations, _ = super().reset(
            seed=int(random.integers(2**31)), options={"map_id": self.map_number, "make_task_fn": lambda: tasks}
        )
        if self._to_water:
            see_water(self.game)
        return observations, {"episode": self.episode}

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick."""
        if self.game.realm.tick == self.settings.interrupt:
            drawn = np.random.default_rng([self.episode.first_seed, self.episode.number, _MOVING])
            move_all_agents(self.game, drawn, self._to_water)
            if self._to_water:
                see_water(self.game)
        observations, rewards, terminated, truncated, infos = super().step(actions)
        if len(self.agents) <= self.settings.early_stop_agents:
            truncated = {agent: not terminated[agent] for agent in terminated}
            self.agents = []
        return observations, rewards, terminated, truncated, infos


class EpisodeStatistics(BaseParallelWrapper):
    """Sums each life's reward, and reports the lives that ended in a tick as `{"lives": [...]}`."""

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
        before = Before(self.game)
        observations, rewards, terminated, truncated, infos = super().step(actions)
        for agent, reward in rewards.items():
            self._total_reward[agent] += reward
        ended = [agent for agent in terminated if terminated[agent] or truncated[agent]]
        counted = deeds(self.game, ended) if ended else {}
        lives = []
        for agent in ended:
            died, task = terminated[agent], self.game.agent_task_map[agent][0]
            player = self.game.dead_this_tick[agent] if died else self.game.realm.players[agent]
            food, water, gold = before.of(agent)
            players_killed, events = counted[agent]
            life = Life(
                agent_id=agent,
                ticks=int(player.history.time_alive.val),
                total_reward=float(self._total_reward[agent]),
                died=died,
                cause_of_death=cause_of_death(player, food, water) if died else None,
                task=task.spec_name,
                task_progress=float(task.progress_info["max_progress"]),
                task_completed=task.completed,
                level=int(player.level),
                gold=gold,
                players_killed=players_killed,
                events=events,
                noops_permitted=infos[agent]["noops_permitted"],
            )
            lives.append(life)
        return observations, rewards, terminated, truncated, {"lives": lives} if lives else {}


class World(FastEmulation):
    """One world as PufferLib runs it; its first reset takes it to its starting point."""

    def __init__(self, env: BaseParallelWrapper, game: FastGame, episodes: SeededEpisodes, start: EpisodeStart | None):
        super().__init__(env, game)
        self.episodes = episodes
        self.start = start

    def reset(self, seed: int | None = None) -> tuple[dict, dict]:
        """Start an episode, the first time in the middle of it if requested; `seed` is then ignored."""
        if self.start is None:
            return super().reset(seed=seed)
        start, self.start = self.start, None
        self.episodes.episode = EpisodeStart(start.first_seed, start.number - 1)  # the next reset starts the one after
        self.episodes.next_weights = start.task_weights
        observations, infos = super().reset()
        for actions in start.actions:
            super().step(actions.astype(self.single_action_space.dtype))
        return observations, {} if len(start.actions) else infos


def make_environment(
    agent: str, settings: EnvironmentSettings, task: TaskSettings, maps: Path, start: EpisodeStart | None = None,
    specs: Sequence[TaskSpec] | None = None, weights_file: Path | None = None,
    reward: RewardSettings = AS_THE_AGENT_HAS_IT,
) -> World:  # fmt: skip
    """Build one world as PufferLib runs it.

    Args:
        maps: a finished folder from `ensure_maps`.
        start: where its first reset takes it; by default the seed given to that reset decides.
        specs: the result of `offered_tasks` for these settings, if already computed.
        weights_file: sampling weights to read when an episode starts; by default those of the curriculum.
    """
    game, episodes = make_game(settings, task, maps, specs, weights_file)
    return World(_rewarded(episodes, agent, reward), game, episodes, start)


def make_game(
    settings: EnvironmentSettings, task: TaskSettings, maps: Path, specs: Sequence[TaskSpec] | None = None,
    weights_file: Path | None = None,
) -> tuple[FastGame, SeededEpisodes]:  # fmt: skip
    """Build the game and its sequence of episodes, without an agent's reward; arguments as `make_environment`."""
    _outlive_nobody()
    logging.getLogger().setLevel(logging.ERROR)
    game = FastGame(game_config(settings, task.embedding_size, maps))
    return game, SeededEpisodes(game, settings, specs or offered_tasks(task, settings), weights_file)


def make_plain_environment(
    agent: str, settings: EnvironmentSettings, task: TaskSettings, maps: Path
) -> pufferlib.emulation.PettingZooPufferEnv:
    """Build the same world from only the game's and PufferLib's own code, as a reference for `make_environment`."""
    logging.getLogger().setLevel(logging.ERROR)
    game = nmmo.Env(game_config(settings, task.embedding_size, maps))
    episodes = SeededEpisodes(game, settings, offered_tasks(task, settings), weights_file=None)
    return pufferlib.emulation.PettingZooPufferEnv(env=_rewarded(episodes, agent, AS_THE_AGENT_HAS_IT))


def _rewarded(episodes: SeededEpisodes, agent: str, reward: RewardSettings) -> EpisodeStatistics:
    return EpisodeStatistics(rewarded(episodes, episodes.game, agent, reward), episodes.game)


def observation_layout(env: pufferlib.emulation.PettingZooPufferEnv) -> ObservationLayout:
    """Return the layout of an environment's observations and actions."""
    from nmmo.core.tile import TileState
    from nmmo.entity.entity import EntityState
    from nmmo.systems.item import ItemState

    space = env.env_single_observation_space
    heads = []  # in the order in which PufferLib flattens them (alphabetical)
    for action, arguments in env.env_single_action_space.items():
        for argument, options in arguments.items():
            candidates, size = _CANDIDATES.get(argument), int(options.n)
            has_noop = candidates is not None or argument == "Direction"
            heads.append(ActionHead(f"{action}.{argument}", size, size - 1 if has_noop else None, candidates))
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
        heads=tuple(heads),
    )


def _outlive_nobody() -> None:
    """In a worker process, leave Ctrl-C to the parent, and end when the parent asks for it or is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker would inherit the parent's handler
    forked_by = os.getppid()  # the parent itself, or its fork server

    def watch() -> None:
        while os.getppid() == forked_by and parent.is_alive():
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serial_worlds(
    creators: Sequence[Callable[[], World]], kind: type[pufferlib.vector.Serial] = pufferlib.vector.Serial
) -> pufferlib.vector.Serial:
    """Build worlds in this process, each with its own creator, which PufferLib 1.0.1's `make` does not support."""
    return kind(creators, [()] * len(creators), [{}] * len(creators), len(creators))


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
