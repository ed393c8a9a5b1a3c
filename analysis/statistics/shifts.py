"""Labels shifted in a circle within each life: what a cluster's sums become if its timing meant nothing.

A shift keeps how long a cluster's bouts last and how smoothly a feature moves; only which goes with which is lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import fft, sparse

from analysis.lives import Lives

_ENTRIES_AT_ONCE = 1 << 21  # of a table of sums: 8 MB, about what a processor's cache holds
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ShiftedSums:
    """Sums of centred columns over one cluster's records, for the labels as they are and for each permutation.

    M permutations, F columns. A life's share of a sum is that of its own records, each column centred on its mean in
    that life, so that it is 0 on average over all shifts.

    Attributes:
        total: over all lives, (M + 1, F) float32; the first row is that of the labels as they are.
        squares: sums over lives of their squared shares, (M + 1, F).
        informative: lives whose share depends on the shift, (F,) int64.
        effective: how many equally informative lives carry as much (Kish 1965), (F,); 0 where none does.
    """

    total: np.ndarray
    squares: np.ndarray
    informative: np.ndarray
    effective: np.ndarray


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Return which records are in which cluster, (B, clusters) float64; noise, negative, is in none."""
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)


def shifted_sums(
    columns: np.ndarray, labels: np.ndarray, lives: Lives, permutations: int, seed: int
) -> Iterator[ShiftedSums]:
    """Shift each life's labels by a random number of records, independently, and sum columns over each cluster.

    All shifts of a life are equally likely, none among them. The sums for every shift of every life come from one
    circular correlation; a permutation then only adds up one of them for each life. Only lives that enter or leave a
    cluster play a part in its sums.

    Args:
        columns: (B, columns), finite; best about 1 in size.
        labels: (B,) clusters from 0; negative for noise.

    Yields:
        The sums of one cluster after the other.
    """
    values, ordered = centred(columns, lives), labels[lives.order]
    shifts = random_shifts(lives, permutations, seed)
    for cluster in range(labels.max() + 1):
        inside = np.add.reduceat(ordered == cluster, lives.starts, dtype=np.int64)  # (L,)
        changing = np.flatnonzero((inside > 0) & (inside < lives.lengths))
        yield _sums_of(ordered == cluster, values, shifts[:, changing], lives.starts[changing], lives.lengths[changing])


def random_shifts(lives: Lives, permutations: int, seed: int) -> np.ndarray:
    """Return by how many records each permutation shifts each life's labels, (M + 1, L) int32; first by none."""
    shifts = np.random.default_rng(seed).integers(0, lives.lengths, (permutations + 1, len(lives)), dtype=np.int32)
    shifts[0] = 0
    return shifts


def centred(columns: np.ndarray, lives: Lives) -> np.ndarray:
    """Return columns in order of lives, less their mean in each life, (B, columns); 0 where constant."""
    ordered = columns[lives.order].astype(np.float64)
    ordered -= np.repeat(ordered[lives.starts], lives.lengths, axis=0)
    means = np.add.reduceat(ordered, lives.starts, axis=0) / lives.lengths[:, None]
    return ordered - np.repeat(means, lives.lengths, axis=0)


def _sums_of(
    member: np.ndarray, values: np.ndarray, shifts: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> ShiftedSums:
    """Return one cluster's sums, over lives of the given places in `member` (B,) and `values` (B, F)."""
    own_starts = np.cumsum(lengths) - lengths
    ends = np.arange(len(shifts) + 1) * len(lengths)
    places = (own_starts + shifts).ravel()
    chosen = sparse.csr_array(
        (np.ones(len(places), np.float32), places, ends), shape=(len(shifts), int(lengths.sum()))
    )  # (M + 1, records of these lives), of 0 and 1
    at_once = max(1, _ENTRIES_AT_ONCE // max(1, chosen.shape[1]))
    parts = [
        _sums_of_columns(
            chosen, _sums_of_all_shifts(member, values[:, first : first + at_once], starts, lengths), lengths
        )
        for first in range(0, values.shape[1], at_once)
    ]
    return ShiftedSums(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))


def _sums_of_all_shifts(member: np.ndarray, values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return each life's sums after its labels moved 0, 1, ... records on, life after life, (records, F) float32.

    The correlation theorem; lives of similar length are transformed together, filled with zeros to a power of 2.
    """
    table = np.zeros((int(lengths.sum()), values.shape[1]), np.float32)
    own_starts = np.cumsum(lengths) - lengths
    sizes = 2 ** np.ceil(np.log2(2 * lengths)).astype(np.int64)
    for size in np.unique(sizes):
        alike = np.flatnonzero(sizes == size)
        step = np.arange(lengths[alike].max())
        exists = step < lengths[alike, None]  # (lives, n)
        places = np.where(exists, starts[alike, None] + step, 0)
        clusters = fft.rfft(member[places] & exists, int(size), axis=1).conj()[:, :, None]
        spectrum = clusters * fft.rfft(values[places] * exists[:, :, None], int(size), axis=1)
        straight = fft.irfft(spectrum, int(size), axis=1)  # (lives, size, F), lag -1 comes last
        row = np.arange(len(alike))[:, None]
        sums = straight[:, : len(step)] + straight[row, (step - lengths[alike, None]) % size]
        table[(own_starts[alike, None] + step)[exists]] = sums[exists]
    table[np.abs(table) < _ROUNDING] = 0  # what is 0 must be: a sum of roundings would pass for a finding
    return table


def _sums_of_columns(
    chosen: sparse.csr_array, table: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the fields of `ShiftedSums`, of some columns."""
    total = chosen @ table
    table **= 2
    if not len(lengths):
        return total, total, np.zeros(table.shape[1], np.int64), np.zeros(table.shape[1])
    power = np.add.reduceat(table, np.cumsum(lengths) - lengths, axis=0, dtype=np.float64) / lengths[:, None]  # (L, F)
    kish = np.maximum((power**2).sum(axis=0), np.finfo(float).tiny)
    return total, chosen @ table, np.count_nonzero(power, axis=0), power.sum(axis=0) ** 2 / kish
