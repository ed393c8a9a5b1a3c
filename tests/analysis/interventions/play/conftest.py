"""The driven policy in its small world, and its pool of two episodes; a module may change its own."""

from pathlib import Path

import pytest

from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.driven import driven_contest


@pytest.fixture(scope="module")
def contest(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> Contest:
    return driven_contest(small_world, task, maps)


@pytest.fixture(scope="module")
def pool(contest: Contest) -> PolicyPool:
    return contest.pool(2)
