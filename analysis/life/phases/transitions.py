"""How long clusters last, what follows what, and whether they follow the phases of life, against chance.

Noise is a state of its own. Memory of order two is whether the state before a visit tells which one follows it.

Over a life or over ticks each life weighs equally, however long it is: in every bin the share of a cluster is the mean
over the lives that have ticks in the bin. The test asks whether bins tell anything about clusters: the mutual
information of both, as a share of the clusters' entropy (Theil's uncertainty coefficient; Theil 1970, "On the
estimation of relationships involving qualitative variables"). What chance gives is found by turning the labels of each
life in a circle by a random number of records, which keeps each life's own labels and how they follow each other, and
breaks only their tie to time.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import entr, rel_entr

from activation_store.reader import Progress
from analysis.life.phases.visits import AgainstChance, LabelSequences, Visits, random_orders, spans
from analysis.statistics.inference import counted_p, false_discovery
from analysis.statistics.resampling import Bootstrap

_ROUNDING = 1e-9
LAGS = (1, 10, 100)
"""Lags, in ticks, at which persistence is reported."""


def against_orders(counts: np.ndarray) -> AgainstChance:
    """Compare the changes observed with those in random orders, two-sided.

    A pair's deviation is the deviance of a binomial, which suits rare pairs as well as pairs that nearly always occur,
    divided by how much more or less than a binomial the pair varies over the orders. So all pairs are on one scale, and
    q can rest on the orders of all pairs together: the mean number of pairs per order that deviate at least as far,
    over the number observed that do (Benjamini and Hochberg 1995, on permutations pooled as in Tusher, Tibshirani and
    Chu 2001, PNAS 98, 5116-5121). If each pair had its own orders only, no p-value could be smaller than one over their
    number: among the 30 pairs of 6 states, 1,000 orders could never single one out.

    The observed order counts as one of the orders throughout (Phipson and Smyth 2010), so that where chance is all
    there is, it is as likely as any other to stand out.

    Args:
        counts: changes from the row's state to the column's in each order, the observed one first, (M + 1, K, K).
    """
    total, known = np.zeros((2, *counts.shape[1:]))
    for counted in counts:
        row = counted.sum(axis=1, keepdims=True)
        total += counted / np.maximum(row, 1)
        known += row > 0
    # The mean of each pair's share of its row over the orders in which the row has changes, (K, K).
    chance = np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)
    variation = np.zeros(chance.shape)
    for counted in counts:  # squared differences from what is expected, over the variance of a binomial; 0 without any
        row = counted.sum(axis=1, keepdims=True)
        expected = row * chance * (1 - chance)
        apart = (counted - row * chance) ** 2
        variation += np.divide(apart, expected, out=np.zeros(chance.shape), where=expected > _ROUNDING) / len(counts)
    tested = variation > _ROUNDING
    p, q = np.full((2, *chance.shape), np.nan)
    if not tested.any():
        return AgainstChance(chance, p, q)
    observed = _deviance(counts[0], chance)[tested] / variation[tested]
    thresholds = observed * (1 - _ROUNDING)
    rising = np.sort(thresholds)
    own, passed = np.zeros(len(observed), np.int64), np.zeros(len(observed) + 1, np.int64)
    for counted in counts:
        deviation = _deviance(counted, chance)[tested] / variation[tested]
        own += deviation >= thresholds
        passed += np.bincount(np.searchsorted(rising, deviation, side="right"), minlength=len(passed))
    beyond = passed[::-1].cumsum()[::-1][1:]  # values of all pairs and orders at or above each rising threshold
    pooled = beyond[np.searchsorted(rising, thresholds)] / (len(counts) * len(observed))
    p[tested], q[tested] = own / len(counts), false_discovery(pooled)
    return AgainstChance(chance, p, q)


def _deviance(count: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Return the deviance of a binomial with each row's changes, (K, K); NaN where chance is."""
    row = count.sum(axis=1, keepdims=True).astype(np.float64)
    expected = row * chance
    return 2 * (rel_entr(count, expected) + rel_entr(row - count, np.maximum(row - expected, 0)))


