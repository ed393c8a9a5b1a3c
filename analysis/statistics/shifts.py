"""Labels shifted in a circle within each life: what a cluster's sums become if its timing meant nothing.

A shift keeps how long a cluster's bouts last and how smoothly a feature moves; only which goes with which is lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft, sparse

from analysis.lives import Lives

_ENTRIES_AT_ONCE = 1 << 21  # of a table of sums: 8 MB, about what a processor's cache holds
_ROUNDING, _ROUNDING_TOGETHER = 1e-6, 1e-5


@dataclass(frozen=True)
class ShiftedSums:
    """Sums of centred columns over one cluster's records, for the labels as they are and for each permutation.

    M permutations, F columns. A life's share of a sum is that of its own records, each column centred on its mean in
    that life, so that it is 0 on average over all shifts.
    """

    total: np.ndarray  # over all lives, (M + 1, F) float32; the first row is that of the labels as they are
    squares: np.ndarray  # sums over lives of their squared shares, (M + 1, F)
    informative: np.ndarray  # lives whose share depends on the shift, (F,) int64
    effective: np.ndarray  # how many equally informative lives carry as much (Kish 1965), (F,); 0 where none does
    together: "ShiftedSums | None" = None
    """The same with episodes for lives: all lives of an episode are shifted together, and an episode's share is that of
    its lives; None unless it was asked for."""


@dataclass(frozen=True)
class SharedShifts:
    """One shift for all lives of an episode; a life shorter than the shift goes round more than once. E episodes."""

    episode: np.ndarray  # of each life, (L,) int64 from 0
    longest: np.ndarray  # records of each episode's longest life, (E,) int64: shifts are below it
    shifts: np.ndarray  # records by which each permutation shifts each episode, (M + 1, E) int32; the first is none


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Return which records are in which cluster, (B, clusters) float64; noise, negative, is in none."""
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)


def shifted_sums(
    columns: np.ndarray, labels: np.ndarray, lives: Lives, permutations: int, seed: int, *,
    episode: np.ndarray | None = None, wanted: np.ndarray | None = None,
) -> Iterator[ShiftedSums]:  # fmt: skip
    """Shift each life's labels by a random number of records, independently, and sum columns over each cluster.

    All shifts of a life are equally likely, none among them. The sums for every shift of every life come from one
    circular correlation; a permutation then only adds up one of them for each life. Only lives that enter or leave a
    cluster play a part in its sums.

    Args:
        columns: (B, columns), finite; best about 1 in size.
        episode: of each record, (B,), to shift all lives of an episode together as well.
        wanted: columns that each cluster is asked for, (K, columns) bool; all where None.

    Yields:
        The sums of one cluster after the other, of the columns wanted.
    """
    values, ordered = centred(columns, lives), labels[lives.order]
    shifts = random_shifts(lives, permutations, seed)
    shared = None if episode is None else shared_shifts(lives, episode, permutations, seed)
    for cluster in range(labels.max() + 1):
        of_cluster = np.arange(values.shape[1]) if wanted is None else np.flatnonzero(wanted[cluster])
        if not len(of_cluster):
            yield _nothing(permutations, together=shared is not None)
            continue
        inside = np.add.reduceat(ordered == cluster, lives.starts, dtype=np.int64)  # (L,)
        changing = np.flatnonzero((inside > 0) & (inside < lives.lengths))
        lengths = lives.lengths[changing]
        records = ranges(lives.starts[changing], lengths)
        chosen = _chosen(np.cumsum(lengths) - lengths + shifts[:, changing], len(records))
        together = _together(shared, changing, lengths) if shared else None
        yield _sums_of(ordered[records] == cluster, values, records, of_cluster, lengths, chosen, together)


def random_shifts(lives: Lives, permutations: int, seed: int) -> np.ndarray:
    """Return by how many records each permutation shifts each life's labels, (M + 1, L) int32; first by none."""
    shifts = np.random.default_rng(seed).integers(0, lives.lengths, (permutations + 1, len(lives)), dtype=np.int32)
    shifts[0] = 0
    return shifts


def shared_shifts(lives: Lives, episode: np.ndarray, permutations: int, seed: int) -> SharedShifts:
    """Draw one shift for each episode and permutation, all below the episode's longest life equally likely.

    `episode` is of each record, (B,).
    """
    _, number = np.unique(episode[lives.order[lives.starts]], return_inverse=True)
    longest = np.zeros(number.max() + 1, np.int64)
    np.maximum.at(longest, number, lives.lengths)
    shifts = np.random.default_rng([seed, 8]).integers(0, longest, (permutations + 1, len(longest)), dtype=np.int32)
    shifts[0] = 0
    return SharedShifts(number, longest, shifts)


