"""Lives: one agent in one episode, from spawn to death. Computations over time never cross from one life to another."""

from dataclasses import dataclass

import numpy as np

from activation_store.lives import Places, number_lives, number_rows, places_of
from activation_store.records import Records
from activation_store.schema import LIFE_KEY


@dataclass(frozen=True)
class Lives:
    """Which life each record belongs to, and the order of ticks within it. B records, L lives."""

    index: np.ndarray  # the life of each record, (B,) int64 in [0, L)
    order: np.ndarray
    """Records sorted by life, then tick, (B,) int64; life i owns order[starts[i] : starts[i] + lengths[i]]."""
    starts: np.ndarray  # (L,) int64
    lengths: np.ndarray  # records in each life, (L,) int64

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def index_in_order(self) -> np.ndarray:
        """The life at each position in `order`, (B,) int64, non-decreasing."""
        return self.index[self.order]

    def of_records(self, kept: np.ndarray) -> "Lives":
        """Return the lives of the records marked in `kept`, (B,) bool; lives without any are left out."""
        ordered = kept[self.order]
        place = np.cumsum(kept) - 1
        lives, lengths = np.unique(self.index_in_order[ordered], return_counts=True)
        index = np.searchsorted(lives, self.index[kept])
        return Lives(index, place[self.order[ordered]], np.cumsum(lengths) - lengths, lengths)


def lives_of(records: Records) -> Lives:
    """Find the lives of records in any order."""
    return lives_at(places_of(records))


def lives_at(places: Places) -> Lives:
    """Find the lives of agent-ticks in any order."""
    _, index = number_lives(places)
    lengths = np.bincount(index)
    order = np.lexsort((places["tick"], index))
    return Lives(index, order, np.cumsum(lengths) - lengths, lengths)


def previous_tick(records: Records, lives: Lives) -> np.ndarray:
    """Return the index of the same life's record one tick before each record, -1 if none, (B,) int64."""
    earlier, later = lives.order[:-1], lives.order[1:]
    follows = (lives.index[earlier] == lives.index[later]) & (records.tick[earlier] + 1 == records.tick[later])
    previous = np.full(len(lives.index), -1)
    previous[later[follows]] = earlier[follows]
    return previous


def places_among(wanted: Places, there: Places) -> np.ndarray:
    """Return the position of each agent-tick among others, -1 if it is missing: (B,) int64.

    Args:
        wanted: the columns of `LIFE_KEY` and tick, (B,) each.
        there: the same columns, (N,) each, without duplicate agent-ticks.
    """
    example, number = number_rows([np.concatenate([there[name], wanted[name]]) for name in (*LIFE_KEY, "tick")])
    size = len(there["tick"])
    place = np.full(len(example), -1)
    place[number[:size]] = np.arange(size)
    return place[number[size:]]


def rolling_mean(values: np.ndarray, lives: Lives, window: int = 5) -> np.ndarray:
    """Average each record with its neighbours in the same life, half a window to either side, in order of ticks.

    At the ends of a life the average is over the neighbours that exist.

    Args:
        values: (B, columns).
        window: records, odd.

    Returns:
        (B, columns) float64, in the order of `values`.

    Raises:
        ValueError: the window is even or below 1.
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"the window is {window}: it must be odd, so that it has a centre")
    ordered = values[lives.order].astype(np.float64)
    life = lives.index_in_order
    total, count = ordered.copy(), np.ones(len(ordered))
    for shift in range(1, window // 2 + 1):
        same_life = life[shift:] == life[:-shift]
        total[shift:] += np.where(same_life[:, None], ordered[:-shift], 0.0)
        total[:-shift] += np.where(same_life[:, None], ordered[shift:], 0.0)
        count[shift:] += same_life
        count[:-shift] += same_life
    means = np.empty_like(total)
    means[lives.order] = total / count[:, None]
    return means
