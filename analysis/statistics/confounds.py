"""Does a cluster mark a behaviour, or only a time of the game, a place, a life, an agent, an episode or a policy?"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse, special

from activation_store.schema import Records
from analysis.lives import Lives
from analysis.position import positions
from analysis.statistics.circular_shift import studentised
from analysis.statistics.inference import FEWEST_LIVES, LEVEL, Inference, false_discovery, information_p
from analysis.statistics.shifts import ShiftedSums, one_hot, ranges, shifted_sums

_NAN = float("nan")


@dataclass(frozen=True)
class Confound:
    """What one variable (tick, row, column, life, agent, episode, map, policy) has in common with a cluster, or all."""

    name: str
    information: float = _NAN
    """Mutual information with all clusters, or what one cluster adds to it, in nats; for one cluster and the life, the
    divergence of its records from all records or from all lives alike, as `confounds` says."""
    share: float = _NAN  # of the most that is possible, 0 to 1
    chance: float = _NAN  # the mean share under the permutation null
    excess: float = _NAN  # (share - chance) / (1 - chance): 0 is chance, 1 the most that is possible; may be below 0
    p: float = _NAN  # one-sided, of the permutation null; NaN for the life itself, which has none
    q: float = _NAN  # p after the correction for all clusters and variables; of the overall row, for all variables
    flagged: bool = False
    """The excess is at least `confounds.LARGE_EXCESS` and, where there is a test, q at most the level."""
    reason: str = ""  # why the numbers are NaN, else ""


LARGE_EXCESS = 0.2
"""Of what is possible beyond chance. A small cluster in one half of 20 equal bins reaches 0.23, in 2 of them 0.77."""

QUANTILES = 20
_ROTATIONS = 99  # they only have to give a mean
_RECEIVED_AT_ONCE = 1 << 24
_COUNTS_AT_ONCE = 1 << 23
_ALIKE = 10  # lives of similar length that exchange with each other


@dataclass(frozen=True)
class Variable:
    """What may lie behind a cluster: its name, and the category of each record, (B,) int64 from 0, none left out.

    Where the dump does not tell it, all records are of one category and `reason` says so.
    """

    name: str
    category: np.ndarray
    reason: str = ""

    @property
    def counts(self) -> np.ndarray:
        """Records in each category, (Z,) int64."""
        return np.bincount(self.category)


@dataclass(frozen=True)
class Confounds:
    """What the variables have in common with all clusters, and with each of them; in order of the variables."""

    overall: tuple[Confound, ...]
    clusters: tuple[tuple[Confound, ...], ...]


_Null = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]
"""Of the labels as they are, the first row, and of M permutations, for C labels, noise among them: information of each
in nats and the most that it can be, (M + 1, C) each, and of all together, (M + 1,). And p of each label, (C,), NaN
where there is no test, and of all together."""


def variables_of(records: Records, lives: Lives) -> tuple[Variable, ...]:
    """Return what is held against clusters: 20 quantiles of tick, row and column; life, agent, episode, map, policy.

    A dump is of one policy, which the report says.
    """
    row, column = positions(records)
    unknown = np.zeros(len(records))
    return (
        Variable("tick", quantile_bins(records.tick)),
        Variable("row", quantile_bins(row)),
        Variable("column", quantile_bins(column)),
        Variable("life", lives.index),
        Variable("agent", _numbered(records.agent_id)),
        Variable("episode", _numbered(records.episode)),
        Variable(
            "map",
            _numbered(records.columns.get("map", unknown)),
            reason="" if "map" in records.columns else "the dump does not record the map",
        ),
        Variable("policy", _numbered(unknown)),
    )


def quantile_bins(values: np.ndarray) -> np.ndarray:
    """Sort records into at most `QUANTILES` bins of the whole dump's values, (B,) int64; equal values share a bin."""
    edges = np.quantile(values, np.linspace(0, 1, QUANTILES + 1)[1:-1])
    return _numbered(np.searchsorted(edges, values, side="left"))


