"""Worlds in worker processes: `test_fast_game` compares what they play; here, how they wait and how they end."""

import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from agent_zoo.observation import ObservationLayout
from reinforcement_learning.game.process_worlds import ProcessWorlds
from reinforcement_learning.game.serial_worlds import serial_worlds
from reinforcement_learning.game.vectorization import first_episodes, make_worlds
from reinforcement_learning.settings import RolloutSettings
from tests.conftest import AGENT
from user_error import UserError


@pytest.fixture
def worlds(small_world, task, maps) -> Iterator[ProcessWorlds]:
    spread = RolloutSettings(num_envs=2, num_workers=2, vectorization="multiprocessing")
    started = make_worlds(AGENT, small_world, task, spread, maps, first_episodes(7, 2))
    assert isinstance(started, ProcessWorlds)
    yield started
    started.close()


def workers() -> list[psutil.Process]:
    """The worker processes, in the order in which they were started."""
    return [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]


def test_workers_that_wait_leave_their_cores_to_the_policy(worlds: ProcessWorlds) -> None:
    worlds.async_reset()
    worlds.recv()
    before = [sum(worker.cpu_times()[:2]) for worker in workers()]
    time.sleep(1)
    after = [sum(worker.cpu_times()[:2]) for worker in workers()]
    assert len(before) == 2
    assert max(np.subtract(after, before)) < 0.2, "a worker that spins would use a second"


def test_a_worker_that_fails_in_a_tick_is_reported(worlds: ProcessWorlds, layout: ObservationLayout) -> None:
    worlds.async_reset()
    worlds.recv()
    worlds.send(np.full((worlds.agents_per_batch, len(layout.heads)), 9_999))  # no such action
    with pytest.raises(UserError, match=r"worker process 0 ended \(exit code 1;"):
        worlds.recv()


def test_a_worker_killed_between_ticks_is_reported(worlds: ProcessWorlds, layout: ObservationLayout) -> None:
    worlds.async_reset()
    worlds.recv()
    workers()[1].kill()
    while len(workers()) > 1:
        time.sleep(0.01)
    with pytest.raises(UserError, match=r"worker process 1 ended \(exit code -9;"):
        worlds.send(np.zeros((worlds.agents_per_batch, len(layout.heads)), dtype=np.int64))
        worlds.recv()


def test_closing_ends_the_workers_and_may_be_repeated(worlds: ProcessWorlds) -> None:
    started = workers()
    worlds.close()
    worlds.close()
    assert len(started) == 2 and not any(worker.is_running() for worker in started)


@pytest.mark.parametrize(("cores", "processes"), [(1, None), (2, 2), (3, 2), (16, 4)])
def test_automatic_choice_uses_the_cores(
    cores: int, processes: int | None, small_world, task, maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reinforcement_learning.game.vectorization.usable_cores", lambda: cores)
    worlds = make_worlds(AGENT, small_world, task, RolloutSettings(num_envs=4), maps, first_episodes(7, 4))
    try:
        assert getattr(worlds, "num_workers", None) == processes
        assert isinstance(worlds, ProcessWorlds if processes else type(serial_worlds([lambda: worlds.driver_env])))
    finally:
        worlds.close()
