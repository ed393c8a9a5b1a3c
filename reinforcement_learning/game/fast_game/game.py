"""Neural MMO's environment with its slowest parts replaced, and PufferLib's emulation of it.

The game writes its observations itself, into the buffer of the emulation.
"""

import gc
import itertools
from typing import Any

import nmmo
import numpy as np
import pufferlib.emulation
from nmmo.core.observation import Observation
from pufferlib.exceptions import APIUsageError

from reinforcement_learning.game.fast_game.actions import decode, executable, padded
from reinforcement_learning.game.fast_game.observations import FastObservation, ObservationWriter
from reinforcement_learning.game.fast_game.realm import take_over
from reinforcement_learning.game.fast_game.tasks import FastGameStateGenerator, Watch, all_rewards
from reinforcement_learning.processes import tidy_memory

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


class FastGame(nmmo.Env):
    """The game, equal to `nmmo.Env` in everything it returns except the infos about tasks, which are empty."""

    game_state: Any
    _gamestate_generator: Any

    def __init__(self, config: Any):
        super().__init__(config)
        assert not config.PROVIDE_DEATH_FOG_OBS and not config.COMMUNICATION_SYSTEM_ENABLED
        assert config.ALLOW_MOVE_INTO_OCCUPIED_TILE and config.are_systems_enabled(["EQUIPMENT", "PROGRESSION", "NPC"])
        take_over(self.realm)
        self.writer = ObservationWriter(config, pufferlib.emulation.dtype_from_space(self._obs_space))
        self.obs = {agent: FastObservation(config, agent, self.writer) for agent in self.possible_agents}
        self._watches: list[Watch] = []  # over each task

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        self.writer.start_episode()
        for task in self.tasks or ():  # else Neural MMO keeps the last state of every episode for ever
            task.close()
        tidy_memory()
        observations, infos = super().reset(seed=seed, options=options)
        self._gamestate_generator = FastGameStateGenerator(self._gamestate_generator)
        self._watches = [Watch(task) for task in self.tasks]
        return observations, infos

    def _validate_actions(self, actions: dict[int, dict]) -> dict[int, dict]:
        return executable(actions, self.realm, self.writer)

    def _compute_observations(self) -> None:
        """Write all observations at once; see `ObservationWriter`."""
        Observation.clear_cache(next(iter(self.obs.values())))
        for agent in self._current_agents:
            if agent not in self.realm.players:
                self.obs[agent].set_agent_dead()
        self.writer.write(self.realm, self.tile_map)

    def _compute_rewards(self) -> tuple[dict[int, float], dict[int, dict]]:
        """Reward agents for progress in their tasks; 0 for frozen agents, -1 for those that died."""
        if self.game_state is not None:
            self.game_state.clear_cache()
        happened = self.realm.event_log.index_new()
        self.game_state = self._gamestate_generator.generate(self.realm, self.obs)
        current = set(self._current_agents)
        rewards = all_rewards(self._watches, self.game_state, happened, current)
        for agent, player in self.realm.players.entities.items():
            if player.body.freeze._val > 0:
                rewards[agent] = 0
        if self.game.assign_dead_reward:
            for agent in self._dead_this_tick:
                rewards[agent] = -1
        return rewards, {agent: {} for agent in current}


class FastEmulation(pufferlib.emulation.PettingZooPufferEnv):
    """Passes the shared buffer to the game instead of copying every observation into it."""

    initialized: bool

    def __init__(self, env: Any, game: FastGame):
        super().__init__(env=env)
        self.game = game
        self._shown = np.ones(self.num_agents, dtype=bool)  # slots of the buffer that are not all zeros
        self._slot = {agent: slot for slot, agent in enumerate(self.possible_agents)}
        columns = itertools.count()
        self._heads = [
            (action, [(argument, next(columns)) for argument in arguments])
            for action, arguments in self.env_single_action_space.items()
        ]

    def reset(self, seed: int | None = None) -> tuple[dict, dict]:
        """Start an episode."""
        if not self.initialized:
            if self.buf is not None:
                self.obs = self.buf.observations
            self.obs_struct = self.obs.view(self.obs_dtype)
            self.game.writer.bind(self.obs_struct[:, 0])
            self.dict_obs = {agent: self.obs[slot] for agent, slot in self._slot.items()}
            # A world consists of half a million long-lived objects: a garbage collection over them takes about as long
            # as ten ticks. And it makes thousands of objects in a tick that live no longer, almost none of them in a
            # cycle: Python would look for these after every 700. Like freezing, this holds for the whole process.
            gc.collect()
            gc.freeze()
            gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
        self.initialized = True
        self.all_done = False
        _, info = self.env.reset(seed=seed)
        self._shown[:] = True
        if self.buf is not None:
            self.buf.rewards[:] = 0
            self.buf.terminals[:] = False
            self.buf.truncations[:] = False
            self.buf.masks[:] = True
        return self.dict_obs, info

    def step(self, actions: np.ndarray) -> tuple[dict, dict, dict, dict, dict]:
        """Play one tick; `actions` is (agents, heads) int64."""
        if not self.initialized or self.done:
            raise APIUsageError("reset() is needed before step()")
        if len(actions) != self.num_agents:
            raise APIUsageError(f"{len(actions)} rows of actions for {self.num_agents} agents")
        chosen = decode(self._heads, actions.tolist(), self._slot, sorted(self.agents))
        seen, rewards, died, cut_off, info = self.env.step(chosen)
        shown = np.zeros_like(self._shown)
        shown[[self._slot[agent] for agent in seen]] = True
        self.obs[self._shown & ~shown] = 0  # of agents that were observed in the last tick but no longer are
        self._shown = shown
        self.all_done = all(died.values())
        rewards, died, cut_off = (
            padded(values, self._slot, absent) for values, absent in ((rewards, 0), (died, True), (cut_off, False))
        )
        if self.buf is not None:
            self.buf.rewards[:] = list(rewards.values())
            self.buf.terminals[:] = list(died.values())
            self.buf.truncations[:] = list(cut_off.values())
            self.buf.masks[:] = self._shown
        return self.dict_obs, rewards, died, cut_off, info

    def close(self) -> None:
        """Release the world."""
        gc.unfreeze()
        super().close()
