"""A rollout holds only living agents, starts each life with empty memory, and has segments that replay exactly."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import agent_zoo
from agent_zoo.observation import legal_options
from reinforcement_learning.game.vectorization import first_episodes, make_groups
from reinforcement_learning.play.stepper import Decision, EpisodeJournal, Stepper, Stopwatch, reset
from reinforcement_learning.settings import RolloutSettings
from reinforcement_learning.training.rollout import RolloutCollector, generalized_advantages
from tests.conftest import AGENT

HORIZON = 8


@pytest.fixture(scope="module")
def policy(layout):
    torch.manual_seed(3)
    module = agent_zoo.load(AGENT)
    return module.Recurrent(module.Policy(layout, hidden_size=32))


@pytest.fixture(scope="module")
def rollout(policy, layout, small_world, task, maps):
    """About 3,000 decisions in two worlds of 16 agents: several episodes, most agents die in them."""
    with collector(policy, layout, small_world, task, maps, first_episodes(0, 2)) as both:
        return both.collect(3_000, on_tick=lambda _: None)


class CountingStepper(Stepper):
    """Counts the decisions of its worlds."""

    decisions = 0

    def begin(self, decision: Decision, actions: np.ndarray) -> None:
        self.decisions += int(decision.acting.sum())
        super().begin(decision, actions)


@contextmanager
def collector(
    policy, layout, small_world, task, maps, starts, gamma: float = 0.99, gae_lambda: float = 0.95
) -> Iterator[RolloutCollector]:
    """Worlds that start at the given places: one, or two groups of one."""
    settings = RolloutSettings(num_envs=len(starts), vectorization="serial")
    groups = make_groups(AGENT, small_world, task, settings, maps, starts)
    steppers = [
        CountingStepper(worlds, policy, layout, Stopwatch(), EpisodeJournal([start]))
        for worlds, start in zip(groups, starts, strict=True)
    ]
    try:
        reset(steppers)
        yield RolloutCollector(steppers, HORIZON, gamma, gae_lambda)
    finally:
        for worlds in groups:
            worlds.close()


@pytest.fixture
def threads(request) -> Iterator[int]:
    """As many threads of torch's as the test's parameter says."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [4], indirect=True)
def test_each_group_has_its_share_of_the_threads_until_the_end(
    threads: int, policy, layout, small_world, task, maps
) -> None:
    seen = []

    def on_tick(decisions: int) -> None:
        seen.append(torch.get_num_threads())
        if len(seen) == 4:
            raise InterruptedError

    with collector(policy, layout, small_world, task, maps, first_episodes(0, 2)) as both:
        with pytest.raises(InterruptedError):
            both.collect(1_000, on_tick)
        assert seen == [2, 2, 2, 2] and torch.get_num_threads() == threads


@pytest.mark.parametrize("threads", [1], indirect=True)  # of more, a single group would use more than each of two
@pytest.mark.usefixtures("threads")
def test_groups_that_take_turns_play_as_each_would_alone(policy, layout, small_world, task, maps) -> None:
    starts = first_episodes(0, 2)
    with collector(policy, layout, small_world, task, maps, starts) as both:
        rollout = both.collect(1_500, on_tick=lambda _: None)
        counts = [stepper.decisions for stepper in both.steppers]
    assert sum(counts) == len(rollout) and min(counts) > 300
    alone = []
    for start, count in zip(starts, counts, strict=True):
        with collector(policy, layout, small_world, task, maps, [start]) as one:
            alone.append(one.collect(count, on_tick=lambda _: None))
    assert [len(item) for item in alone] == counts
    for name in ("action", "log_probability", "value", "advantage", "lengths"):
        assert torch.equal(getattr(rollout, name), torch.cat([getattr(item, name) for item in alone])), name
    assert torch.equal(rollout.observation.material, torch.cat([item.observation.material for item in alone]))
    assert torch.equal(rollout.state.cell, torch.cat([item.state.cell for item in alone], dim=1))
    assert torch.equal(rollout.order, torch.cat([alone[0].order, alone[1].order + counts[0]]))
    assert rollout.lives == [life for item in alone for life in item.lives]


def test_holds_legal_decisions_of_living_agents_and_lives_as_long_as_their_decisions(
    rollout, small_world, layout
) -> None:
    """In a world played from its start, the lengths of ended lives equal their agents' numbers of decisions."""
    assert len(rollout) >= 3_000
    assert len(rollout.lives) > 32, "no world was played to its end: later episodes were not tested"
    assert rollout.lengths.sum() == len(rollout)
    assert rollout.lengths.max() == HORIZON and rollout.lengths.min() < HORIZON
    first_episode = rollout.lives[: small_world.num_agents]
    assert all(1 <= life.ticks <= small_world.horizon for life in first_episode)
    ended = sum(life.ticks for life in rollout.lives)
    assert ended <= len(rollout) <= ended + 2 * small_world.num_agents * small_world.horizon
    legal = legal_options(rollout.observation, layout).split([head.size for head in layout.heads], dim=1)
    for column, allowed in enumerate(legal):
        assert allowed.gather(1, rollout.action[:, column : column + 1]).all()
    own = rollout.observation.entity.values[:, 0] == rollout.observation.agent_id[rollout.observation.entity.owner]
    assert own.sum() == len(rollout)


