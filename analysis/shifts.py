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
    """Sums of centred columns over a cluster's records, for the labels as they are and for each permutation.

    M permutations, K clusters, F columns. A life's share of a sum is that of its own records, each column centred on
    its mean in that life, so that it is 0 on average over all shifts.

    Attributes:
        total: over all lives, (M + 1, K, F) float32; the first row is that of the labels as they are.
        squares: sums over lives of their squared shares, (M + 1, K, F).
        informative: lives whose share depends on the shift, (K, F) int64.
        effective: how many equally informative lives carry as much (Kish 1965), (K, F); 0 where none does.
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
) -> Iterator[tuple[slice, ShiftedSums]]:
    """Shift each life's labels by a random number of records, independently, and sum columns over each cluster.

    All shifts of a life are equally likely, none among them. The sums for every shift of every life come from one
    circular correlation; a permutation then only adds up one of them for each life.

    Args:
        columns: (B, columns), finite; best about 1 in size.
        labels: (B,) clusters from 0; negative for noise.

    Yields:
        Which columns, and their sums: so many columns at a time as keep memory small.
    """
    member = one_hot(labels)[lives.order]
    chosen = _rows_of(random_shifts(lives, permutations, seed), lives)
    at_once = max(1, _ENTRIES_AT_ONCE // max(1, member.size))
    for first in range(0, columns.shape[1], at_once):
        some = slice(first, min(first + at_once, columns.shape[1]))
        table = _sums_of_all_shifts(member, centred(columns[:, some], lives), lives)
        yield some, _sums_of(chosen, table, lives, member.shape[1])


def random_shifts(lives: Lives, permutations: int, seed: int) -> np.ndarray:
    """Return by how many records each permutation shifts each life's labels, (M + 1, L) int64; first by none."""
    shifts = np.random.default_rng(seed).integers(0, lives.lengths, (permutations + 1, len(lives)))
    shifts[0] = 0
    return shifts


def _rows_of(shifts: np.ndarray, lives: Lives) -> sparse.csr_array:
    """Return which row of a table of all shifts each permutation takes for each life, (M + 1, B) of 0 and 1."""
    ends = np.arange(len(shifts) + 1) * len(lives)
    places = (lives.starts + shifts).ravel()
    return sparse.csr_array((np.ones(len(places), np.float32), places, ends), shape=(len(shifts), len(lives.order)))


def centred(columns: np.ndarray, lives: Lives) -> np.ndarray:
    """Return columns in order of lives, less their mean in each life, (B, columns); 0 where constant."""
    ordered = columns[lives.order].astype(np.float64)
    ordered -= np.repeat(ordered[lives.starts], lives.lengths, axis=0)
    means = np.add.reduceat(ordered, lives.starts, axis=0) / lives.lengths[:, None]
    return ordered - np.repeat(means, lives.lengths, axis=0)


def _sums_of_all_shifts(member: np.ndarray, columns: np.ndarray, lives: Lives) -> np.ndarray:
    """Return, at place starts[i] + s, life i's sums after its labels moved s records on, (B, K * F) float32."""
    table = np.zeros((len(member), member.shape[1], columns.shape[1]), np.float32)
    for length in np.unique(lives.lengths[lives.lengths > 1]):
        places = lives.starts[lives.lengths == length][:, None] + np.arange(length)  # (lives, n)
        clusters, values = fft.rfft(member[places], axis=1), fft.rfft(columns[places], axis=1)
        spectrum = clusters.conj()[:, :, :, None] * values[:, :, None, :]  # (lives, n // 2 + 1, K, F)
        table[places] = fft.irfft(spectrum, n=int(length), axis=1)
    table[np.abs(table) < _ROUNDING] = 0  # what is 0 must be: a sum of roundings would pass for a finding
    return table.reshape(len(member), -1)


def _sums_of(chosen: sparse.csr_array, table: np.ndarray, lives: Lives, clusters: int) -> ShiftedSums:
    shape = (-1, clusters, table.shape[1] // max(1, clusters))
    total = chosen @ table
    table **= 2
    power = np.add.reduceat(table, lives.starts, axis=0, dtype=np.float64) / lives.lengths[:, None]  # (L, K * F)
    kish = np.maximum((power**2).sum(axis=0), np.finfo(float).tiny)
    return ShiftedSums(
        total=total.reshape(shape),
        squares=(chosen @ table).reshape(shape),
        informative=np.count_nonzero(power, axis=0).reshape(shape[1:]),
        effective=(power.sum(axis=0) ** 2 / kish).reshape(shape[1:]),
    )
