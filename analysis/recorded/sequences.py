"""Lives of a dump as sequences, whole or in windows, for models that learn from consecutive ticks.

Episodes are read one by one, or a few at a time for shuffling, so memory does not grow with the dump.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from activation_store.reader import Progress, read_dump, read_identity, read_metadata
from activation_store.records import Records
from analysis.lives import Lives, lives_of
from analysis.statistics.shifts import ranges
from common.user_error import UserError

SHUFFLED_TOGETHER = 4
"""Number of episodes in memory at once when shuffling; more give better mixing but take more memory."""


@dataclass(frozen=True)
class Parts:
    """What to read of each record; by default everything."""

    layers: tuple[str, ...] | None = None  # to read; None for all
    columns: tuple[str, ...] | None = None  # optional columns to read; None for all
    leave_out: tuple[str, ...] = ()  # as in `activation_store.reader.read_dump`
    episodes: tuple[int, ...] | None = None  # to read; None for all
    lives: tuple[tuple[int, ...], ...] | None = None
    """To read, each a slot, an agent and an episode; None for all. Each episode read must have one of them."""


EVERYTHING = Parts()


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """S sequences of consecutive ticks, each of one life. T ticks in the longest sequence, B records in total."""

    records: Records  # of all sequences, concatenated, each in order of ticks
    lengths: np.ndarray  # ticks of each sequence, (S,) int64
    first: np.ndarray  # index of each sequence's first record in its life, (S,) int64; 0 at spawn
    before: dict[str, np.ndarray] = field(default_factory=dict)
    """Layer -> activations of the record before each sequence, (S, units) float32; zeros at spawn. For states of the
    memory, this is the memory at the start of the sequence."""

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def there(self) -> np.ndarray:
        """Which elements of the padded arrays hold a record, (S, T) bool; sequences are padded at the end."""
        return np.arange(self.lengths.max()) < self.lengths[:, None]

    def padded(self, values: np.ndarray) -> np.ndarray:
        """Arrange values of all records by sequence and tick, with zeros as padding: (B, ...) to (S, T, ...)."""
        grid = np.zeros((*self.there.shape, *values.shape[1:]), values.dtype)
        grid[self.there] = values
        return grid

    def layer(self, name: str) -> np.ndarray:
        """Return the activations of a layer, (S, T, units) float32."""
        return self.padded(self.records.activations[name])

    def column(self, name: str) -> np.ndarray:
        """Return an optional column, (S, T) or (S, T, width).

        Raises:
            UserError: the records do not have it.
        """
        return self.padded(self.records.column(name))

    @property
    def action(self) -> np.ndarray:
        """The options chosen, (S, T, heads) int64."""
        return self.padded(self.records.action)


def lives(
    folder: Path, *, batch: int = 1, seed: int | None = None, parts: Parts = EVERYTHING,
    progress: Progress | None = None,
) -> Iterator[SequenceBatch]:  # fmt: skip
    """Yield the whole lives of a dump.

    Args:
        batch: lives in each batch; the last batch before other episodes are read may have fewer.
        seed: of the order. With a seed, episodes are shuffled, and so are the lives of `SHUFFLED_TOGETHER` episodes at
            a time; the same seed gives the same order. Without one, episodes are in order of their numbers.
        parts: what to read of each record.
        progress: called with the share of the episodes done, from 0 to 1.

    Raises:
        UserError: the dump cannot be read, lacks a part, or lacks a tick within a life.
    """
    yield from windows(folder, None, batch=batch, seed=seed, parts=parts, progress=progress)


def windows(
    folder: Path, length: int | None, *, stride: int | None = None, batch: int = 32, seed: int | None = None,
    parts: Parts = EVERYTHING, progress: Progress | None = None,
) -> Iterator[SequenceBatch]:  # fmt: skip
    """Yield windows of the lives of a dump; whole lives where the length is None.

    Windows start every `stride` ticks of a life, by default the length, until one reaches its end; that one may be
    shorter than the others. So if the stride is at most the length, every record is in at least one window. The other
    arguments are those of `lives`.

    Raises:
        UserError: as `lives`.
        ValueError: `length`, `stride` or `batch` is below 1.
    """
    stride = length if stride is None else stride
    if min(batch, 1 if length is None else length, 1 if stride is None else stride) < 1:
        raise ValueError(f"batch {batch}, length {length} and stride {stride} must be 1 or more")
    metadata = read_metadata(folder)
    numbers = [file.episode for file in metadata.files.values() if file.episode is not None]
    episodes = np.unique(read_identity(folder)["episode"] if metadata.format == "json" else np.array(numbers))
    if parts.episodes is not None:
        episodes = episodes[np.isin(episodes, parts.episodes)]
    random = None if seed is None else np.random.default_rng(seed)
    together = 1
    if random:
        episodes, together = random.permutation(episodes), SHUFFLED_TOGETHER
    for start in range(0, len(episodes), together):
        some = episodes[start : start + together].tolist()
        records = read_dump(
            folder, episodes=some, layers=parts.layers, columns=parts.columns, leave_out=parts.leave_out,
            lives=parts.lives,
        )  # fmt: skip
        own_lives = lives_of(records)
        _check_unbroken(folder, records, own_lives)
        life, first, ticks = _cut(own_lives.lengths, length, stride)
        order = np.arange(len(life)) if random is None else random.permutation(len(life))
        for place in range(0, len(order), batch):
            chosen = order[place : place + batch]
            yield _batch(records, own_lives, life[chosen], first[chosen], ticks[chosen])
        if progress:
            progress(min(1.0, (start + together) / len(episodes)))


def _check_unbroken(folder: Path, records: Records, own_lives: Lives) -> None:
    """Refuse records with a missing tick between two others of the same life."""
    tick, life = records.tick[own_lives.order], own_lives.index_in_order
    broken = (np.diff(life) == 0) & (np.diff(tick) != 1)
    if broken.any():
        i = own_lives.order[int(np.argmax(broken))]
        raise UserError(
            f"{folder} has no record of the tick after {records.tick[i]} of agent {records.agent_id[i]} in episode "
            f"{records.episode[i]}, but has later ones: sequences need every tick; extract the dump again"
        )


def _cut(lengths: np.ndarray, length: int | None, stride: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut lives of these lengths, (L,), into sequences: (S,) int64 each of lives, first records, and ticks."""
    if length is None or stride is None:
        return np.arange(len(lengths)), np.zeros(len(lengths), np.int64), lengths
    # The first window that reaches the end is the last; if the stride exceeds the length, there may be none.
    counts = np.minimum(1 + -(-np.maximum(lengths - length, 0) // stride), -(-lengths // stride))
    life = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(life)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = number * stride
    return life, first, np.minimum(length, lengths[life] - first)


def _batch(records: Records, own_lives: Lives, life: np.ndarray, first: np.ndarray, ticks: np.ndarray) -> SequenceBatch:
    """Extract sequences, given by lives, first records and ticks, (S,) each, from records."""
    start = own_lives.starts[life] + first  # (S,) positions in the order of lives and ticks
    chosen = own_lives.order[ranges(start, ticks)]
    previous = own_lives.order[np.maximum(start - 1, 0)]
    before = {
        layer: np.where(first[:, None] > 0, values[previous], np.float32(0))
        for layer, values in records.activations.items()
    }
    return SequenceBatch(records.take(chosen), ticks, first, before)