@dataclass(frozen=True)
class LaggedPersistence:
    """How often the state is the same some ticks later, beyond chance."""

    lag: int
    pairs: int  # of records of one life so far apart
    same: float  # share of them in the same state
    chance: float  # that share if each life's records were shuffled
    beyond_chance: float
    """(same - chance) / (1 - chance), as Cohen's kappa (1960): 0 is chance, 1 never changes; NaN where no life has two
    states."""
    low: float  # of its 95% interval, from resampling episodes, then lives
    high: float


@dataclass(frozen=True)
class Dwelling:
    """How long visits to each state last, in ticks; (K,) each.

    A visit that its life's end or the recording's end cuts off lasted at least as long as was seen (it is censored):
    its ticks count, its end does not.
    """

    visits: np.ndarray  # unbroken stretches in the state, int64
    censored: np.ndarray  # of these, cut off, int64
    ticks: np.ndarray  # spent in the state, int64
    mean: np.ndarray
    """Ticks / visits that ended: the maximum likelihood estimate where leaving is equally likely at every tick, and
    right in the presence of cut-off visits; NaN where none ended."""
    low: np.ndarray  # of its 95% interval, from resampling episodes, then lives
    high: np.ndarray
    chance: np.ndarray
    """The same mean if each life's records were shuffled; NaN where the state fills all lives that it is in."""
    median: np.ndarray  # half of the visits last longer (Kaplan and Meier 1958), NaN where less than half of them ended
    memoryless: np.ndarray  # the median of visits as long on average that end equally likely at every tick


@dataclass(frozen=True)
class Transitions:
    """What follows what when a state is left; (K, K) each, from the row's state to the column's."""

    count: np.ndarray  # of changes from one tick to the next
    share: np.ndarray  # of the changes out of the row's state; NaN where it is never left
    given_age: AgainstChance
    """The share by chance, p and q if only visits of about the same age of a life change places, no state after itself:
    what a pair must survive to be called one."""
    any_age: AgainstChance
    """The same if all visits of a life do, between its first and last. States whose odds change with age deviate from
    it, too."""


def dwelling(sequences: LabelSequences, visit_table: Visits, bootstrap: Bootstrap) -> Dwelling:
    """Measure how long visits last."""
    lives, states = len(sequences), len(sequences.labels)
    ticks = sequences.counts()  # (L, K)
    exits = np.bincount(
        visit_table.life[visit_table.left] * states + visit_table.state[visit_table.left], minlength=lives * states
    )
    exits = exits.reshape(lives, states)
    length = sequences.lengths[:, None]
    chance_exits = ticks * (length - ticks) / length  # (L, K), exact for records in random order
    low, high = _ratio_interval(ticks, exits, sequences, bootstrap)
    mean = _ratio(ticks.sum(axis=0), exits.sum(axis=0))
    with np.errstate(divide="ignore"):
        memoryless = np.maximum(stats.geom.median(1 / mean), 1.0)  # SciPy says 0 where every visit lasts one tick
    return Dwelling(
        visits=np.bincount(visit_table.state, minlength=states),
        censored=np.bincount(visit_table.state[~visit_table.left], minlength=states), ticks=ticks.sum(axis=0),
        mean=mean, low=low, high=high, chance=_ratio(ticks.sum(axis=0), chance_exits.sum(axis=0)),
        median=np.array([_median(visit_table, state) for state in range(states)]),
        memoryless=memoryless,
    )  # fmt: skip


def lagged_persistence(sequences: LabelSequences, lag: int, bootstrap: Bootstrap) -> LaggedPersistence:
    """Compare each record with the one so many ticks later in the same life."""
    life, tick, state = sequences.life, sequences.tick, sequences.state
    step = int(tick.max()) + lag + 2
    place = np.minimum(np.searchsorted(life * step + tick, life * step + tick + lag), len(tick) - 1)
    paired = (life[place] == life) & (tick[place] == tick + lag)
    lives = len(sequences)
    pairs = np.bincount(life[paired], minlength=lives)
    same = np.bincount(life[paired], weights=state[paired] == state[place[paired]], minlength=lives)
    ticks, length = sequences.counts(), sequences.lengths
    chance = pairs * (ticks * (ticks - 1)).sum(axis=1) / np.maximum(length * (length - 1), 1)
    total = pairs.sum()
    low, high = _ratio_interval((same - chance)[:, None], (pairs - chance)[:, None], sequences, bootstrap)
    beyond = _ratio(np.array((same - chance).sum()), np.array((pairs - chance).sum()))
    shares = _ratio(np.array([same.sum(), chance.sum()]), np.array([total, total]))
    return LaggedPersistence(
        lag, int(total), float(shares[0]), float(shares[1]), float(beyond), float(low[0]), float(high[0])
    )


