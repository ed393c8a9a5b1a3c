"""Labels of lives in order of ticks, and the time that each state takes of any stretch of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activation_store.lives import number_lives
from analysis.labels import NOISE


@dataclass(frozen=True)
class LabelSequences:
    """Labels of L lives, B records, sorted by life, then tick. Noise is a state of its own, the last of K.

    Attributes:
        labels: cluster of each state, `clustering.NOISE` last where it occurs, (K,) int64.
        state: of each record, (B,) int64 in [0, K).
        tick: of each record, (B,) int64, rising within a life.
        starts: where each life begins, (L,) int64.
        lengths: records of each life, (L,) int64, at least one.
        key: slot, agent and episode of each life, (L, 3) int64.
    """

    labels: np.ndarray
    state: np.ndarray
    tick: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def life(self) -> np.ndarray:
        """The life of each record, (B,) int64."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def units(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Episodes with the lives in each, as `resampling.Bootstrap` takes them: lives come in this order below."""
        episodes = self.key[:, 2]
        return tuple((int(e), tuple(np.flatnonzero(episodes == e).tolist())) for e in np.unique(episodes))

    def of_lives(self, others: "LabelSequences") -> "LabelSequences":
        """Return the lives that others have too."""
        wanted = {tuple(key) for key in others.key.tolist()}
        kept = np.array([tuple(key) in wanted for key in self.key.tolist()], bool)
        lengths, records = self.lengths[kept], kept[self.life]
        starts = np.cumsum(lengths) - lengths
        return LabelSequences(self.labels, self.state[records], self.tick[records], starts, lengths, self.key[kept])

    def counts(self) -> np.ndarray:
        """Return the records of each life in each state, (L, K) int64."""
        flat = np.bincount(self.life * len(self.labels) + self.state, minlength=len(self) * len(self.labels))
        return flat.reshape(len(self), len(self.labels))

    def time_in(self, state: int, edges: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Return how much of each bin of each life is spent in a state, in records, (L, bins) float64.

        A record takes the stretch from its place to the next one, so that bins may cut it.

        Args:
            edges: of the bins, in records from the life's begin, rising, 0 to the life's length, (L, bins + 1).
            shift: records by which each life's labels are turned towards its begin, the first ones coming to its end,
                (L,), from 0 to below its length.
        """
        length = self.lengths[:, None]
        place = edges + shift[:, None]  # (L, bins + 1)
        turns = np.floor_divide(place, length)
        rest = place - turns * length
        # Rounding may leave what should be a whole turn just below it, which is as good: the sum below is continuous.
        whole = np.minimum(rest.astype(np.int64), length - 1)
        before, start = self._cumulative[state], self.starts[:, None]
        at = start + whole
        up_to = before[at] - before[start] + (rest - whole) * (before[at + 1] - before[at])
        total = before[start + length] - before[start]
        return np.diff(turns * total + up_to, axis=1)

    @cached_property
    def _cumulative(self) -> np.ndarray:
        """Records in each state before each place, (K, B + 1) int32."""
        counts = np.zeros((len(self.labels), len(self.state) + 1), np.int32)
        for state in range(len(self.labels)):
            np.cumsum(self.state == state, out=counts[state, 1:])
        return counts


def label_sequences(places: dict[str, np.ndarray], label: np.ndarray, shortest: int) -> LabelSequences:
    """Sort labelled records into lives, and leave out lives that last less than `shortest` ticks.

    `places` are the columns of `activation_store.schema.IDENTITY`, (N,) each; a life lasts from its first record to its
    last, both counted.
    """
    key, life = number_lives(places)
    # Lives of one episode side by side, as `units` has them.
    by_episode = np.lexsort((key[:, 1], key[:, 0], key[:, 2]))
    rank = np.empty(len(key), np.int64)
    rank[by_episode] = np.arange(len(key))
    order = np.lexsort((places["tick"], rank[life]))
    life, tick, label = rank[life][order], places["tick"][order], label[order]
    lengths = np.bincount(life, minlength=len(key))
    starts = np.cumsum(lengths) - lengths
    long_enough = tick[starts + lengths - 1] - tick[starts] + 1 >= shortest
    kept = long_enough[life]
    labels = np.unique(label[kept])
    labels = np.concatenate([labels[labels != NOISE], labels[labels == NOISE]])
    state = np.argmax(label[kept][:, None] == labels, axis=1) if kept.any() else np.empty(0, np.int64)
    lengths = lengths[long_enough]
    return LabelSequences(
        labels, state, tick[kept], np.cumsum(lengths) - lengths, lengths, key[by_episode][long_enough]
    )


def phase_edges(sequences: LabelSequences, bins: int) -> np.ndarray:
    """Return the edges of equal shares of each life, in its records, (L, bins + 1) float64."""
    return sequences.lengths[:, None] * np.arange(bins + 1) / bins


def tick_edges(sequences: LabelSequences, edges: np.ndarray) -> np.ndarray:
    """Return how many records of each life come before each of some ticks, (bins + 1,) to (L, bins + 1) float64."""
    step = int(sequences.tick.max()) + 2
    place = np.searchsorted(
        sequences.life * step + sequences.tick,
        np.arange(len(sequences))[:, None] * step + np.clip(np.ceil(edges), 0, step - 1).astype(np.int64),
    )
    return (place - sequences.starts[:, None]).astype(np.float64)
