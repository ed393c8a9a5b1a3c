"""Labels of lives in order of ticks, and visits: unbroken stretches of a life in one state.

If states follow each other by their frequencies alone, whether labels are drawn at every tick anew or last for a while,
then all orders of a life's visits are equally likely that have the same first and last visit and in which no state
follows itself. Drawing orders in which states may follow themselves, and leaving those pairs out, is another null: it
takes any labels of unequal frequency for a finding. So does a null that moves the first visit where lives begin in
other states than they go on with, as at birth: where a life begins is not what follows what.

Where the odds of states change with age, orders of whole lives are no null: states that are common at one age follow
each other. Orders within short spans of visits are: each span keeps its visits and its ticks, so each life keeps how
often it is in each state at each age (for spikes of neurons: Amarasingham, Harrison, Hatsopoulos and Geman 2012,
"Conditional modeling and the jitter method of spike resampling", J. Neurophysiol. 107, 517-531). All orders within
spans are equally likely if odds change from span to span, not within them, whatever a state's visits last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from activation_store.lives import number_lives
from analysis.labels import NOISE


@dataclass(frozen=True)
class LabelSequences:
    """Labels of L lives, B records, sorted by life, then tick. Noise is a state of its own, the last of K."""

    labels: np.ndarray  # cluster of each state, `labels.NOISE` last where it occurs, (K,) int64
    state: np.ndarray  # of each record, (B,) int64 in [0, K)
    tick: np.ndarray  # of each record, (B,) int64, rising within a life
    starts: np.ndarray  # where each life begins, (L,) int64
    lengths: np.ndarray  # records of each life, (L,) int64, at least one
    key: np.ndarray  # slot, agent and episode of each life, (L, 3) int64

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
        """Return the lives that others have too, with the others' states, which hold all labels of these lives."""
        wanted = {tuple(key) for key in others.key.tolist()}
        kept = np.array([tuple(key) in wanted for key in self.key.tolist()], bool)
        lengths, records = self.lengths[kept], kept[self.life]
        starts = np.cumsum(lengths) - lengths
        # Either may have labels that the other lacks, so the number of a state is looked up by its label.
        state = np.argmax(self.labels[self.state[records]][:, None] == others.labels, axis=1)
        return LabelSequences(others.labels, state, self.tick[records], starts, lengths, self.key[kept])

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
    step = int(sequences.tick.max(initial=0)) + 2
    place = np.searchsorted(
        sequences.life * step + sequences.tick,
        np.arange(len(sequences))[:, None] * step + np.clip(np.ceil(edges), 0, step - 1).astype(np.int64),
    )
    return (place - sequences.starts[:, None]).astype(np.float64)


VISITS_A_SPAN = 8
"""About how many visits of one stretch count as of one age.

With more of them states that drift pass for order, with fewer a favoured pair is missed: docs/benchmarks.md."""
_STEPS = 6
"""Steps from one order to the next: a visit is offered another place in about a third of them."""


@dataclass(frozen=True)
class Visits:
    """Unbroken stretches in one state, in order of lives and ticks; every field is (V,), of V visits."""

    life: np.ndarray
    stretch: np.ndarray
    """Unbroken run of ticks that the visit belongs to: a life, or a part of one that lacks ticks, (V,) int64."""
    state: np.ndarray
    ticks: np.ndarray
    left: np.ndarray  # whether another state follows in the very next tick, (V,) bool
    begun: np.ndarray
    """Whether its begin was seen: a life's first record, or another state in the tick before, (V,) bool."""


@dataclass(frozen=True)
class AgainstChance:
    """Shares that random orders of visits give, and the test against them: (K,) of states, or (K, K) of pairs."""

    chance: np.ndarray  # mean share over the orders; NaN where there is none
    p: np.ndarray  # of each by itself; NaN where all orders have the same share, so that there is nothing to test
    q: np.ndarray  # corrected for the number of states or pairs (Benjamini and Hochberg 1995); NaN likewise


def visits(sequences: LabelSequences) -> Visits:
    """Find the visits of all lives."""
    life, state, tick = sequences.life, sequences.state, sequences.tick
    new_life = np.diff(life, prepend=-1) != 0
    gap = ~new_life & (np.diff(tick, prepend=-1) != 1)
    begins = np.flatnonzero(new_life | gap | (np.diff(state, prepend=-1) != 0))
    stretch = np.cumsum(new_life | gap)[begins]
    follows = np.append(stretch[1:] == stretch[:-1], False)
    return Visits(
        life=life[begins], stretch=stretch, state=state[begins], ticks=np.diff(begins, append=len(state)), left=follows,
        begun=~gap[begins],
    )  # fmt: skip