def transitions(
    sequences: LabelSequences, visit_table: Visits, permutations: int, seed: int, progress: Progress | None = None
) -> Transitions:
    """Count what follows what, and compare with visits in random order, no state after itself, given age and without.

    A state that is common follows every other one often, and never itself: shares that add up to 1 without the state
    that was left are what chance gives (quasi-independence: Goodman 1968, JASA 63, 1091-1131), as
    `analysis.life.phases.visits` draws it. First and last visits stay in place.
    """
    states = len(sequences.labels)

    def tested(span: np.ndarray, part: int) -> AgainstChance:
        counts = np.empty((permutations + 1, states, states), np.min_scalar_type(len(visit_table.state)))
        counts[0] = count
        for i, state in enumerate(random_orders(visit_table, span, permutations, seed), start=1):
            counts[i] = _changes(visit_table.stretch, state, states)
            if progress:
                progress((part + i / permutations) / 2)
        return against_orders(counts)

    count = _changes(visit_table.stretch, visit_table.state, states)
    share = _ratio(count, count.sum(axis=1, keepdims=True))
    return Transitions(count, share, tested(spans(visit_table), 0), tested(visit_table.stretch, 1))


def _changes(stretch: np.ndarray, state: np.ndarray, states: int) -> np.ndarray:
    """Count changes of state between visits that follow each other, (V,) and (V,) to (K, K) int64."""
    follows = stretch[1:] == stretch[:-1]
    pairs = state[:-1][follows] * states + state[1:][follows]
    return np.bincount(pairs, minlength=states * states).reshape(states, states)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below != 0, above / below, np.nan)


def _ratio_interval(
    above: np.ndarray, below: np.ndarray, sequences: LabelSequences, bootstrap: Bootstrap
) -> tuple[np.ndarray, np.ndarray]:
    """Return 95% intervals of sum over sum, episodes and then lives resampled, (L, K) and (L, K) to (K,) twice."""
    if len(sequences) < 2:
        return np.full(above.shape[1], np.nan), np.full(above.shape[1], np.nan)
    weights = bootstrap.draw(sequences.units).episodes
    return band(_ratio(weights @ above, weights @ below), bootstrap)


def _median(visit_table: Visits, state: int) -> float:
    """Return the Kaplan-Meier median of a state's visits whose begin was seen; NaN where it is not reached."""
    own = (visit_table.state == state) & visit_table.begun
    if not own.any():
        return float("nan")
    data = stats.CensoredData(
        uncensored=visit_table.ticks[own & visit_table.left], right=visit_table.ticks[own & ~visit_table.left]
    )
    survival = stats.ecdf(data).sf
    reached = np.flatnonzero(survival.probabilities <= 0.5)
    return float(survival.quantiles[reached[0]]) if len(reached) else float("nan")


@dataclass(frozen=True)
class Memory:
    """How far the state before a visit tells the state after it; (K,) each, by the state that is visited."""

    visits: np.ndarray  # with a state before and one after them, int64
    explained: np.ndarray
    """Share of the entropy of what follows that what came before explains, 0 to 1; NaN where the same state always
    follows."""
    given_age: AgainstChance  # against excursions of about the same age of a life that change places
    any_age: AgainstChance
    """Against all excursions of a life that do. States whose odds change with age deviate from it, too."""