def confounds(variables: tuple[Variable, ...], labels: np.ndarray, lives: Lives, settings: Inference) -> Confounds:
    """Measure the mutual information of clusters with each variable, and hold it against permutations.

    What a cluster adds to the mutual information is the Kullback-Leibler divergence of its records' categories from
    those of the whole dump, in nats; its share is of the most that as many records could have. Overall it is the
    mutual information of the labels, noise being one, as a share of the smaller of both entropies (Cover and Thomas
    2006, section 2.4). The permutations, by what the variable is:

    - what changes within lives (tick, row, column): labels are shifted in a circle within each life, and lives of
      similar length exchange their shares of clusters, each tested by itself; the smaller p is doubled.
    - what holds for a whole life (agent, episode, map, policy): lives of similar length exchange their shares.
    - the life itself: all label sequences in random order, end to end, are rotated by a random number of records, so
      that bouts keep their lengths and fall across lives. That gives the chance level; there is no p-value, as bouts
      end with lives and any lasting cluster would have a small one. A cluster whose bouts last about as long as lives
      cannot be distinguished from one that marks lives, and is flagged. A cluster with a few records of every
      life marks no life, although lives of unequal length have unequal shares of all records. So a cluster is compared
      with all records, and with all lives weighted equally; the smaller of the two confounds is reported.
    """
    clusters = labels.max() + 1
    known = [_reason(variable, clusters, lives) for variable in variables]
    everything = np.where(labels < 0, clusters, labels)
    rows = [
        [Confound(variable.name, reason=reason)] * (clusters + 1)
        if reason
        else _measure(variable, everything, clusters, lives, settings)
        for variable, reason in zip(variables, known, strict=True)
    ]
    overall = _judged([row[-1:] for row in rows])
    columns = _judged([row[:-1] for row in rows])
    return Confounds(tuple(row[0] for row in overall), tuple(zip(*columns, strict=True)))


