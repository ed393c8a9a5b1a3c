"""Several policies in one world of the real game: seats, restrictions, memories, and reproducible episodes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.observation import ObservationLayout, pack
from reinforcement_learning.game.environment import Kind, make_environment, make_shared_world
from reinforcement_learning.game.task_encoder import encode_task
from reinforcement_learning.game.tasks import offered_tasks
from reinforcement_learning.play.entrants import Entrant, shared_tasks, with_own_tasks
from reinforcement_learning.play.policy_pool import PolicyPool, seats
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.command import assert_refuses
from tests.conftest import random_legal_actions
from tests.tiny_policies import tiny_entrant

CPU = torch.device("cpu")
NO_GIVING = {"takeru", "yaofeng"}


@pytest.fixture(scope="module")
def entrants(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> list[Entrant]:
    """Three architectures: with one, two and no LSTM layers."""
    agents = (("neurips23_start_kit", 1), ("yaofeng", 2), ("takeru", 0))
    return [
        tiny_entrant(small_world, task, maps, agent, hidden_size=32, lstm_layers=layers) for agent, layers in agents
    ]


@pytest.fixture(scope="module")
def pool(entrants: list[Entrant], small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> PolicyPool:
    return PolicyPool(entrants, small_world, task, maps, CPU, worlds=2)


@pytest.mark.parametrize("agent", ["neurips23_start_kit", "yaofeng"])
def test_a_world_shared_by_one_kind_is_the_world_of_that_kind(
    agent: str, small_world: EnvironmentSettings, task: TaskSettings, maps: Path, layout: ObservationLayout
) -> None:
    alone = make_environment(agent, small_world, task, maps)
    shared = make_shared_world([Kind(agent)], small_world, task, maps, offered_tasks(task, small_world)).world
    random = np.random.default_rng(0)
    for world in (alone, shared):
        world.reset(seed=3)
    ticks = 0
    while not alone.done:
        assert np.array_equal(alone.obs, shared.obs)
        actions = random_legal_actions(alone.obs.view(alone.obs_dtype)[:, 0], layout, random)
        _, *answer = alone.step(actions)
        _, *shared_answer = shared.step(actions)
        assert answer[:3] == shared_answer[:3]
        assert answer[3].get("lives") == shared_answer[3].get("lives")
        ticks += 1
    assert shared.done and ticks > 20


def test_every_agent_is_held_to_the_restrictions_of_its_own_policy(pool: PolicyPool) -> None:
    """All have gold from the start: in a short game hardly anyone gets any."""
    pool.start(seed=1, numbers=[0, 1])
    for shared in pool.shared:
        for player in shared.world.game.realm.players.values():
            player.gold.update(30)
    free = restricted = 0
    while not pool.is_over:
        targets = pool.arrival.observations["ActionTargets"]["GiveGold"]["Target"]
        for slot in np.flatnonzero(pool.arrival.acting):
            may_give = targets[slot, :-1].any()
            if pool.entrants[pool.entrant_of[slot]].info.agent in NO_GIVING:
                assert not may_give
                restricted += 1
            else:
                free += may_give
        pool.step()
    assert free and restricted


def test_every_policy_remembers_its_own_living_agents_only(pool: PolicyPool) -> None:
    pool.start(seed=1, numbers=[0, 1])
    for _ in range(30):
        acting = pool.arrival.acting
        pool.step()
        for index, memory in enumerate(pool.memories):
            remembers = memory.hidden.abs().sum(dim=(0, 2)).numpy() > 0  # (slots,)
            expected = acting & (pool.entrant_of == index) & (len(memory.hidden) > 0)
            assert np.array_equal(remembers, expected)
    assert not acting.all()


def test_a_decision_needs_only_what_the_policy_itself_has_seen(pool: PolicyPool, entrants: list[Entrant]) -> None:
    """The memory after some ticks depends only on the policy and its agents' observations."""
    pool.start(seed=2, numbers=[0, 1])
    mine = np.flatnonzero(pool.entrant_of == 0)
    policy, memory = entrants[0].policy, entrants[0].policy.initial_state(len(mine))
    for _ in range(5):
        seen = pack(pool.arrival.observations[mine], pool.layout)
        pool.step()
        with torch.no_grad():
            *_, memory = policy(seen, memory)
    torch.testing.assert_close(pool.memories[0].hidden[:, mine], memory.hidden, rtol=1e-5, atol=1e-6)


def test_seats_are_shared_evenly_and_lives_are_counted_for_who_lived_them(pool: PolicyPool) -> None:
    for episode in pool.play(6, [0, 1]):
        lived = sorted(life.agent_id for lives in episode.lives for life in lives)
        assert lived == list(range(1, 17))
        seated = seats(6, episode.number, 16, 3)
        for index, lives in enumerate(episode.lives):
            assert sorted(life.agent_id for life in lives) == (np.flatnonzero(seated == index) + 1).tolist()
    drawn = [seats(0, number, 128, 3) for number in range(30)]
    counts = np.array([np.bincount(item, minlength=3) for item in drawn])
    assert set(counts.ravel()) == {42, 43} and len(set(counts.sum(axis=0))) == 1
    assert np.mean(drawn[0] == drawn[3]) < 0.6
    # Seats are random: no entrant holds the same seat more often than chance allows.
    often = np.stack([seats(0, number, 8, 2) for number in range(400)]).mean(axis=0)
    assert np.all(np.abs(often - 0.5) < 0.12)


def test_each_policy_is_told_its_tasks_as_it_was_trained_to_know_them(
    entrants: list[Entrant], small_world: EnvironmentSettings, task: TaskSettings, maps: Path
) -> None:
    other = replace(tiny_entrant(small_world, replace(task, embedding_size=24), maps), name="other")
    tasks = shared_tasks([other, *entrants], replace(task, embedding_size=8))
    assert tasks == replace(task, embedding_size=16)
    others = shared_tasks(entrants, TaskSettings(curriculum="evaluation", only="3"))
    assert (others.embedding_size, others.curriculum, others.only) == (16, "evaluation", "3")
    together = with_own_tasks([entrants[0], other], tasks, small_world)
    assert together[0].own_tasks is None
    pool = PolicyPool(together, small_world, tasks, maps, CPU, worlds=2)
    specs = {spec.name: spec for spec in offered_tasks(tasks, small_world)}
    pool.start(seed=1, numbers=[0, 1])
    for choice in pool.decide():
        size = (16, 24)[choice.entrant]
        for slot, output in zip(choice.decision.present, choice.decision.observation.task.numpy(), strict=True):
            world, agent = divmod(int(slot), pool.agents)
            name = pool.shared[world].world.game.agent_task_map[agent + 1][0].spec_name
            assert np.array_equal(output, encode_task(specs[name], size))
    pool.advance(list(pool.decide()))
    entrants = [entrants[0], replace(other, own_tasks=None)]
    message = "other was trained in a world whose task_size is 24, not 16"
    assert_refuses(message, PolicyPool, entrants, small_world, tasks, maps, CPU, worlds=1)
