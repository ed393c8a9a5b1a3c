"""Does a cluster mark a behaviour, or only a time of the game, a place, a life, an agent, an episode or a policy?"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse, special

from activation_store.schema import TILE_COLUMNS, TILES_IN_VIEW, Records
from analysis.inference import FEWEST_LIVES, LEVEL, Inference, false_discovery
from analysis.lives import Lives
from analysis.shift_test import counted_p, studentised
from analysis.shifts import one_hot, shifted_sums
from analysis.summary import Confound

LARGE_EXCESS = 0.2
"""Of what is possible beyond chance. A small cluster in one half of 20 equal bins reaches 0.23, in 2 of them 0.77."""

QUANTILES = 20
_ROTATIONS = 99  # they only have to give a mean


@dataclass(frozen=True)
class Variable:
    """What may lie behind a cluster: its name, and the category of each record, (B,) int64 from 0, none left out."""

    name: str
    category: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Records in each category, (Z,) int64."""
        return np.bincount(self.category)


@dataclass(frozen=True)
class Confounds:
    """What the variables have in common with all clusters, and with each of them; in order of the variables."""

    overall: tuple[Confound, ...]
    clusters: tuple[tuple[Confound, ...], ...]


@dataclass(frozen=True)
class _Null:
    """Information of the labels as they are and of M permutations, in nats, and p-values; C labels, noise among them.

    Attributes:
        information: of each label, (M + 1, C); the first row is observed.
        sizes: records of each label, (M + 1, C).
        p: of each label, (C,).
        p_overall: of all labels together.
    """

    information: np.ndarray
    sizes: np.ndarray
    p: np.ndarray
    p_overall: float