def information(counts: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return the Kullback-Leibler divergence of histograms from that of all records, in nats, (..., Z) to (...).

    Counts are (..., Z), those of all records (Z,), all positive.
    """
    size = np.maximum(counts.sum(axis=-1), np.finfo(float).tiny)
    expected = (whole / whole.sum()).astype(np.float64)
    return special.rel_entr(counts / size[..., None], expected).sum(axis=-1)


def most_possible(sizes: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return the most that `information` can be for clusters of given sizes, (K,), in nats.

    All in the smallest category, or, where that cannot hold them, all of some categories: ln(N / size).
    """
    return np.log(whole.sum() / np.maximum(sizes, whole.min()))


def _reason(variable: Variable, clusters: int, lives: Lives) -> str:
    if clusters == 0:
        return "there is no cluster"
    if len(lives) < FEWEST_LIVES:
        return f"there are fewer than {FEWEST_LIVES} lives"
    if variable.reason:
        return variable.reason
    if len(variable.counts) < 2:
        return f"all records have the same {variable.name}"
    if variable.name != "life" and len(variable.counts) == len(lives) and _constant_in_lives(variable, lives):
        return f"every life has its own {variable.name}: see life"
    return ""


def _measure(
    variable: Variable, labels: np.ndarray, clusters: int, lives: Lives, settings: Inference
) -> list[Confound]:
    """Return what a variable has in common with each cluster, and last with all labels; q and flag still to come."""
    measure = _against_rotations if variable.name == "life" else _against_exchanges
    nats, most, mutual, p, p_overall = measure(variable, labels, lives, settings)
    own = [_confound(variable.name, nats[:, i], most[:, i], p[i]) for i in range(clusters)]
    possible = min(
        float(special.entr(counts / counts.sum()).sum()) for counts in (variable.counts, np.bincount(labels))
    )
    return [*own, _confound(variable.name, mutual, np.full(len(mutual), possible), p_overall)]


def _confound(name: str, nats: np.ndarray, possible: np.ndarray, p: float) -> Confound:
    """Make a confound of information and the most that is possible, (M + 1,) each, the first observed."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(possible > 0, nats / possible, 0.0)
    share, chance = float(shares[0]), float(shares[1:].mean())
    excess = (share - chance) / (1 - chance) if chance < 1 - 1e-9 else 0.0
    return Confound(name, float(nats[0]), share, chance, excess, float(p))


def _judged(rows: list[list[Confound]]) -> list[list[Confound]]:
    """Correct all p-values for being many, and flag what is large and, where there is a test, sure."""
    q = false_discovery(np.array([[confound.p for confound in row] for row in rows]))
    return [
        [
            replace(confound, q=float(value), flagged=bool(confound.excess >= LARGE_EXCESS and not value > LEVEL))
            for confound, value in zip(row, values, strict=True)
        ]
        for row, values in zip(rows, q, strict=True)
    ]


def _against_exchanges(variable: Variable, labels: np.ndarray, lives: Lives, settings: Inference) -> _Null:
    """Exchange lives' shares of clusters between lives and, where the variable changes within lives, shift labels."""
    whole, count, draws = variable.counts, labels.max() + 1, settings.permutations + 1
    between, nats, between_sizes, sizes, score = np.zeros((5, draws, count))
    informative = np.zeros(count, np.int64)
    shifts: Iterator[ShiftedSums] | None = None
    if not _constant_in_lives(variable, lives):
        shifts = shifted_sums(one_hot(variable.category), labels, lives, settings.permutations, settings.seed)
    # Which share of each life's records has each label, (C, L): most lives lack most labels.
    pair, records = np.unique(lives.index * count + labels, return_counts=True)
    life = pair // count
    shares = sparse.csr_array(
        ((records / lives.lengths[life]).astype(np.float32), (pair % count, life)), shape=(count, len(lives))
    )  # fmt: skip
    joint = np.bincount(lives.index * len(whole) + variable.category, minlength=len(lives) * len(whole))
    joint = joint.reshape(len(lives), len(whole)).astype(np.float32)
    receivers = _receivers(lives, settings)
    # A few labels at a time: all permutations of thousands of clusters at once would fill the memory.
    at_once = max(1, _COUNTS_AT_ONCE // (draws * len(whole)))
    for some in np.split(np.arange(count), range(at_once, count, at_once)):
        counts = _exchanged(shares[some], joint, receivers)  # (M + 1, labels, Z)
        between[:, some], between_sizes[:, some] = information(counts, whole), counts.sum(axis=2)
        for i, sums in zip(some, itertools.islice(shifts or (), len(some)), strict=False):
            counts[:, i - some[0]] += sums.total
            score[:, i] = (studentised(sums) ** 2).sum(axis=1)
            informative[i] = sums.informative.max()
        np.maximum(counts, 0, out=counts)
        nats[:, some], sizes[:, some] = information(counts, whole), counts.sum(axis=2)
    overall = _mutual(between, between_sizes)
    p, p_overall = information_p(between[0], between[1:]), information_p(overall[0], overall[1:])
    testable = informative >= FEWEST_LIVES
    if testable.any():
        p = np.where(testable, _smaller(p, information_p(score[0], score[1:])), p)
        total = score.sum(axis=1)
        p_overall = _smaller(p_overall, information_p(total[0], total[1:]))
    return nats, most_possible(sizes, whole), _mutual(nats, sizes), p, float(p_overall)


def _mutual(nats: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the mutual information of labels, (M + 1,), of what each adds and its records, (M + 1, C) each."""
    return (nats * sizes).sum(axis=1) / sizes.sum(axis=1)


def _smaller(p: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the p-value of two tests together: the smaller doubled (Bonferroni)."""
    return np.minimum(1.0, 2 * np.minimum(p, other))


def _exchanged(shares: sparse.csr_array, joint: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Return the records of labels and each category if lives had each other's shares of them, (M + 1, labels, Z).

    `shares` are of each life's records in each label, (labels, L); `joint` counts the records of each life and
    category, (L, Z) float32; `receivers` are the lives that get each life's shares, (M + 1, L).
    """
    labels, categories = shares.shape[0], joint.shape[1]
    result = np.empty((len(receivers), labels, categories))
    at_once = max(1, _RECEIVED_AT_ONCE // max(joint.size, labels * categories))  # draws
    for first in range(0, len(receivers), at_once):
        some = receivers[first : first + at_once]
        received = joint[some.T].reshape(len(joint), -1)  # (L, draws * Z)
        counts = (shares @ received).reshape(labels, len(some), categories)
        result[first : first + len(some)] = counts.transpose(1, 0, 2)
    return result


def _receivers(lives: Lives, settings: Inference) -> np.ndarray:
    """Return who gets each life's shares: first itself, then lives of similar length, (M + 1, L).

    Others would not do: a short life is more likely to be all in one cluster.
    """
    rng = np.random.default_rng([settings.seed, 1])
    by_length = np.argsort(lives.lengths, kind="stable")
    group = np.arange(len(lives)) // _ALIKE
    receivers = np.empty((settings.permutations + 1, len(lives)), np.int64)
    receivers[0] = np.arange(len(lives))
    for receiver in receivers[1:]:
        receiver[by_length[np.argsort(group + rng.random(len(lives)))]] = by_length
    return receivers


def _constant_in_lives(variable: Variable, lives: Lives) -> bool:
    ordered = variable.category[lives.order]
    return bool((ordered == np.repeat(ordered[lives.starts], lives.lengths)).all())


def _against_rotations(variable: Variable, labels: np.ndarray, lives: Lives, settings: Inference) -> _Null:
    rng = np.random.default_rng([settings.seed, 2])
    ordered, life, count = labels[lives.order], lives.index_in_order, labels.max() + 1
    alike = np.ones(len(lives), np.int64)
    of_records, of_lives, mutual = [], [], []
    for draw in range(min(settings.permutations, _ROTATIONS) + 1):
        placed = ordered
        if draw:  # whole lives in random order
            order = rng.permutation(len(lives))
            placed = ordered[ranges(lives.starts[order], lives.lengths[order])]
            placed = np.roll(placed, rng.integers(len(ordered)))
        counts = np.bincount(placed * len(lives) + life, minlength=count * len(lives)).reshape(count, len(lives))
        of_records.append(information(counts, lives.lengths))
        of_lives.append(information(counts, alike))
        mutual.append(_mutual(of_records[-1][None], counts.sum(axis=1)[None])[0])
    sizes = np.bincount(labels)
    # The most that as many records can differ from all lives alike: if they fill the longest lives.
    lengths = np.sort(lives.lengths)[::-1]
    filled = np.clip(sizes[:, None] - (np.cumsum(lengths) - lengths), 0, lengths)
    most_of_lives = information(filled, alike)
    pairs = (np.array(of_records), most_possible(sizes, lives.lengths)), (np.array(of_lives), most_of_lives)
    lesser = _excess(*pairs[0]) <= _excess(*pairs[1])
    nats = np.where(lesser, pairs[0][0], pairs[1][0])
    possible = np.broadcast_to(np.where(lesser, pairs[0][1], pairs[1][1]), nats.shape)
    return nats, possible, np.array(mutual), np.full(count, np.nan), _NAN


def _excess(nats: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """Return how far the first row exceeds the mean of the others, of what is possible beyond that mean, (C,)."""
    chance = nats[1:].mean(axis=0)
    return (nats[0] - chance) / np.maximum(possible - chance, np.finfo(float).tiny)


def _numbered(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