def centred(columns: np.ndarray, lives: Lives) -> np.ndarray:
    """Return columns in order of lives, less their mean in each life, (B, columns); 0 where constant."""
    ordered = columns[lives.order].astype(np.float64)
    ordered -= np.repeat(ordered[lives.starts], lives.lengths, axis=0)
    means = np.add.reduceat(ordered, lives.starts, axis=0) / lives.lengths[:, None]
    return ordered - np.repeat(means, lives.lengths, axis=0)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return starts[0], starts[0] + 1, ... up to its length, then those of the next, (sum of lengths,)."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def _chosen(places: np.ndarray, rows: int) -> sparse.csr_array:
    """Return which rows of a table each permutation adds up, (M + 1, rows) float32, of places (M + 1, units)."""
    ends = np.arange(len(places) + 1) * places.shape[1]
    ones = np.ones(places.size, np.float32)
    return sparse.csr_array((ones, places.ravel(), ends), shape=(len(places), rows))


_Together = tuple[sparse.csr_array, np.ndarray, sparse.csr_array]
"""Which sums of lives make up those of the E episodes for each of their shifts, (shifts of all episodes, records); how
many shifts each has, (E,); and which of them each permutation takes, (M + 1, shifts of all episodes)."""


def _together(shared: SharedShifts, changing: np.ndarray, lengths: np.ndarray) -> _Together:
    """Say how sums of lives become those of the episodes that hold them."""
    present, number = np.unique(shared.episode[changing], return_inverse=True)
    longest = shared.longest[present]
    begins = np.cumsum(longest) - longest
    count = longest[number]  # (lives,)
    shift = ranges(np.zeros(len(count), np.int64), count)
    rows = np.repeat(begins[number], count) + shift
    places = np.repeat(np.cumsum(lengths) - lengths, count) + shift % np.repeat(lengths, count)
    shape = int(longest.sum()), int(lengths.sum())
    adds = sparse.csr_array((np.ones(len(rows), np.float32), (rows, places)), shape=shape)
    return adds, longest, _chosen(begins + shared.shifts[:, present], shape[0])


def _sums_of(
    member: np.ndarray, values: np.ndarray, records: np.ndarray, columns: np.ndarray, lengths: np.ndarray,
    chosen: sparse.csr_array, together: _Together | None,
) -> ShiftedSums:  # fmt: skip
    """Return one cluster's sums over its lives, life after life.

    Args:
        member: which of the lives' records are in the cluster, (b,) bool.
        values: of all records, (B, F).
        records: those of the lives, rows of `values`, (b,).
        columns: of `values` that are wanted.
        chosen: which shift of each life each permutation takes, (M + 1, b).
    """
    at_once = max(1, _ENTRIES_AT_ONCE // max(1, len(records)))
    of_lives, of_episodes = [], []
    for first in range(0, len(columns), at_once):
        some = values[np.ix_(records, columns[first : first + at_once])]
        table = _sums_of_all_shifts(member, some, lengths)
        if together:
            adds, longest, taken = together
            shared = adds @ table
            shared[np.abs(shared) < _ROUNDING_TOGETHER] = 0
            of_episodes.append(_sums_of_columns(taken, shared, longest))
        of_lives.append(_sums_of_columns(chosen, table, lengths))
    return replace(_joined(of_lives), together=_joined(of_episodes) if together else None)


def _nothing(permutations: int, together: bool) -> ShiftedSums:
    sums = np.empty((permutations + 1, 0), np.float32)
    nothing = ShiftedSums(sums, sums, np.empty(0, np.int64), np.empty(0))
    return replace(nothing, together=nothing) if together else nothing


def _joined(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> ShiftedSums:
    total, squares, informative, effective = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    return ShiftedSums(total, squares, informative, effective)


def _sums_of_all_shifts(member: np.ndarray, values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return each life's sums after its labels moved 0, 1, ... records on, life after life, (records, F) float32.

    The correlation theorem; lives of similar length are transformed together, filled with zeros to a power of 2.
    """
    table = np.zeros((len(member), values.shape[1]), np.float32)
    starts = np.cumsum(lengths) - lengths
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
        table[places[exists]] = sums[exists]
    table[np.abs(table) < _ROUNDING] = 0  # what is 0 must be: a sum of roundings would pass for a finding
    return table


def _sums_of_columns(
    chosen: sparse.csr_array, table: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    total = chosen @ table
    table **= 2
    if not len(lengths):
        return total, total, np.zeros(table.shape[1], np.int64), np.zeros(table.shape[1])
    power = np.add.reduceat(table, np.cumsum(lengths) - lengths, axis=0, dtype=np.float64) / lengths[:, None]  # (L, F)
    kish = np.maximum((power**2).sum(axis=0), np.finfo(float).tiny)
    return total, chosen @ table, np.count_nonzero(power, axis=0), power.sum(axis=0) ** 2 / kish
