"""The peer's plain worlds repeat a run's ticks exactly, and a difference does not go unnoticed."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.training import RecordedWorlds, Repetition, plain_worlds
from reinforcement_learning.game.vectorization import first_episodes, make_groups, make_worlds
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, TaskSettings
from tests.command import assert_refuses

AGENT = "neurips23_start_kit"


@pytest.fixture
def settings(small_world: EnvironmentSettings, task: TaskSettings) -> Settings:
    return Settings(env=small_world, task=task, rollout=RolloutSettings(num_envs=2, vectorization="serial"))


@pytest.fixture
def repetition(settings: Settings, maps: Path) -> Repetition:
    """Of five ticks that two groups of a world each have played with random actions."""
    starts = first_episodes(0, 2)
    groups = make_groups(AGENT, settings.env, settings.task, settings.rollout, maps, starts)
    recorded = [RecordedWorlds(worlds) for worlds in groups]
    others = {
        "plain": plain_worlds(AGENT, settings, maps, like=groups),
        "same": make_worlds(AGENT, settings.env, settings.task, settings.rollout, maps, starts),
    }
    repetition = Repetition(recorded, others, starts)
    sizes = groups[0].single_action_space.nvec
    random = np.random.default_rng(0)
    for worlds in recorded:
        worlds.async_reset()
        worlds.recv()
    for _ in range(5):
        for worlds in recorded:
            worlds.send(random.integers(sizes, size=(worlds.agents_per_batch, len(sizes))))
            worlds.recv()
    return repetition


def test_plain_worlds_repeat_the_ticks_of_a_run(repetition: Repetition) -> None:
    repetition.repeat()
    assert min(repetition.seconds.values()) > 0 and len(repetition.seconds) == 2
    assert not any(group.actions or group.rewards for group in repetition.groups)


def test_another_reward_in_any_tick_is_noticed(repetition: Repetition) -> None:
    repetition.groups[1].rewards[2][3] += 1
    assert_refuses("rewards of the run's and of plain", repetition.repeat)


def test_other_observations_after_the_last_tick_are_noticed(repetition: Repetition) -> None:
    for group in repetition.groups:  # the plain worlds play one tick only, in which nobody is rewarded
        group.actions, group.rewards = group.actions[:1], group.rewards[:1]
    assert_refuses("observations of the run's and of plain", repetition.repeat)