def spans(visit_table: Visits) -> np.ndarray:
    """Cut each stretch into spans of about `VISITS_A_SPAN` visits, as even as can be, (V,) int64, rising.

    A visit in which one span ends and the next begins is counted with the next.
    """
    stretch = np.unique(visit_table.stretch, return_inverse=True)[1]
    lengths = np.bincount(stretch)
    starts = np.cumsum(lengths) - lengths
    steps = np.maximum(lengths - 1, 1)  # from the first visit to the last
    parts = np.maximum(np.rint(steps / VISITS_A_SPAN).astype(np.int64), 1)
    place = np.arange(len(stretch)) - starts[stretch]
    part = np.minimum(place * parts[stretch] // steps[stretch], parts[stretch] - 1)
    return (np.cumsum(parts) - parts)[stretch] + part


def ticks_of_spans(visit_table: Visits) -> np.ndarray:
    """Return how many ticks each span of visits lasts, (spans,) int64."""
    return np.bincount(spans(visit_table), weights=visit_table.ticks).astype(np.int64)


def random_orders(visit_table: Visits, span: np.ndarray, orders: int, seed: int) -> Iterator[np.ndarray]:
    """Draw orders of each span's visits, in which no state follows itself.

    The first visit of each span, and the last of each stretch, stay in place.

    A reversible Markov chain visits the orders. It starts at the visits as they are and runs both ways, so that they
    lie at a random place among the orders drawn: then p-values that count these orders are right however slowly the
    chain mixes (the serial method of Besag and Clifford 1989, "Generalized Monte Carlo significance tests", Biometrika
    76, 633-642).

    Args:
        span: that each visit stays in, (V,) int64, rising: `visit_table.stretch`, or parts of it such as `spans`.

    Yields:
        The state of each visit, (V,) int64, the same array changed each time.
    """
    rng = np.random.default_rng(seed)
    before = int(rng.integers(orders + 1))
    for count in (before, orders - before):
        chain = _Chain(visit_table, span, rng)
        for _ in range(count):
            for _ in range(_STEPS):
                chain.exchange()
            chain.reverse()
            yield chain.state


class _Chain:
    """A random walk among the orders. A step back is as likely as the step was, so all orders are equally likely.

    What moves are the inner visits of a span: all but its first, and the last of a stretch.
    """

    def __init__(self, visit_table: Visits, span: np.ndarray, rng: np.random.Generator):
        self.state = visit_table.state.copy()
        self._rng = rng
        self._span = np.unique(span, return_inverse=True)[1]
        lengths = np.bincount(self._span)
        last = np.cumsum(lengths) - 1
        ends_stretch = np.append(np.diff(visit_table.stretch) != 0, True)[last]
        self._inner = np.maximum(lengths - 1 - ends_stretch, 0)
        self._starts = last - lengths + 2  # of the inner visits
        self._begin = self._starts[self._span]
        self._end = (self._starts + self._inner - 1)[self._span]  # before the begin where there are none
        self._place = np.arange(len(self.state)) - self._begin  # among the inner visits of its span

    def exchange(self) -> None:
        """Exchange visits that lie opposite each other, wherever no state then follows itself.

        Half of each span's visits may move at once, about a random centre: their neighbours stay, or move with them.
        """
        # Twice the centre's place.
        centre = self._rng.integers(0, np.maximum(2 * self._inner - 1, 1))[self._span]
        half = self._rng.integers(0, 2, len(self._inner))[self._span]
        own, opposite = self._begin + self._place, self._begin + centre - self._place
        distance = np.abs(centre - 2 * self._place)
        inside = (np.minimum(own, opposite) >= self._begin) & (np.maximum(own, opposite) <= self._end)
        place = np.flatnonzero(inside & (distance > 0) & (distance // 2 % 2 == half))
        other = opposite[place]
        new = self.state[other]
        allowed = np.zeros(len(self.state), bool)
        allowed[place] = self._fits(place, -1, new, other) & self._fits(place, 1, new, other)
        both = allowed[place] & allowed[other]
        self.state[place[both]] = new[both]

    def _fits(self, place: np.ndarray, side: int, new: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return whether new states differ from their neighbours on one side, which must not be what they come from."""
        next_to = place + side
        return (next_to == other) | (self.state[next_to] != new)

    def reverse(self) -> None:
        """Turn a random part of each span round, wherever no state then follows itself.

        Exchanges alone cannot make 1, 0, 1, 0 of 0, 1, 0, 1.
        """
        ends = self._starts + self._rng.integers(0, np.maximum(self._inner, 1), (2, len(self._inner)))
        first, last = ends.min(axis=0), ends.max(axis=0)
        state, final = self.state, len(self.state) - 1
        left = state[first - 1] != state[np.minimum(last, final)]
        right = state[np.minimum(last + 1, final)] != state[np.minimum(first, final)]
        turned = (left & right & (self._inner > 0))[self._span]
        own = np.arange(len(state))
        turned &= (own >= first[self._span]) & (own <= last[self._span])
        state[turned] = state[(first + last)[self._span][turned] - own[turned]]
