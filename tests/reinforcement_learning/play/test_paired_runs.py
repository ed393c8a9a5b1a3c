"""Runs of the real game that differ in one agent are paired: all others get the same random numbers, of Philox."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.stepper import RANDOM_ACTIONS, Moment, action_noise
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from tests.tiny_policies import tiny_entrant

CPU = torch.device("cpu")
SEED, NUMBERS = 4, (2, 3)
SLOT = 3  # the agent whose actions are overridden

MakePool = Callable[..., PolicyPool]
Change = Callable[[Sequence[EntrantActions]], list[EntrantActions]]


@dataclass(frozen=True)
class Tick:
    """One tick of a pool."""

    noise: np.ndarray  # the random numbers behind the actions, (slots, heads)
    seen: tuple[bytes, ...]  # each slot's observation as bytes; empty for slots that do not act
    actions: np.ndarray  # chosen, (slots, heads); -1 for slots that do not act


@pytest.fixture(scope="module")
def make_pool(small_world: EnvironmentSettings, task: TaskSettings, maps: Path) -> MakePool:
    """Build a pool of two entrants, the first with weights of the given seed."""

    def make(seed: int = 0, worlds: int = 2) -> PolicyPool:
        seeds = {"first": seed, "second": 9}
        entrants = [replace(tiny_entrant(small_world, task, maps, seed=seeds[name]), name=name) for name in seeds]
        return PolicyPool(entrants, small_world, task, maps, CPU, worlds)

    return make


@pytest.fixture(scope="module")
def pool(make_pool: MakePool) -> PolicyPool:
    return make_pool()


def played(pool: PolicyPool, change: Change = list) -> list[Tick]:
    """Play two episodes in parallel; `change` may replace the actions before they are played."""
    pool.start(SEED, NUMBERS)
    ticks = []
    while not pool.is_over:
        acting, noise = pool.arrival.acting, pool.action_noise()
        seen = tuple(
            row.tobytes() if acts else b"" for row, acts in zip(pool.arrival.observations, acting, strict=True)
        )
        actions = np.full((pool.slots, len(pool.layout.heads)), -1)
        choices = change(list(pool.decide()))
        for choice in choices:
            actions[choice.decision.present] = choice.action
        pool.advance(choices)
        ticks.append(Tick(noise, seen, actions))
    return ticks


@pytest.fixture(scope="module")
def run(pool: PolicyPool) -> list[Tick]:
    return played(pool)


def overridden(choices: Sequence[EntrantActions]) -> list[EntrantActions]:
    """Make one agent choose option 0 in every head."""
    done = []
    for choice in choices:
        action = choice.action.clone()
        action[choice.decision.present == SLOT] = 0
        done.append(replace(choice, action=action))
    return done


def assert_paired(run: list[Tick], other: list[Tick], unchanged: np.ndarray) -> None:
    """Check that all random numbers are equal, and that agents with the same observations so far act the same.

    Args:
        run: one run.
        other: the same, with some agents changed.
        unchanged: slots of all other agents.
    """
    assert not np.array_equal(run[0].actions, other[0].actions), "nothing was changed"
    seen_the_same = np.ones(len(run[0].seen), dtype=bool)
    paired = apart = 0
    for one, two in zip(run, other, strict=False):  # the longer run's last ticks have no partner
        assert np.array_equal(one.noise, two.noise)
        seen_the_same &= [a == b != b"" for a, b in zip(one.seen, two.seen, strict=True)]
        slots = unchanged[seen_the_same[unchanged]]
        assert np.array_equal(one.actions[slots], two.actions[slots])
        paired += len(slots)
        apart += len(unchanged) - len(slots)
    assert paired > 2 * len(unchanged) and apart, "the runs should part, but not at once"


def test_others_keep_their_dice_and_no_number_comes_twice(
    pool: PolicyPool, run: list[Tick], make_pool: MakePool
) -> None:
    for one, two in zip(run, played(pool), strict=True):
        assert one.seen == two.seen
        assert np.array_equal(one.noise, two.noise) and np.array_equal(one.actions, two.actions)
    noise = np.stack([tick.noise for tick in run])
    assert len(run) > 20
    assert len(np.unique(noise)) == noise.size
    assert_paired(run, played(make_pool(seed=1)), np.flatnonzero(pool.entrant_of == 1))
    assert_paired(run, played(pool, overridden), np.delete(np.arange(pool.slots), SLOT))


@pytest.mark.slow
def test_an_episode_is_the_same_alone_and_beside_others_in_any_order(make_pool: MakePool, pool: PolicyPool) -> None:
    second, third = pool.play(SEED, NUMBERS)
    assert pool.play(SEED, (NUMBERS[1], 0))[0] == third
    assert pool.play(SEED, NUMBERS) == [second, third] != pool.play(SEED + 1, NUMBERS)
    alone = make_pool(worlds=1)
    assert alone.play(SEED, NUMBERS[1:]) == [third]
    assert alone.play(SEED, NUMBERS[:1]) == [second]
    assert second.lives != third.lives


WORD = 2**64


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 in plain integers, from section 4.3 of Salmon et al. 2011."""
    for _ in range(10):
        high0, low0 = divmod(counter[0] * 0xD2E7470EE14C6C93, WORD)
        high1, low1 = divmod(counter[2] * 0xCA5A826395121157, WORD)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B97F4A7C15) % WORD, (key[1] + 0xBB67AE8584CAA73B) % WORD]
    return counter


def test_the_numbers_are_those_of_philox_for_their_own_world_tick_agent_and_head() -> None:
    # The first known answer that its authors publish for this generator.
    assert philox([0] * 4, [0] * 2) == [
        0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B
    ]  # fmt: skip
    words = [word for block in (1, 2, 3) for word in philox([block, 7, 5, 0], [4_000_000_000, 0])]
    expected = np.array([(word >> 11) / 2**53 for word in words]).reshape(4, 3)
    assert np.array_equal(action_noise([Moment(4_000_000_000, 5, 7)], agents=4, heads=3), expected)
    moment = Moment(first_seed=3, number=1, tick=9)
    alone = action_noise([moment], agents=16, heads=12)
    assert np.array_equal(action_noise([Moment(8, 0, 2), moment], agents=16, heads=12)[16:], alone)
    assert np.array_equal(action_noise([moment], agents=128, heads=12)[:16], alone)
    others = [Moment(4, 1, 9), Moment(3, 2, 9), Moment(3, 1, 10), Moment(3, 9, 1), Moment(1, 3, 9)]
    tables = [alone, *(action_noise([other], agents=16, heads=12) for other in others)]
    tables.append(action_noise([moment], agents=16, heads=12, stream=RANDOM_ACTIONS))
    assert len(np.unique(tables)) == 7 * 16 * 12