def memory_of_two(
    visit_table: Visits, states: int, permutations: int, seed: int, progress: Progress | None = None
) -> Memory:
    """Test whether what follows a visit depends on what came before it, beyond what follows its state anyway.

    What an agent does from one visit to a state to its next visit there is an excursion. If the state alone decides
    what comes next, as in a Markov chain, all orders of a life's excursions are equally likely. They keep how often
    each state follows each other one, and change which state before goes with which state after. If the chain's odds
    change with age, all orders within a span of visits still are.
    """

    def tested(span: np.ndarray, part: int) -> AgainstChance:
        excursions = _Excursions(visit_table, span, states)
        rng = np.random.default_rng(seed)
        null = np.empty((permutations, states))
        for i in range(permutations):
            null[i] = excursions.explained(rng)[1]
            if progress:
                progress((part + (i + 1) / permutations) / 2)
        varies = np.isfinite(observed) & (np.ptp(np.vstack([observed, np.nan_to_num(null)]), axis=0) > _ROUNDING)
        p = np.where(varies, counted_p(np.nan_to_num(observed), np.nan_to_num(null)), np.nan)
        return AgainstChance(null.mean(axis=0), p, false_discovery(p))

    visits, observed = _Excursions(visit_table, visit_table.stretch, states).explained(None)
    return Memory(visits, observed, tested(spans(visit_table), 0), tested(visit_table.stretch, 1))


