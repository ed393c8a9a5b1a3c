"""Counts, sums and extremes of each record's rows in a table: R rows, B records."""

import numpy as np


def count(marked: np.ndarray, owner: np.ndarray, records: int) -> np.ndarray:
    """Count the marked rows of each record: (R,) bool and (R,) int64 to (B,) int64."""
    return np.bincount(owner[marked], minlength=records)


def total(values: np.ndarray, owner: np.ndarray, records: int) -> np.ndarray:
    """Add up the rows of each record: (R,) and (R,) int64 to (B,) float64."""
    return np.bincount(owner, weights=values, minlength=records)


def smallest(values: np.ndarray, owner: np.ndarray, records: int, none: int) -> np.ndarray:
    """Return the smallest value of each record's rows, `none` for a record without rows: (B,) int64."""
    return _extreme(np.minimum, values, owner, records, none)


def largest(values: np.ndarray, owner: np.ndarray, records: int, none: int) -> np.ndarray:
    """Return the largest value of each record's rows, `none` for a record without rows: (B,) int64."""
    return _extreme(np.maximum, values, owner, records, none)


def _extreme(choose: np.ufunc, values: np.ndarray, owner: np.ndarray, records: int, none: int) -> np.ndarray:
    # Rows are ordered by record, so each record's rows are contiguous.
    extremes = np.full(records, none, np.int64)
    if len(owner):
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        extremes[owner[starts]] = choose.reduceat(values, starts)
    return extremes
