"""A life is one agent in one episode, from spawn to death: how it is identified and which records belong to it.

All code that groups records by life uses this module, so that a life means the same everywhere.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from activation_store.records import Records
from activation_store.schema import IDENTITY, LIFE_KEY

Life = tuple[int, int, int]
"""Slot, agent and episode, as in `LIFE_KEY`."""

Places = Mapping[str, np.ndarray]
"""Identity of each record: the columns of `LIFE_KEY`, (B,) int64 each, and `tick` where needed."""


def places_of(records: Records) -> dict[str, np.ndarray]:
    """Return the identity of each record: the columns of `IDENTITY`, (B,) int64 each."""
    return {name: getattr(records, name) for name in IDENTITY}


def life_keys(places: Places) -> np.ndarray:
    """Return slot, agent and episode of each record, (B, 3) int64."""
    return np.stack([places[name] for name in LIFE_KEY], axis=1)


def number_lives(places: Places) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct lives, in ascending order, and each record's life.

    Returns:
        Slot, agent and episode of each life, (L, 3) int64; and each record's row in that array, (B,) int64.
    """
    example, number = number_rows([places[name] for name in LIFE_KEY])
    return np.stack([places[name][example] for name in LIFE_KEY], axis=1), number


def number_rows(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct rows of some integer columns, in ascending order.

    Args:
        columns: (B,) each.

    Returns:
        The position of one example of each distinct row, (N,) int64; and the number of each row, (B,) int64.
    """
    # One column at a time: numpy sorts integers many times faster than rows of integers.
    _, number = _numbered(columns[0])
    for column in columns[1:]:
        distinct, place = _numbered(column)
        _, number = _numbered(number * len(distinct) + place)
    example = np.empty(number.max(initial=-1) + 1, np.int64)
    example[number] = np.arange(len(number))
    return example, number


def rank_in_life(life: np.ndarray, tick: np.ndarray) -> np.ndarray:
    """Count the earlier records of the same life for each record.

    Args:
        life: of each record, (B,) int64.
        tick: of each record, (B,) int64.

    Returns:
        (B,) int64.

    Raises:
        ValueError: the ticks of a life do not increase from record to record.
    """
    counts = np.bincount(life)
    order = np.argsort(life.astype(np.min_scalar_type(len(counts))), kind="stable")  # small integers use radix sort
    rank = np.empty(len(life), np.int64)
    rank[order] = np.arange(len(life)) - np.repeat(np.cumsum(counts) - counts, counts)
    if ((np.diff(tick[order]) <= 0) & (np.diff(life[order]) == 0)).any():
        raise ValueError("the ticks of a life do not increase")
    return rank


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct = np.unique(values)
    return distinct, np.searchsorted(distinct, values)  # far faster than `np.unique` with `return_inverse`