class _Excursions:
    """The state before and after each visit, visits sorted by state and span, and how to exchange excursions."""

    def __init__(self, visit_table: Visits, span: np.ndarray, states: int):
        self.states = states
        follows = visit_table.stretch[1:] == visit_table.stretch[:-1]
        before = np.where(np.append(False, follows), np.roll(visit_table.state, 1), -1)
        after = np.where(np.append(follows, False), np.roll(visit_table.state, -1), -1)
        order = np.lexsort((span, visit_table.state))  # stable: in order of ticks
        self.middle, self.before, self.after = visit_table.state[order], before[order], after[order]
        group = self.middle * (span.max(initial=0) + 1) + span[order]
        self.ends = 1 + np.flatnonzero(group[1:] == group[:-1])  # visits that an excursion ends with
        self.group = np.unique(group[self.ends], return_inverse=True)[1]

    def explained(self, rng: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the visits that count and the share of entropy explained, (K,) each; `rng` shuffles the excursions."""
        before, after = self.before, self.after
        if rng is not None:
            drawn = self.ends[np.argsort(self.group + rng.random(len(self.group)))]
            before, after = before.copy(), after.copy()
            before[self.ends], after[self.ends - 1] = self.before[drawn], self.after[drawn - 1]
        both = (before >= 0) & (after >= 0)
        middle, before, after = self.middle[both], before[both], after[both]
        visits = np.bincount(middle, minlength=self.states)
        entropies = []  # of the keys of each state's visits, in nats, (K,) each
        for key in (before, after, before * self.states + after):
            pair, count = np.unique(middle * self.states**2 + key, return_counts=True)
            state = pair // self.states**2
            entropies.append(np.bincount(state, entr(count / visits[state]), minlength=self.states))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (entropies[0] + entropies[1] - entropies[2]) / entropies[1]
        return visits, np.where(entropies[1] > _ROUNDING, np.maximum(share, 0.0), np.nan)


_ROUNDING_OF_SHARES = 1e-12


@dataclass(frozen=True)
class Association:
    """How much time tells about clusters, beyond what chance would. K states."""

    explained: float  # share of the clusters' entropy that time explains, 0 to 1; NaN where only one label occurs
    chance: float
    """The mean of that share over circular shifts: not zero, since lives are few and labels cling together."""
    chance_high: float  # its 95th percentile
    p: float  # how often a shift explains as much, (1 + as much) / (1 + shifts)
    state_explained: np.ndarray  # the share of the entropy of "this state or another" that time explains, (K,)
    state_chance: np.ndarray  # its mean over shifts, (K,)
    state_p: np.ndarray  # as `p`, (K,)
    state_q: np.ndarray  # `state_p` corrected for the number of states (Benjamini and Hochberg 1995), (K,)
    permutations: int


@dataclass(frozen=True)
class Shares:
    """Mean share of each state in each bin, each life weighing equally, and 95% bands. T bins, K states."""

    edges: np.ndarray  # of the bins, (T + 1,), in shares of a life or in ticks
    mean: np.ndarray  # (T, K); NaN where no life is in the bin
    low: np.ndarray  # (T, K); NaN where no band can be told: one life, or all resamples agree
    high: np.ndarray
    lives: np.ndarray  # with ticks in the bin, (T,) int64


def shares(sequences: LabelSequences, edges: np.ndarray, shown: np.ndarray, bootstrap: Bootstrap) -> Shares:
    """Return each state's share in each bin, with bands from resampling episodes, then lives within them.

    `edges` are in records of each life, (L, T + 1), `shown` the same as they are to be shown, (T + 1,).
    """
    width = np.diff(edges, axis=1)  # (L, T)
    present = width > 0
    weights = bootstrap.draw(sequences.units).episodes if len(sequences) > 1 else np.empty((0, len(sequences)))
    lives, drawn = present.sum(axis=0), weights @ present  # (T,), (R, T)
    parts = []
    for state in range(len(sequences.labels)):
        share = _share(sequences, state, edges, np.zeros(len(sequences), np.int64))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, resampled = share.sum(axis=0) / lives, weights @ share / drawn
        parts.append((mean, *band(resampled, bootstrap)))
    mean, low, high = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
    return Shares(shown, mean, low, high, lives)


def band(resampled: np.ndarray, bootstrap: Bootstrap) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval of each bin, NaN where some resample had no life in it, (R, T) to (T,) twice."""
    known = np.isfinite(resampled).all(axis=0) & (len(resampled) > 0)
    low, high = np.full((2, resampled.shape[1]), np.nan)
    if known.any():
        low[known], high[known] = bootstrap.interval(resampled[:, known])
    return low, high


def association(
    sequences: LabelSequences, edges: np.ndarray, permutations: int, seed: int, progress: Progress | None = None
) -> Association:
    """Test whether bins of time and clusters go together, against circular shifts of each life's labels.

    `edges` are in records of each life, (L, T + 1).
    """
    rng = np.random.default_rng(seed)
    unmoved = np.zeros(len(sequences), np.int64)
    observed = _explained(_joint(sequences, edges, unmoved))  # (1 + K,)
    null = np.empty((permutations, len(observed)))
    for i in range(permutations):
        null[i] = _explained(_joint(sequences, edges, rng.integers(sequences.lengths)))
        if progress:
            progress((i + 1) / permutations)
    as_much = (null >= observed - _ROUNDING_OF_SHARES).sum(axis=0)
    p = np.where(np.isnan(observed), 1.0, (1 + as_much) / (1 + permutations))
    chance = null.mean(axis=0)
    return Association(
        explained=float(observed[0]), chance=float(chance[0]), chance_high=float(np.quantile(null[:, 0], 0.95)),
        p=float(p[0]), state_explained=observed[1:], state_chance=chance[1:], state_p=p[1:],
        state_q=stats.false_discovery_control(p[1:]), permutations=permutations,
    )  # fmt: skip


def _share(sequences: LabelSequences, state: int, edges: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return the share of each life's bin that a state takes, 0 where the life has no tick in the bin, (L, T)."""
    width = np.diff(edges, axis=1)
    time = sequences.time_in(state, edges, shift)
    return np.divide(time, width, out=np.zeros_like(time), where=width > 0)


def _joint(sequences: LabelSequences, edges: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return how probable each bin and state are together, each life weighing equally in each bin, (T, K)."""
    present = np.count_nonzero(np.diff(edges, axis=1) > 0)
    states = range(len(sequences.labels))
    together = np.stack([_share(sequences, state, edges, shift).sum(axis=0) for state in states], axis=1)
    return np.maximum(together, 0.0) / max(present, 1)


def _explained(joint: np.ndarray) -> np.ndarray:
    """Return the share of entropy that bins explain: of all states together, then of each against the rest, (1 + K,).

    NaN where there is no entropy to explain.
    """
    bins, states = joint.sum(axis=1), joint.sum(axis=0)  # (T,), (K,)
    rest = np.maximum(bins[:, None] - joint, 0.0)
    entropy = np.append(entr(states).sum(), entr(states) + entr(rest.sum(axis=0)))
    together = np.append(entr(joint).sum(), (entr(joint) + entr(rest)).sum(axis=0))
    information = np.maximum(entr(bins).sum() + entropy - together, 0.0)
    return np.divide(information, entropy, out=np.full(len(entropy), np.nan), where=entropy > _ROUNDING_OF_SHARES)
