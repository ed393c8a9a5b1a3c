"""Neural MMO's environment with its slowest parts replaced."""

from typing import Any

import nmmo
import pufferlib.emulation
from nmmo.core.observation import Observation

from reinforcement_learning.game.fast_game.actions import executable
from reinforcement_learning.game.fast_game.observations import FastObservation, ObservationWriter
from reinforcement_learning.game.fast_game.realm import take_over
from reinforcement_learning.game.fast_game.tasks import FastGameStateGenerator, Watch, all_rewards
from reinforcement_learning.processes import tidy_memory


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
