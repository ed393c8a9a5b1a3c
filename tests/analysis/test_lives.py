"""Lives are distinguished, and computations over time do not cross from one life to another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activation_store.schema import LIFE_KEY, Records
from analysis.lives import lives_of, rolling_mean
from tests.planted import planted_dump


def life_names(records: Records) -> list[tuple[int, ...]]:
    return [tuple(life) for life in np.stack([getattr(records, name) for name in LIFE_KEY], axis=1).tolist()]


@pytest.fixture(scope="module")
def records() -> Records:
    shuffled = planted_dump(agents=4, episodes=3, ticks=15).records
    return shuffled.take(np.random.default_rng(0).permutation(len(shuffled)))


def test_lives_are_agents_in_episodes_and_their_order_runs_through_each_in_ticks(records: Records) -> None:
    lives = lives_of(records)
    names = life_names(records)
    assert len(lives) == len(set(names))
    assert len(set(zip(names, lives.index.tolist(), strict=True))) == len(lives)
    assert sorted(lives.order.tolist()) == list(range(len(records)))
    for life, (start, length) in enumerate(zip(lives.starts, lives.lengths, strict=True)):
        members = lives.order[start : start + length]
        assert (lives.index[members] == life).all() and (np.diff(records.tick[members]) > 0).all()


@settings(max_examples=25)
@given(window=st.sampled_from([1, 3, 5, 9, 31]), seed=st.integers(0, 100))
def test_rolling_mean_equals_a_plain_loop(records: Records, window: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(len(records), 2))
    names = life_names(records)
    expected = np.empty_like(values)
    for i, name in enumerate(names):
        life = sorted((records.tick[j], j) for j in range(len(records)) if names[j] == name)
        place = next(place for place, (_, j) in enumerate(life) if j == i)
        near = [j for _, j in life[max(0, place - window // 2) : place + window // 2 + 1]]
        expected[i] = values[near].mean(axis=0)
    np.testing.assert_allclose(rolling_mean(values, lives_of(records), window), expected, atol=1e-12)


@pytest.mark.parametrize("window", [0, 2, -1])
def test_a_window_without_a_centre_is_refused(records: Records, window: int) -> None:
    with pytest.raises(ValueError, match="must be odd"):
        rolling_mean(np.zeros((len(records), 1)), lives_of(records), window)
