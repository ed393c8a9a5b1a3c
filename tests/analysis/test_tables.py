"""Small parts of the analysis: text of tables and shares, lives and means over them, and the game's materials."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nmmo.lib import material

from activation_store.schema import LIFE_KEY, Records
from analysis.lives import lives_of, rolling_mean
from analysis.materials import HARVESTED, MATERIALS, PALETTE
from analysis.tables import tab_separated, tab_separated_lines
from common.number_text import share_text
from tests.planted import planted_dump


def test_rows_stand_under_their_names_which_stand_even_without_rows() -> None:
    rows = [{"name": "a", "value": 0.5, "count": 3}, {"name": "b", "value": float("nan"), "count": None}]
    assert tab_separated(rows) == "name\tvalue\tcount\na\t0.5\t3\nb\t\t\n"
    assert tab_separated_lines(("name", "value"), []) == "name\tvalue\n"
    assert tab_separated_lines(("name", "value"), [("a", "0.5000"), ("b", "")]) == "name\tvalue\na\t0.5000\nb\t\n"


def test_neither_nothing_nor_all_reads_as_either() -> None:
    shares = (0, 144 / 333_570, 0.0005, 0.25, 0.9995, 333_569 / 333_570, 1)
    assert [share_text(share) for share in shares] == ["0.0%", "<0.1%", "0.1%", "25.0%", ">99.9%", ">99.9%", "100.0%"]


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
    with pytest.raises(ValueError, match="must be odd"):  # a window without a centre
        rolling_mean(values, lives_of(records), window - 1)


GAME = {one.index: one for one in material.All}


def test_materials_are_exactly_the_games() -> None:
    assert {m.number: m.name for m in MATERIALS} == {number: item.tex for number, item in GAME.items()}
    assert [m.number for m in MATERIALS] == list(range(len(GAME)))
    assert PALETTE.shape == (len(GAME), 3) and len(np.unique(PALETTE, axis=0)) == len(GAME)
    left = {number: item.deplete.index for number, item in GAME.items() if hasattr(item, "deplete")}
    assert {m.number: m.leaves for m in MATERIALS if m.leaves is not None} == left
    assert all(HARVESTED[number] == left.get(number, number) for number in GAME)
