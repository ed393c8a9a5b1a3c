"""Worlds in worker processes: `test_fast_game` compares what they play; here, how they wait and how they end."""

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import psutil
import pytest

from agent_zoo.observation import ObservationLayout
from common.user_error import UserError
from reinforcement_learning.game import vectorization
from reinforcement_learning.game.vectorization import (
    ProcessWorlds,
    connect_workers,
    first_episodes,
    make_groups,
    make_worlds,
)
from reinforcement_learning.settings import RolloutSettings
from tests.command import assert_refuses
from tests.conftest import AGENT


@dataclass(frozen=True)
class Started:
    """Worlds, and their worker processes in the order in which they were started."""

    worlds: ProcessWorlds
    workers: list[psutil.Process]

    def play(self, action: int, layout: ObservationLayout) -> None:
        """Play a tick in which every head of every agent takes the option of that number."""
        self.worlds.send(np.full((self.worlds.agents_per_batch, len(layout.heads)), action))
        self.worlds.recv()


SPREAD = RolloutSettings(num_envs=2, num_workers=2, vectorization="multiprocessing")


@pytest.fixture
def started(small_world, task, maps) -> Iterator[Started]:
    before = psutil.Process().children()
    worlds = make_worlds(AGENT, small_world, task, SPREAD, maps, first_episodes(7, 2))
    workers = [child for child in psutil.Process().children() if child not in before]
    worlds.async_reset()
    worlds.recv()
    yield Started(worlds, workers)
    worlds.close()


def test_workers_that_wait_leave_their_cores_to_the_policy_and_closing_ends_them(started: Started) -> None:
    before = [sum(worker.cpu_times()[:2]) for worker in started.workers]
    time.sleep(1)
    after = [sum(worker.cpu_times()[:2]) for worker in started.workers]
    assert len(before) == 2
    assert max(np.subtract(after, before)) < 0.2, "a worker that spins would use a second"
    started.worlds.close()
    started.worlds.close()
    assert len(started.workers) == 2 and not any(worker.is_running() for worker in started.workers)


@pytest.mark.parametrize("default", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_play_the_same_however_python_starts_others(
    started: Started, small_world, task, maps, layout: ObservationLayout, monkeypatch: pytest.MonkeyPatch, default: str
) -> None:
    """The default of Python 3.14 on Linux, and that of macOS, where workers start in this way too."""
    usual = multiprocessing.get_start_method()
    if default == "spawn":
        monkeypatch.setattr(vectorization, "worker_context", lambda: multiprocessing.get_context("spawn"))
    multiprocessing.set_start_method(default, force=True)
    try:
        worlds = make_worlds(AGENT, small_world, task, SPREAD, maps, first_episodes(7, 2))
        worlds.async_reset()
        others = Started(worlds, [])
        worlds.recv()
        for case in (started, others):
            case.play(0, layout)
        assert np.array_equal(started.worlds._arrays.observations, worlds._arrays.observations)
        worlds.close()
    finally:
        multiprocessing.set_start_method(usual, force=True)


def test_a_worker_that_fails_in_a_tick_is_reported(started: Started, layout: ObservationLayout) -> None:
    no_such_option = 9_999
    with pytest.raises(UserError, match="worker process 0 ended with exit code 1: its error stands above"):
        started.play(no_such_option, layout)


def test_a_worker_killed_between_ticks_is_reported(started: Started, layout: ObservationLayout) -> None:
    started.play(0, layout)
    started.workers[1].kill()
    assert_refuses("worker process 1 ended with exit code -9: memory probably ran out", started.play, 0, layout)


def test_workers_end_if_one_cannot_be_started(small_world, task, maps, monkeypatch: pytest.MonkeyPatch) -> None:
    before = psutil.Process().children()
    start = ProcessWorlds._start

    def only_one(worlds: ProcessWorlds, *arguments) -> None:
        if worlds._processes:
            raise OSError("no more processes")
        start(worlds, *arguments)

    monkeypatch.setattr(ProcessWorlds, "_start", only_one)
    with pytest.raises(OSError, match="no more processes"):
        make_worlds(AGENT, small_world, task, SPREAD, maps, first_episodes(7, 2))
    assert [child for child in psutil.Process().children() if child not in before] == []


@pytest.mark.parametrize(
    ("cores", "worlds", "processes"),
    [(1, 4, [None, None]), (2, 2, [1, 1]), (2, 4, [1, 1]), (3, 4, [1, 1]), (16, 4, [2, 2]), (16, 3, [3])],
)
def test_groups_share_the_cores(
    cores: int, worlds: int, processes: list[int | None], small_world, task, maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reinforcement_learning.game.vectorization.usable_cores", lambda: cores)
    settings = RolloutSettings(num_envs=worlds)
    groups = make_groups(AGENT, small_world, task, settings, maps, first_episodes(7, worlds))
    try:
        assert [getattr(group, "num_workers", None) for group in groups] == processes
        assert {group.agents_per_batch for group in groups} == {worlds // len(processes) * small_world.num_agents}
    finally:
        for group in groups:
            group.close()


@pytest.mark.parametrize(
    ("address", "cores", "processes", "workers", "shown"),
    [
        ("local", 1, (1, 1), 0, "needs 2 cores for each training process, 2 in all, and the Ray cluster has 1: add"),
        ("auto", 3, (2, 1), 0, "needs 2 cores for each training process, 4 in all, and the Ray cluster has 3: add"),
        ("auto", 7, (2, 2), 4, "needs 4 cores .*, 8 in all, .* has 7: lower --rollout.num-workers 4, add cores"),
        ("local", 7, (4, 2), 4, "needs 4 cores .*, 8 in all, .* has 7"),  # a cluster of its own on each machine
    ],
)
def test_a_cluster_with_too_few_cores_is_refused_before_worlds_are_made(
    monkeypatch: pytest.MonkeyPatch, address: str, cores: int, processes: tuple[int, int], workers: int, shown: str
) -> None:
    """Processes are those of the run, and those on this machine."""
    pytest.importorskip("ray")
    monkeypatch.setattr("common.ray_cluster.connect", lambda address: None)
    monkeypatch.setattr("common.ray_cluster.cores", lambda: cores)
    for name, number in zip(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), processes, strict=True):
        monkeypatch.setenv(name, str(number))
    settings = RolloutSettings(num_envs=4, vectorization="ray", num_workers=workers, ray_address=address)
    assert_refuses(shown, connect_workers, settings)
    monkeypatch.setattr("common.ray_cluster.cores", lambda: cores + 1)
    connect_workers(settings)


def test_as_many_worlds_go_on_as_there_are(small_world, task, maps) -> None:
    settings = RolloutSettings(num_envs=4, vectorization="serial")
    with pytest.raises(UserError, match=r"3 worlds to go on with, but rollout.num_envs is 4"):
        make_groups(AGENT, small_world, task, settings, maps, first_episodes(7, 3))
