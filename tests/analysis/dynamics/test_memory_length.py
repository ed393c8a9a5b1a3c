"""Effects of replaced memories, in groups of decisions whose effects were planted."""

import numpy as np
import pytest

from analysis.dynamics.memory_length import PHASES, MemoryLength, memory_use

LIVES, EACH = 40, 30


@pytest.fixture
def length() -> MemoryLength:
    """In behaviour 1 the memory counts three times as much as in behaviour 0; the value goes with age instead."""
    random = np.random.default_rng(0)
    noise = random.uniform(0.5, 1.5, (LIVES * EACH, 3))
    strength = np.where(behaviour() == 1, 3.0, 1.0)
    whole = np.stack([strength * noise[:, 0], age() * noise[:, 1]], axis=1)
    effects = whole[:, :, None] * [0.5, 0.1]  # (n, 2, L)
    return MemoryLength(np.array([1, 4]), effects[:, 0], effects[:, 1], whole, np.repeat(np.arange(LIVES), EACH))


def behaviour() -> np.ndarray:
    return np.tile(np.repeat([0, 1], EACH // 2), LIVES)


def age() -> np.ndarray:
    return np.tile(np.random.default_rng(1).permutation(EACH), LIVES)


def test_effects_are_those_of_the_group(length: MemoryLength) -> None:
    rows = {(row.group, row.outcome, row.ticks_ago): row for row in memory_use(length, behaviour(), age())}
    assert len(rows) == (1 + 2 + 3) * 2 * 3
    for group, outcome, wanted in (
        ("all", "kl", 2.0), ("behaviour 0", "kl", 1.0), ("behaviour 1", "kl", 3.0), (PHASES[0], "value", 4.5),
        (PHASES[2], "value", 24.5),
    ):  # fmt: skip
        row = rows[group, outcome, 0]
        assert row.value == pytest.approx(wanted, rel=0.05) and row.low < wanted < row.high
        assert row.replaced == "whole memory" and row.lives == LIVES
        for ticks, left in ((1, 0.5), (4, 0.1)):
            assert rows[group, outcome, ticks].value == pytest.approx(left * row.value)
            assert rows[group, outcome, ticks].replaced == "observation"
    assert (rows[PHASES[2], "kl", 0].first_tick, rows[PHASES[2], "kl", 0].last_tick) == (20, 29)


def test_few_lives_have_no_interval(length: MemoryLength) -> None:
    few = length.life < 4
    some = MemoryLength(length.ticks, length.divergence[few], length.value[few], length.whole[few], length.life[few])
    assert all(np.isnan([row.low, row.high]).all() for row in memory_use(some, behaviour()[few], age()[few]))
