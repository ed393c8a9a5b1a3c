"""Later ticks of the same life, for records of every tick of whole lives; nothing crosses from one life to another."""

import numpy as np

from analysis.lives import Lives


def last_places(lives: Lives) -> np.ndarray:
    """Return the position in `lives.order` of the last record of each position's life, (B,) int64."""
    return np.repeat(lives.starts + lives.lengths - 1, lives.lengths)


def record_in(ticks: int, lives: Lives) -> np.ndarray:
    """Return the index of each record's life `ticks` later, -1 if the life has no such record, (B,) int64."""
    place = np.arange(len(lives.order)) + ticks
    there = place <= last_places(lives)
    found = np.full(len(place), -1)
    found[lives.order[there]] = lives.order[place[there]]
    return found


def next_record(happened: np.ndarray, lives: Lives) -> np.ndarray:
    """Return the index of the life's next record, after each record, where something happened: (B,) bool to int64.

    -1 where it does not happen again in the life.
    """
    size = len(lives.order)
    place = np.where(happened[lives.order], np.arange(size), size)
    # Positions of the next event at or after each position; the event at the position itself is not in its future.
    following = np.append(np.minimum.accumulate(place[::-1])[::-1], size)[1:]
    there = following <= last_places(lives)
    found = np.full(size, -1)
    found[lives.order[there]] = lives.order[following[there]]
    return found


def at(records: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values at the given records, NaN for those that are -1: (B,) int64 and (N,) to (B,) float64."""
    return np.where(records >= 0, values[records].astype(np.float64), np.nan)
