"""Policies that play in this process: in worlds of their own, or in a pool that is watched and recorded."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from activation_store.writer import DumpWriter
from agent_zoo.base import RecurrentPolicy
from reinforcement_learning.game.environment import EpisodeStart, observation_layout
from reinforcement_learning.game.vectorization import make_worlds
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.extraction import RecordingPlan, record_group, write
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.stepper import EpisodeJournal, Stepper, Stopwatch
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, TaskSettings
from tests.tiny_policies import AGENTS


def stepper(
    policy: RecurrentPolicy, env: EnvironmentSettings, task: TaskSettings, maps: Path, starts: list[EpisodeStart]
) -> Stepper:
    """A policy in worlds that are at these starts."""
    rollout = RolloutSettings(num_envs=len(starts), vectorization="serial")
    worlds = make_worlds(AGENTS["kit"][0], env, task, rollout, maps, starts)
    result = Stepper(worlds, policy, observation_layout(worlds.driver_env), Stopwatch(), EpisodeJournal(starts))
    result.reset()
    return result


@contextmanager
def watched(
    before: Callable[[PolicyPool, Sequence[EntrantActions]], object],
    after: Callable[[PolicyPool], object] = lambda _: None,
) -> Iterator[None]:
    """Call a function before each tick that a pool plays, and another one after it."""
    advance = PolicyPool.advance

    def advance_watched(pool: PolicyPool, choices: Sequence[EntrantActions]) -> None:
        before(pool, choices)
        advance(pool, choices)
        after(pool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyPool, "advance", advance_watched)
        yield


def record_here(pool: PolicyPool, group: Group, plan: RecordingPlan, writers: Sequence[DumpWriter]) -> None:
    """Record a group of episodes, with a writer for each entrant."""
    output = record_group(pool, group, plan.layers, plan.fields, plan.most_ticks)
    write(((group, item) for item in output), writers, lambda *_: None)
