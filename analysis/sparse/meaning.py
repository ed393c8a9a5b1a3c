"""What each sparse feature goes with: its best behavioural description, chosen on some episodes, tested on others.

A feature's behaviour is the one whose values, after taking out what tick and age explain, correlate most with the
feature's strength in the training episodes. On the test episodes the correlation is measured again, and tested by
shifting the behaviour in a circle within each life, all lives independently, as the analysis of clusters does. q-values
correct for all living features. What a feature goes with is put into words by template, from these numbers alone, and
onto cards with its top records in different lives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from activation_store.reader import Progress, read_dump
from activation_store.schema import DumpMetadata
from activation_store.selection import Gathering, select
from activation_store.sparse_dictionary import feature_name
from analysis.explorer.views import view_tables
from analysis.features.feature import YES_OR_NO, Feature
from analysis.features.observed import Observed, own_truth_columns
from analysis.sparse.states import Behaviours
from analysis.statistics.inference import FEWEST_LIVES, LEVEL, false_discovery
from common.number_text import share_text

PERMUTATIONS = 999
WEAKEST = 0.1
"""Correlations smaller than this in size do not describe a feature, however significant they are."""

AGE_BINS = 20
"""Parts of a life, of equal length, for which a feature's density is reported."""

_TINY = 1e-12
_STRONG, _MODERATE = 0.5, 0.3
_CONCENTRATED = 2.0
TOP = 6
"""Top records of each feature, each of another life."""
BESIDE = ("cosine", "cosine_q", "value_effect", "action_effect")
"""Further numbers of each feature: cosine with its partner in the autoencoder with another seed; q of this cosine
against those on a Gaussian; and what taking the feature out of a state in which it is active changes on average: the
critic's value, and the log-probability of the action that was taken, in nats."""


@dataclass(frozen=True, eq=False)
class Meanings:
    """What each feature goes with in the test episodes; F features."""

    best: np.ndarray  # index of the behaviour chosen in the training episodes, (F,) int64
    correlation: np.ndarray  # of strength and behaviour, (F, N) for N behaviours
    given_time: np.ndarray  # of strength and what tick and age leave of the behaviour, (F, N)
    auc: np.ndarray
    """Probability that the behaviour is higher in a record in which the feature is active than in one in which it is
    not; a half for ties, (F, N)."""
    p: np.ndarray  # of the best behaviour, (F,); NaN where too few lives carry information
    q: np.ndarray  # corrected for all features, (F,)
    described: np.ndarray
    """Whether q is up to 5%, neither correlation is weak, and both have the sign of the training episodes, as does what
    is tested, the sum within lives, (F,) bool."""
    density: np.ndarray  # share of the test records in which each feature is active, (F,)
    by_age: np.ndarray  # the same for each part of a life, (F, AGE_BINS)
    strongest: np.ndarray  # the largest strength, (F,)


def meanings(
    training: tuple[sparse.csr_array, Behaviours], test: tuple[sparse.csr_array, Behaviours], seed: int
) -> Meanings:
    """Describe features: choose behaviours in the training episodes, and test them in the others.

    Args:
        training: strengths, (B, F), and behaviours.
        test: the same of the test episodes.
    """
    chosen = correlations(training[0], training[1].rest)
    best = np.argsort(-np.abs(chosen), axis=1, kind="stable")[:, 0]
    strengths, behaviours = test
    correlation, given_time = (correlations(strengths, values) for values in (behaviours.values, behaviours.rest))
    feature = np.arange(len(best))
    p, within_lives = shift_test(strengths, behaviours.rest, best, behaviours, seed)
    q = false_discovery(p)
    both = np.stack([correlation[feature, best], given_time[feature, best]])  # (2, F)
    sizes, sign = np.abs(both).min(axis=0), np.sign(chosen[feature, best])
    # What is higher late in lives, or in some lives, may go the other way at one age, or within each life.
    same_sign = (np.sign([*both, within_lives]) == sign).all(axis=0)
    active = strengths.copy()
    active.data = (active.data > 0).astype(np.float64)
    count, inside = strengths.shape[0], np.asarray(active.sum(axis=0)).ravel()
    pairs = (inside * (count - inside))[:, None]
    ranks = np.column_stack([rankdata(column) for column in behaviours.values.T])
    wins = active.T @ ranks - (inside * (inside + 1) / 2)[:, None]
    auc = np.divide(wins, pairs, out=np.full(wins.shape, 0.5), where=pairs > 0)
    return Meanings(
        best=best, correlation=correlation, given_time=given_time,
        auc=auc, p=p, q=q, described=(q <= LEVEL) & (sizes >= WEAKEST) & same_sign,
        density=inside / count, by_age=_by_age(active, behaviours),
        strongest=strengths.max(axis=0).toarray().ravel(),
    )  # fmt: skip