def test_segments_are_consecutive_ticks_whose_memory_is_empty_only_when_a_life_begins(rollout) -> None:
    agent, tick = rollout.observation.agent_id[rollout.order], rollout.observation.tick[rollout.order]
    segment = torch.repeat_interleave(torch.arange(len(rollout.lengths)), rollout.lengths)
    same = segment[1:] == segment[:-1]
    assert (agent[1:][same] == agent[:-1][same]).all()
    assert (tick[1:][same] == tick[:-1][same] + 1).all()
    first_rows = rollout.order[torch.cumsum(rollout.lengths, 0) - rollout.lengths]
    newborn = rollout.observation.tick[first_rows] == 0
    assert newborn.sum() > 32
    empty = (rollout.state.hidden == 0).all(dim=2)[0] & (rollout.state.cell == 0).all(dim=2)[0]
    assert torch.equal(empty, newborn)


def test_replaying_the_segments_gives_the_recorded_probabilities_and_values(rollout, policy) -> None:
    longest_first = torch.argsort(rollout.lengths, descending=True, stable=True)
    lengths = rollout.lengths[longest_first]
    starts = torch.cumsum(rollout.lengths, 0) - rollout.lengths
    rows = torch.cat([rollout.order[starts[s] : starts[s] + rollout.lengths[s]] for s in longest_first])
    with torch.no_grad():
        replayed = policy.forward_segments(rollout.observation.take(rows), lengths, rollout.state.take(longest_first))
        log_probability = replayed.distribution.log_probability(rollout.action[rows]).sum(dim=1)
    torch.testing.assert_close(log_probability, rollout.log_probability[rows], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(replayed.value, rollout.value[rows], atol=2e-5, rtol=1e-5)


def test_undiscounted_returns_of_whole_lives_are_all_their_rewards(policy, layout, small_world, task, maps) -> None:
    """Of the tick that follows each decision: a life's first decision is followed by all of them."""
    with collector(policy, layout, small_world, task, maps, first_episodes(0, 1), 1.0, 1.0) as worlds:
        rollout = worlds.collect(1_500, on_tick=lambda _: None)
    firsts = rollout.order[torch.cumsum(rollout.lengths, 0) - rollout.lengths]  # of each segment
    begins = rollout.state.hidden.abs().sum(dim=(0, 2)) == 0  # segments that begin a life have an empty memory
    returns = (rollout.advantage + rollout.value)[firsts[begins]].numpy()
    rewards = np.array([life.total_reward for life in rollout.lives if life.died])
    assert len(rewards) > 16 and np.std(rewards) > 0
    assert np.abs(returns[:, None] - rewards).min(axis=0).max() < 1e-4


GAMMA, LAMBDA = 0.9, 0.8


def by_loop(reward, value, acting, gamma, gae_lambda):
    """The definition, one decision at a time: the discounted sum of one-tick differences until the life ends."""
    ticks, slots = reward.shape
    advantage = np.full(reward.shape, np.nan)
    for slot in range(slots):
        for start in range(ticks):
            if not acting[start, slot]:
                continue
            total, weight, tick = 0.0, 1.0, start
            while tick < ticks and acting[tick, slot]:
                total += weight * (reward[tick, slot] + gamma * value[tick + 1, slot] - value[tick, slot])
                weight *= gamma * gae_lambda
                tick += 1
            advantage[start, slot] = total
    return advantage


@pytest.mark.parametrize("seed", range(5))
def test_equals_plain_loop_with_deaths_and_cut_offs_in_mid_rollout(seed: int) -> None:
    random = np.random.default_rng(seed)
    ticks, slots = 40, 12
    acting = random.random((ticks + 1, slots)) < 0.85
    acting[:, 0] = True  # one that survives
    cut_off = ~acting & (random.random(acting.shape) < 0.3)  # present but not acting: its value still counts
    value = np.where(acting | cut_off, random.normal(size=acting.shape), 0).astype(np.float32)
    reward = random.normal(size=(ticks, slots)).astype(np.float32)
    expected = by_loop(reward, value, acting, GAMMA, LAMBDA)
    computed = generalized_advantages(reward, value, acting, GAMMA, LAMBDA)
    assert (~acting[1:-1]).any(axis=0).sum() >= slots - 1
    np.testing.assert_allclose(computed[acting[:-1]], expected[acting[:-1]], rtol=1e-4, atol=1e-5)