def variables_of(records: Records, lives: Lives, policy: np.ndarray | None = None) -> tuple[Variable, ...]:
    """Return what is held against clusters: 20 quantiles of tick, row and column; life, agent, episode, map, policy.

    Args:
        policy: of each record, (B,), where a dump joins several; without it all records are of one.
    """
    own_tile = records.tile[:, TILES_IN_VIEW // 2]  # the agent stands in the middle of its view
    maps = records.columns.get("map", np.zeros(len(records)))
    return (
        Variable("tick", quantile_bins(records.tick)),
        Variable("row", quantile_bins(own_tile[:, TILE_COLUMNS.index("row")])),
        Variable("column", quantile_bins(own_tile[:, TILE_COLUMNS.index("col")])),
        Variable("life", lives.index),
        *(
            Variable(name, _numbered(values))
            for name, values in (
                ("agent", records.agent_id),
                ("episode", records.episode),
                ("map", maps),
                ("policy", np.zeros(len(records)) if policy is None else policy),
            )
        ),
    )


def quantile_bins(values: np.ndarray, bins: int = QUANTILES) -> np.ndarray:
    """Sort records into at most `bins` quantiles of the whole dump's values, (B,) int64; equal values share a bin."""
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return _numbered(np.searchsorted(edges, values, side="left"))


def confounds(variables: tuple[Variable, ...], labels: np.ndarray, lives: Lives, settings: Inference) -> Confounds:
    """Measure the mutual information of clusters with each variable, and hold it against permutations.

    What a cluster adds to the mutual information is the Kullback-Leibler divergence of its records' categories from
    those of the whole dump, in nats; its share is of the most that as many records could have. Overall it is the
    mutual information of the labels, noise being one, as a share of the smaller of both entropies (Cover and Thomas
    2006, section 2.4). The permutations, by what the variable is:

    - what changes within lives (tick, row, column): labels are shifted in a circle within each life, and the lives'
      shares of clusters are exchanged between lives, each tested by itself; the smaller p is doubled.
    - what holds for a whole life (agent, episode, map, policy): lives exchange their shares of clusters.
    - the life itself: all label sequences in random order, end to end, are rotated by a random number of records, so
      that bouts keep their lengths and fall across lives. That gives the chance level; there is no p-value, as bouts
      end with lives and any lasting cluster would have a small one. A cluster whose bouts last about as long as lives
      cannot be told from one that marks lives, and is flagged.

    Args:
        labels: (B,) clusters from 0; negative for noise.
    """
    clusters = labels.max() + 1
    known = [_reason(variable, clusters, lives) for variable in variables]
    everything = np.where(labels < 0, clusters, labels)
    rows = [
        [_untold(variable.name, reason)] * (clusters + 1)
        if reason
        else _measure(variable, everything, clusters, lives, settings)
        for variable, reason in zip(variables, known, strict=True)
    ]
    overall = _judged([row[-1:] for row in rows])
    each = _judged([row[:-1] for row in rows])
    return Confounds(tuple(row[0] for row in overall), tuple(zip(*each, strict=True)))


def information(counts: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return the Kullback-Leibler divergence of histograms from that of all records, in nats, (..., Z) to (...).

    Args:
        counts: (..., Z), not negative.
        whole: of all records, (Z,), all positive.
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
    if len(variable.counts) < 2:
        return f"all records have the same {variable.name}"
    if len(lives) < FEWEST_LIVES:
        return f"there are fewer than {FEWEST_LIVES} lives"
    if variable.name != "life" and len(variable.counts) == len(lives) and _constant_in_lives(variable, lives):
        return f"every life has its own {variable.name}: see life"
    return ""


def _measure(
    variable: Variable, labels: np.ndarray, clusters: int, lives: Lives, settings: Inference
) -> list[Confound]:
    """Return what a variable has in common with each cluster, and last with all labels; q and flag still to come."""
    null = (_null_of_life if variable.name == "life" else _null_of_category)(variable, labels, lives, settings)
    whole, sizes = variable.counts, np.bincount(labels)
    each = null.information / most_possible(sizes, whole)
    mutual = (null.information * null.sizes).sum(axis=1) / null.sizes.sum(axis=1)
    possible = min(float(special.entr(counts / counts.sum()).sum()) for counts in (whole, sizes))
    found = [_confound(variable.name, null.information[0, i], each[:, i], float(null.p[i])) for i in range(clusters)]
    return [*found, _confound(variable.name, mutual[0], mutual / possible, null.p_overall)]


def _confound(name: str, nats: float, share: np.ndarray, p: float) -> Confound:
    """Make a confound of shares of what is possible, (M + 1,), the first observed."""
    chance = float(share[1:].mean())
    excess = (float(share[0]) - chance) / (1 - chance) if chance < 1 - 1e-9 else 0.0
    return Confound(name, float(nats), float(share[0]), chance, excess, p, np.nan, False, "")


def _untold(name: str, reason: str) -> Confound:
    nan = float("nan")
    return Confound(name, nan, nan, nan, nan, nan, nan, False, reason)


def _judged(rows: list[list[Confound]]) -> list[list[Confound]]:
    """Correct all p-values for being many, and flag what is large and, where there is a test, sure."""
    q = false_discovery(np.array([[confound.p for confound in row] for row in rows]))
    return [
        [
            replace(each, q=float(value), flagged=bool(each.excess >= LARGE_EXCESS and not value > LEVEL))
            for each, value in zip(row, values, strict=True)
        ]
        for row, values in zip(rows, q, strict=True)
    ]


def _null_of_category(variable: Variable, labels: np.ndarray, lives: Lives, settings: Inference) -> _Null:
    """Exchange lives' shares of clusters between lives and, where the variable changes within lives, shift labels."""
    whole = variable.counts
    between = _exchanged(variable, labels, lives, settings)  # (M + 1, C, Z)
    p, p_overall = _p_of_information(information(between, whole), between.sum(axis=2))
    if _constant_in_lives(variable, lives):
        counts = between
    else:
        counts = between.copy()
        score = np.zeros(between.shape[:2])
        for some, sums in shifted_sums(one_hot(variable.category), labels, lives, settings.permutations, settings.seed):
            counts[:, :, some] += sums.total
            score += (studentised(sums) ** 2).sum(axis=2)
        p = _smaller(p, counted_p(score[0], score[1:]))
        together = score.sum(axis=1)
        p_overall = float(_smaller(np.array(p_overall), counted_p(together[0], together[1:])))
        np.maximum(counts, 0, out=counts)
    return _Null(information(counts, whole), counts.sum(axis=2), p, p_overall)


def _smaller(p: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the p-value of two tests together: the smaller doubled (Bonferroni)."""
    return np.minimum(1.0, 2 * np.minimum(p, other))


def _p_of_information(nats: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, float]:
    mutual = (nats * sizes).sum(axis=1) / sizes.sum(axis=1)
    return counted_p(nats[0], nats[1:]), float(counted_p(mutual[0], mutual[1:]))


def _exchanged(variable: Variable, labels: np.ndarray, lives: Lives, settings: Inference) -> np.ndarray:
    """Return the records of each label and category if lives had each other's shares of labels, (M + 1, C, Z)."""
    rng = np.random.default_rng([settings.seed, 1])
    joint = _by_life(variable.category, lives)  # (L, Z)
    shares = _by_life(labels, lives).toarray() / lives.lengths[:, None]  # (L, C)
    owners = [np.arange(len(lives)), *(rng.permutation(len(lives)) for _ in range(settings.permutations))]
    transposed = joint.T.tocsr()
    return np.stack([(transposed @ shares[owner]).T for owner in owners])


def _by_life(category: np.ndarray, lives: Lives) -> sparse.csr_array:
    """Return the number of records of each life and category, (L, categories)."""
    shape = len(lives), category.max() + 1
    return sparse.csr_array((np.ones(len(category)), (lives.index, category)), shape=shape)


def _constant_in_lives(variable: Variable, lives: Lives) -> bool:
    ordered = variable.category[lives.order]
    return bool((ordered == np.repeat(ordered[lives.starts], lives.lengths)).all())


def _null_of_life(variable: Variable, labels: np.ndarray, lives: Lives, settings: Inference) -> _Null:
    rng = np.random.default_rng([settings.seed, 2])
    ordered, life, count = labels[lives.order], lives.index_in_order, labels.max() + 1
    sizes = np.bincount(labels).astype(np.float64)
    nats = []
    for draw in range(min(settings.permutations, _ROTATIONS) + 1):
        placed = ordered if draw == 0 else np.roll(ordered[_in_random_order(lives, rng)], rng.integers(len(ordered)))
        counts = np.bincount(placed * len(lives) + life, minlength=count * len(lives)).reshape(count, len(lives))
        nats.append(information(counts, variable.counts))
    information_of_all = np.array(nats)
    rows = np.broadcast_to(sizes, information_of_all.shape)
    return _Null(information_of_all, rows, np.full(count, np.nan), float("nan"))


def _in_random_order(lives: Lives, rng: np.random.Generator) -> np.ndarray:
    """Return places of records in `lives.order`, whole lives in random order, (B,)."""
    order = rng.permutation(len(lives))
    lengths = lives.lengths[order]
    ends = np.cumsum(lengths)
    return np.repeat(lives.starts[order] - ends + lengths, lengths) + np.arange(ends[-1])


def _numbered(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
