"""The peer's plain worlds repeat a run's ticks exactly, and a difference does not go unnoticed."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.peer import RepeatedWorlds, plain_worlds
from reinforcement_learning.game.vectorization import first_episodes, make_worlds
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, TaskSettings
from user_error import UserError

AGENT = "neurips23_start_kit"


def test_plain_worlds_repeat_the_ticks_of_a_run(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> None:
    settings = Settings(env=small_world, task=task, rollout=RolloutSettings(num_envs=2, vectorization="serial"))
    starts = first_episodes(0, 2)
    worlds = make_worlds(AGENT, settings.env, settings.task, settings.rollout, maps, starts)
    repeated = RepeatedWorlds(worlds, plain_worlds(AGENT, settings, maps, like=worlds), starts)
    repeated.async_reset()
    sizes = worlds.single_action_space.nvec
    random = np.random.default_rng(0)
    repeated.recv()
    for _ in range(5):
        repeated.send(random.integers(sizes, size=(worlds.agents_per_batch, len(sizes))))
        repeated.recv()
        repeated.repeat()
    assert repeated.seconds > 0

    plain = repeated.plain
    plain.async_reset([start.first_seed + 1 for start in starts])
    plain.recv()
    with pytest.raises(UserError, match="differ"):
        repeated.repeat()


def test_worlds_on_a_cluster_have_no_plain_twin(
    small_world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> None:
    settings = Settings(env=small_world, task=task, rollout=RolloutSettings(num_envs=1))
    with pytest.raises(UserError, match="on this machine"):
        plain_worlds(AGENT, settings, maps, like=object())
