"""The fast grouping of records by life equals numpy's grouping of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from activation_store.lives import life_keys, number_lives, number_rows, rank_in_life
from activation_store.schema import LIFE_KEY

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
