"""Worlds on a local Ray cluster play the same as worlds in this process, and report lost workers."""

import functools
import logging
from pathlib import Path

import numpy as np
import psutil
import pytest

from common.user_error import UserError
from reinforcement_learning.game.environment import make_environment
from reinforcement_learning.game.vectorization import RayWorlds, first_episodes, make_worlds
from reinforcement_learning.settings import RolloutSettings
from tests.conftest import AGENT, random_legal_actions

ray = pytest.importorskip("ray")
ON_RAY = RolloutSettings(num_envs=4, num_workers=2, vectorization="ray")
SERIAL = RolloutSettings(num_envs=4, vectorization="serial")


@pytest.fixture(scope="module")
def cluster():
    """Three cores, of which `on_ray` uses two, and memory for a few observations."""
    ray.shutdown()  # a training in this process may have left its cluster to the end of the process
    ray.init(
        address="local", num_cpus=3, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False,
        logging_level=logging.ERROR,
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture
def on_ray(cluster, small_world, task, maps):
    worlds = make_worlds(AGENT, small_world, task, ON_RAY, maps, first_episodes(7, 4))
    yield worlds
    worlds.close()


@pytest.mark.slow
def test_an_error_in_a_tick_is_not_lost(on_ray, layout) -> None:
    on_ray.async_reset()
    on_ray.recv()
    on_ray.send(np.full((on_ray.agents_per_batch, len(layout.heads)), 9_999))
    with pytest.raises(ray.exceptions.RayTaskError, match="Actions do not match action space"):
        on_ray.recv()


@pytest.mark.slow
def test_play_what_worlds_in_this_process_play(on_ray, layout, small_world, task, maps) -> None:
    in_process = make_worlds(AGENT, small_world, task, SERIAL, maps, first_episodes(7, 4))
    random = np.random.default_rng(0)
    assert on_ray.agents_per_batch == in_process.agents_per_batch == 4 * small_world.num_agents
    dtype = on_ray.emulated.emulated_observation_dtype
    assert dtype == in_process.emulated.emulated_observation_dtype
    episodes = lives = 0
    for worlds in (on_ray, in_process):
        worlds.async_reset()
    for _ in range(small_world.horizon + 6):
        sent, expected = on_ray.recv(), in_process.recv()
        for own, other in zip(sent, expected, strict=True):
            same = np.array_equal(own, other) if isinstance(own, np.ndarray) else repr(own) == repr(other)
            assert same, "worlds on Ray play otherwise"
        episodes += sum("episode" in info for info in sent[4])
        lives += sum(len(info.get("lives", ())) for info in sent[4])
        actions = random_legal_actions(sent[0].view(dtype)[:, 0], layout, random)
        for worlds in (on_ray, in_process):
            worlds.send(actions)
    in_process.close()
    assert episodes > 4 and lives >= 64, "no world was played to its end: later episodes were not compared"


@pytest.mark.slow
def test_more_workers_than_cores_and_maps_that_a_worker_does_not_see_are_refused(
    cluster, small_world, task, maps, tmp_path: Path
) -> None:
    many = RolloutSettings(num_envs=4, num_workers=4, vectorization="ray")
    with pytest.raises(UserError, match=r"needs 4 cores .* cluster has 3: lower --rollout.num-workers 4"):
        make_worlds(AGENT, small_world, task, many, maps, first_episodes(7, 4))
    creator = functools.partial(make_environment, AGENT, small_world, task, maps)
    with pytest.raises(UserError, match=r"does not see the maps in .*elsewhere: put --env.maps-dir on a file system"):
        RayWorlds([creator], num_workers=1, maps=tmp_path / "elsewhere")


@pytest.mark.slow
def test_a_killed_worker_is_noticed(on_ray, layout) -> None:
    on_ray.async_reset()
    on_ray.recv()
    (victim, *_) = [
        item for item in psutil.Process().children(recursive=True) if item.name().startswith("ray::_Worker")
    ]
    victim.kill()
    actions = np.zeros((on_ray.agents_per_batch, len(layout.heads)), dtype=np.int64)
    with pytest.raises(UserError, match=r"a Ray worker ended .*last checkpoint is good"):
        for _ in range(100):
            on_ray.send(actions)
            on_ray.recv()
