"""Which records of each life are kept, drawn independently for each life; the fast grouping by life equals numpy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from activation_store.lives import life_keys, number_lives, number_rows, rank_in_life
from activation_store.schema import LIFE_KEY
from activation_store.selection import Subsample
from tests.command import assert_refuses

LIVES = np.array([(slot, agent, episode) for slot in range(4) for agent in range(1, 129) for episode in range(8)])


def test_the_first_record_kept_is_drawn_evenly_and_depends_on_seed_and_life_alone() -> None:
    first = Subsample(10, skip_first=3, seed=42).first_kept(LIVES)
    counts = np.bincount(first, minlength=13)
    assert (counts[:3] == 0).all() and len(counts) == 13
    expected = len(LIVES) / 10
    assert ((counts[3:] - expected) ** 2 / expected).sum() < 27.9  # chi-squared with 9 degrees of freedom, p = .001
    subsample = Subsample(10, skip_first=1, seed=7)
    first, order = subsample.first_kept(LIVES), np.random.default_rng(0).permutation(len(LIVES))
    np.testing.assert_array_equal(subsample.first_kept(LIVES[order]), first[order])
    assert [int(subsample.first_kept(life[None])[0]) for life in LIVES[:20]] == first[:20].tolist()
    assert (Subsample(10, skip_first=1, seed=8).first_kept(LIVES) != first).mean() > 0.8
    # Fixed values, so that saved runs keep their records in later versions.
    assert subsample.first_kept(LIVES[:6]).tolist() == [3, 7, 2, 7, 7, 10]


@pytest.mark.parametrize("column", [0, 1, 2])
def test_lives_that_differ_in_one_number_only_draw_independently(column: int) -> None:
    """Neighbouring agents, episodes or slots must not be a fixed number of ticks apart."""
    neighbours = LIVES.copy()
    neighbours[:, column] += 1
    ours, theirs = (Subsample(10, seed=1).first_kept(lives) for lives in (LIVES, neighbours))
    counts = np.bincount((theirs - ours) % 10, minlength=10)
    expected = len(LIVES) / 10
    assert ((counts - expected) ** 2 / expected).sum() < 27.9


@pytest.mark.parametrize(
    ("subsample", "words"),
    [
        (Subsample(), "all of each life"),
        (Subsample(1, 2), "all of each life after its first 2 ticks"),
        (Subsample(10), "one in 10 of each life, from a random tick on"),
        (Subsample(10, 1), "one in 10 of each life, from a random tick on after its first tick"),
    ],
)
def test_it_says_in_words_what_is_kept(subsample: Subsample, words: str) -> None:
    assert subsample.in_words() == words
    assert subsample.keeps_all == (words == "all of each life")


@pytest.mark.parametrize("subsample", [Subsample(0), Subsample(1, -1), Subsample(1, 0, -1), Subsample(1, 0, 2**32)])
def test_impossible_values_are_refused(subsample: Subsample) -> None:
    assert_refuses(r"^--(subsample|skip-first|seed) is -?\d+: must be", subsample.check)


small = arrays.arrays(np.int64, st.tuples(st.integers(0, 40), st.just(3)), elements=st.integers(-3, 3))


@given(small)
def test_rows_are_numbered_as_numpy_numbers_them(rows: np.ndarray) -> None:
    distinct, expected = np.unique(rows, axis=0, return_inverse=True)
    example, number = number_rows(list(rows.T))
    np.testing.assert_array_equal(number, expected.reshape(-1))
    np.testing.assert_array_equal(rows[example], distinct)


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 40), st.just(3)), elements=st.integers(0, 2**60)))
def test_large_identities_do_not_overflow(rows: np.ndarray) -> None:
    places = dict(zip(LIFE_KEY, rows.T, strict=True))
    lives, life = number_lives(places)
    np.testing.assert_array_equal(lives[life], life_keys(places))
    np.testing.assert_array_equal(lives, np.unique(rows, axis=0))


def test_ranks_count_within_a_life_and_refuse_ticks_that_fall() -> None:
    life = np.array([1, 0, 1, 1, 0])
    np.testing.assert_array_equal(rank_in_life(life, np.array([3, 9, 4, 7, 10])), [0, 0, 1, 2, 1])
    with pytest.raises(ValueError, match="do not increase"):
        rank_in_life(life, np.array([3, 9, 3, 7, 10]))