def shift_test(
    strengths: sparse.csr_array, rest: np.ndarray, best: np.ndarray, behaviours: Behaviours, seed: int,
    permutations: int = PERMUTATIONS,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the p-value of each feature with its behaviour, two-sided, and the statistic that is tested, (F,) each.

    The statistic is a t-statistic with lives as units: the sum over lives of strength times the behaviour's deviation
    from its mean in the life, over the root of the sum of squares.
    """
    lives = behaviours.states.lives
    life_of_place = lives.index_in_order
    ordered = rest[lives.order].astype(np.float64)
    means = np.stack([np.bincount(life_of_place, column) for column in ordered.T], axis=1) / lives.lengths[:, None]
    ordered -= means[life_of_place]
    place_of = np.empty(len(lives.order), np.int64)
    place_of[lives.order] = np.arange(len(lives.order))
    entries = strengths.tocoo()
    place, feature = place_of[entries.row], entries.col
    life = life_of_place[place]
    cell, index = np.unique(feature.astype(np.int64) * len(lives) + life, return_inverse=True)
    cell_feature = cell // len(lives)
    column = best[feature]
    start, length = lives.starts[life], lives.lengths[life]

    def statistic(shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = start + (place - start + shift[life]) % length
        sums = np.bincount(index, entries.data * ordered[moved, column], len(cell))
        total = np.bincount(cell_feature, sums, strengths.shape[1])
        squares = np.bincount(cell_feature, sums**2, strengths.shape[1])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(squares > _TINY, total / np.sqrt(squares), 0.0), sums

    observed, sums = statistic(np.zeros(len(lives), np.int64))
    informative = np.bincount(cell_feature, np.abs(sums) > _TINY, strengths.shape[1])
    random = np.random.default_rng(seed)
    reached = np.zeros(strengths.shape[1])
    for _ in range(permutations):
        reached += np.abs(statistic(random.integers(lives.lengths))[0]) >= np.abs(observed) - _TINY
    p = (reached + 1) / (permutations + 1)
    return np.where(informative >= FEWEST_LIVES, p, np.nan), observed


def correlations(strengths: sparse.csr_array, values: np.ndarray) -> np.ndarray:
    """Return the correlations of strengths, (B, F), and values, (B, N): (F, N); 0 where one does not vary."""
    count = len(values)
    strengths = strengths.astype(np.float64)  # scipy adds up a column in its own precision
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    mean = np.asarray(strengths.sum(axis=0)).ravel() / count
    squares = np.asarray(strengths.multiply(strengths).sum(axis=0)).ravel() / count
    spread = np.sqrt(np.maximum(squares - mean**2, 0))[:, None] * centred.std(axis=0)
    return np.divide(strengths.T @ centred / count, spread, out=np.zeros_like(spread), where=spread > _TINY)


def _by_age(active: sparse.csr_array, behaviours: Behaviours) -> np.ndarray:
    """Return the share of records in which features are active, for each part of a life, (F, AGE_BINS)."""
    lives = behaviours.states.lives
    longest = np.zeros(len(lives), np.int64)
    np.maximum.at(longest, lives.index, behaviours.age)
    part = behaviours.age * AGE_BINS // (longest[lives.index] + 1)
    member = sparse.csr_array((np.ones(len(part)), (part, np.arange(len(part)))), (AGE_BINS, len(part)))
    counts = np.maximum(np.bincount(part, minlength=AGE_BINS), 1)
    return (member @ active).toarray().T / counts


def title(meanings: Meanings, number: int, behaviours: tuple[Feature, ...]) -> str:
    """Return a short name, such as "high self_food" or "not described"."""
    if meanings.density[number] == 0:
        return "never active in the test episodes"
    if not meanings.described[number]:
        return "not described"
    best = int(meanings.best[number])
    return _phrase(behaviours[best], meanings.correlation[number, best])


def description(meanings: Meanings, number: int, behaviours: tuple[Feature, ...]) -> str:
    """Return one or two sentences on when a feature is active and what it goes with."""
    if meanings.density[number] == 0:
        return "It is never active in the test episodes."
    by_age = meanings.by_age[number]
    thirds = np.array([part.mean() for part in np.array_split(by_age, 3)])
    most = int(thirds.argmax())
    clear = not thirds[most] < _CONCENTRATED * np.delete(thirds, most).mean()
    where = f", mostly in the {('first', 'second', 'last')[most]} third of lives" if clear else ""
    when = f"Active in {share_text(float(meanings.density[number]))} of ticks{where}."
    best, q = int(meanings.best[number]), meanings.q[number]
    behaviour, q_text = behaviours[best], f"{q:.3f}" if q >= 0.001 else "below 0.001"
    r, given, auc = (measure[number, best] for measure in (meanings.correlation, meanings.given_time, meanings.auc))
    if not meanings.described[number]:
        reason = f"does so no more than chance would (q {q_text})"
        if not np.isfinite(q):
            reason = "varies in too few of the lives in which the feature is active"
        elif min(abs(r), abs(given)) < WEAKEST:
            reason = f"has a correlation below {WEAKEST:g}"
        elif q <= LEVEL:
            reason = "goes the other way at the same tick and age, within lives or in the training episodes"
        return f"{when} It goes with none of the {len(behaviours)} behaviours: the best, {behaviour.name}, {reason}."
    how = "strongly" if abs(r) >= _STRONG else "moderately" if abs(r) >= _MODERATE else "weakly"
    return (
        f"{when} It goes {how} with {_phrase(behaviour, r)} (r {r:+.2f}, AUC {auc:.2f}), also at the same tick and age "
        f"(r {given:+.2f}, q {q_text})."
    )


def _phrase(behaviour: Feature, r: float) -> str:
    if behaviour.unit == YES_OR_NO:
        return behaviour.name if r > 0 else f"not {behaviour.name}"
    return f"{'high' if r > 0 else 'low'} {behaviour.name}"


def top_records(
    strengths: sparse.csr_array, behaviours: Behaviours, features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the records of different lives in which each of some features is strongest.

    Returns:
        Feature and record of each, (R,) int64, by record, ascending.
    """
    columns = strengths.tocsc()
    life = behaviours.states.lives.index
    found_features, found_records = [], []
    for feature in features.tolist():
        own = slice(columns.indptr[feature], columns.indptr[feature + 1])
        rows, values = columns.indices[own], columns.data[own]
        order = np.argsort(-values, kind="stable")
        _, first = np.unique(life[rows[order]], return_index=True)
        chosen = rows[order[np.sort(first)[:TOP]]]
        found_records.append(chosen)
        found_features.append(np.full(len(chosen), feature))
    feature, record = (np.concatenate([[], *parts]).astype(np.int64) for parts in (found_features, found_records))
    order = np.argsort(record, kind="stable")
    return feature[order], record[order]


def feature_cards(
    folder: Path, metadata: DumpMetadata, episodes: Sequence[int], strengths: sparse.csr_array, behaviours: Behaviours,
    meanings: Meanings, features: tuple[Feature, ...], more_columns: Mapping[str, np.ndarray],
    progress: Progress,
) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:  # fmt: skip
    """Return what the page shows of every feature that is active in the test episodes.

    Args:
        episodes: the test episodes, in the order of the records.
        strengths: of the test records, (B, F).
        more_columns: further numbers of each feature by name, see `BESIDE`; (F,) each, NaN for none.

    Returns:
        Tables of F features, of R top records of all of them, feature by feature, and of all ticks of these records'
        lives, in which `top.ticks` says how many each has; and F short titles and descriptions.
    """
    alive = np.flatnonzero(meanings.density > 0)
    feature, record = top_records(strengths, behaviours, alive)
    columns = own_truth_columns(metadata)
    gathering = Gathering(
        metadata, select(folder, metadata, layers=[], columns=columns, leave_out=["tables"]), len(record)
    )  # fmt: skip
    for done, episode in enumerate(episodes, start=1):
        records = read_dump(folder, layers=[], columns=columns, leave_out=["tables"], episodes=[episode])
        first = int(np.argmax(behaviours.states.episodes == episode))
        inside = (record >= first) & (record < first + len(records))
        gathering.add(records.take(record[inside] - first))
        progress(done / len(episodes))
    seen = Observed(gathering.finish(), metadata)
    place = np.zeros(strengths.shape[1], np.int64)
    place[alive] = np.arange(len(alive))
    tables = {
        **{f"feature.{name}": column for name, column in _columns(meanings, alive, more_columns).items()},
        "feature.byAge": meanings.by_age[alive].astype(np.float32),
        **view_tables(seen),
        "view.tiles": seen.records.tile[:, :, 2].astype(np.uint8),
        "top.feature": place[feature],
        "top.strength": np.asarray(strengths[record, feature]).ravel().astype(np.float32),
        "top.tick": seen.records.tick,
        "top.agent": seen.records.agent_id,
        "top.episode": seen.records.episode,
        **_traces(strengths, behaviours, meanings, feature, record),
    }
    words = {"titles": title, "descriptions": description}
    texts = {name: [of(meanings, number, features) for number in alive.tolist()] for name, of in words.items()}
    return tables, texts


def rows_of(
    meanings: Meanings, features: tuple[Feature, ...], more_columns: Mapping[str, np.ndarray]
) -> list[dict[str, object]]:
    """Return a row for each feature that is active in the test episodes, for tables."""
    alive = np.flatnonzero(meanings.density > 0)
    columns = _columns(meanings, alive, more_columns)
    numbers = ("density", "strongest", "r", "given", "auc", "q", *BESIDE)
    return [
        {
            "name": feature_name(number),
            **{name: columns[name][i].item() for name in numbers},
            "behaviour": features[int(meanings.best[number])].name,
            "described": bool(meanings.described[number]),
            "title": title(meanings, number, features),
            "description": description(meanings, number, features),
        }
        for i, number in enumerate(alive.tolist())
    ]


def _columns(meanings: Meanings, alive: np.ndarray, more_columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    best = meanings.best[alive]
    return {
        "number": alive, "best": best, "density": meanings.density[alive],
        "strongest": meanings.strongest[alive].astype(np.float64), "r": meanings.correlation[alive, best],
        "given": meanings.given_time[alive, best], "auc": meanings.auc[alive, best], "q": meanings.q[alive],
        "described": meanings.described[alive].astype(np.uint8), **{name: more_columns[name][alive] for name in BESIDE},
    }  # fmt: skip


def _traces(
    strengths: sparse.csr_array, behaviours: Behaviours, meanings: Meanings, top: np.ndarray, record: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the ticks of each top record's life, and tick, strength and behaviour at each of them."""
    lives, columns = behaviours.states.lives, strengths.tocsc()
    life = lives.index[record]
    ticks = lives.lengths[life]
    rows = np.concatenate(
        [[], *(lives.order[lives.starts[one] : lives.starts[one] + lives.lengths[one]] for one in life.tolist())]
    ).astype(np.int64)
    feature = np.repeat(top, ticks)
    strength = np.zeros(len(rows), np.float32)
    order = np.argsort(feature, kind="stable")
    ends = np.searchsorted(feature[order], np.arange(strengths.shape[1] + 1))
    for number in np.unique(top).tolist():
        own = order[ends[number] : ends[number + 1]]
        dense = columns[:, [number]].toarray().ravel()
        strength[own] = dense[rows[own]]
    behaviour = behaviours.values[rows, meanings.best[feature]]
    return {
        "top.ticks": ticks, "trace.tick": behaviours.states.places["tick"][rows],
        "trace.strength": strength, "trace.behaviour": behaviour.astype(np.float32),
    }  # fmt: skip
