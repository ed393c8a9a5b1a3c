"""Generalised advantages equal those of a plain loop over lives."""

import numpy as np
import pytest

from reinforcement_learning.training.rollout import generalized_advantages

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


def test_death_ends_the_return_and_a_cut_off_does_not() -> None:
    reward = np.ones((1, 2), dtype=np.float32)
    value = np.array([[0.0, 0.0], [0.0, 5.0]], dtype=np.float32)  # the second slot was cut off while worth 5
    acting = np.array([[True, True], [False, False]])
    assert generalized_advantages(reward, value, acting, GAMMA, LAMBDA).tolist() == [[1.0, 1.0 + GAMMA * 5.0]]
