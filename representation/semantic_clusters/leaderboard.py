"""Codes beside other ways to divide the same states: which last, which tell behaviour, which are found again."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from activation_store.layers import LSTM_HIDDEN, SEMANTIC_CODE, UNTRAINED
from activation_store.reader import read_dump, read_metadata
from activation_store.records import Records
from analysis.clusters.clustering import hdbscan_labels
from analysis.clusters.projection import umap_embedding
from analysis.codes.content import Step
from analysis.features.observed import Observed
from analysis.lives import Lives, lives_of
from analysis.position import positions
from analysis.runs.codebook_rule import CodebookRule
from analysis.runs.finished_run import FinishedRun
from analysis.runs.propagated_labels import rule_from
from analysis.statistics.resampling import Estimate
from representation.semantic_clusters.fit import FitOptions, fit_codebook
from representation.semantic_clusters.measures import (
    LifeResamples,
    information_beyond_chance,
    perplexity,
    persistence,
    weighted_adjusted_rand,
)
from user_error import UserError

MEASURES = {
    "perplexity": "clusters in use (perplexity)",
    "persistence": "same at the next kept record, beyond chance",
    "behaviour": "behaviour given tick and place, bits",
    "tick": "tick, bits",
    "place": "place, bits",
    "seeds": "agreement of two seeds (ARI)",
    "halves": "agreement of two halves of the lives (ARI)",
}
_TICK_BINS, _PLACE_BINS = 8, 4
_NEIGHBOURS, _MIN_DIST, _SMALLEST, _SAMPLES = 15, 0.1, 15, 5
_STEPS, _STATES = 400, 256
_FEWEST = 200

Labeller = Callable[[np.ndarray], np.ndarray]
Method = Callable[[np.ndarray, Lives, int], Labeller]
"""Fits to activations (B, units) of lives, with a seed; returns what labels any activations."""


@dataclass(frozen=True)
class Row:
    """One way to divide the states.

    Attributes:
        name: of the method.
        clusters: that it found.
        measures: name of `MEASURES` -> estimate.
    """

    name: str
    clusters: int
    measures: dict[str, Estimate]


@dataclass(frozen=True, eq=False)
class Sample:
    """States of whole lives, what their agents did, when and where. N records."""

    records: Records
    lives: Lives
    act: np.ndarray
    tick: np.ndarray
    place: np.ndarray


def leaderboard(
    run: FinishedRun, rule: CodebookRule, most: int, resamples: int, step: Step
) -> tuple[list[Row], int, int]:
    """Compare a semantic run with other methods on the same states.

    Args:
        run: the semantic run.
        rule: its codebook.
        most: states, of whole lives drawn at random.
        resamples: of lives, for the intervals.
        step: shows progress.

    Returns:
        A row for each method, the number of states, and that of their lives.

    Raises:
        UserError: there are too few states, or the hidden state was not recorded.
    """
    layers = read_metadata(run.dump).layers
    hidden = LSTM_HIDDEN if run.clusters.layer == SEMANTIC_CODE else run.clusters.layer
    if hidden not in layers:
        raise UserError(f"{run.dump} holds no layer {hidden}, which the codes are compared with: record it")
    untrained = f"{UNTRAINED}_{hidden}"
    wanted = dict.fromkeys([run.clusters.layer, hidden, *([untrained] if untrained in layers else [])])
    sample = _sample(run, list(wanted), most, step)
    activations, codes = sample.records.activations, len(run.clusters.clusters)
    resampled = LifeResamples(sample.lives.index, resamples, run.seed)
    codebook = partial(_codebook, options=FitOptions(codes=codes, steps=_STEPS, states=_STATES))
    given = rule.labels_of(activations[run.clusters.layer])
    rows = []
    entries: list[tuple[str, Method, np.ndarray, np.ndarray | None]] = [
        ("codes of this run", codebook, activations[hidden], given),
        ("UMAP and HDBSCAN", _umap_hdbscan, activations[hidden], None),
        ("k-means on the state", partial(_k_means, clusters=codes), activations[hidden], None),
    ]
    if untrained in activations:
        entries.append(("codes of an untrained network", codebook, activations[untrained], None))
    for name, method, states, label in entries:
        with step(f"fitting and measuring: {name}"):
            anew = run.clusters.layer == hidden or label is None  # codes that a policy learnt cannot be fitted again
            rows.append(_row(name, method, states, label, sample, resampled, run.seed, anew))
    return rows, len(sample.records), len(sample.lives)


def _sample(run: FinishedRun, layers: list[str], most: int, step: Step) -> Sample:
    metadata = read_metadata(run.dump)
    columns = [name for name in ("row", "col") if name in metadata.columns]
    with step(f"reading {run.dump.name}") as report:
        records = read_dump(
            run.dump, subsample=run.clusters.subsample, layers=layers, columns=columns,
            leave_out=["tables", *(["tile"] if len(columns) == 2 else [])], progress=report,
        )  # fmt: skip
    lives = lives_of(records)
    drawn = np.random.default_rng(run.seed).permutation(len(lives))
    fits = drawn[np.cumsum(lives.lengths[drawn]) <= most]
    records = records.take(np.flatnonzero(np.isin(lives.index, fits)))
    if len(records) < _FEWEST or len(fits) < 2:
        raise UserError(
            f"too few states: --states {most} leaves {len(records)} of whole lives, and {_FEWEST} are needed"
        )
    seen = Observed(records, metadata)
    heads = {head.name for head in metadata.action_heads}
    act = np.zeros(len(records), np.int64)
    if "Move.Direction" in heads:
        act = seen.option("Move.Direction")
    if "Attack.Target" in heads:
        act = 2 * act + seen.chose("Attack.Target")
    row, col = (_bins(each, _PLACE_BINS) for each in positions(records))
    return Sample(records, lives_of(records), act, _bins(records.tick, _TICK_BINS), _PLACE_BINS * row + col)


def _bins(values: np.ndarray, bins: int) -> np.ndarray:
    """Divide values at their quantiles, (B,) int64."""
    inner = np.quantile(values, np.arange(1, bins) / bins)
    return np.searchsorted(inner, values, side="right").astype(np.int64)


def _row(
    name: str, method: Method, states: np.ndarray, label: np.ndarray | None, sample: Sample, resampled: LifeResamples,
    seed: int, anew: bool,
) -> Row:  # fmt: skip
    lives = sample.lives
    if label is None:
        label = method(states, lives, seed)(states)
    label = _from_zero(label)
    following = np.full(len(label), -1)
    same_life = lives.index_in_order[1:] == lives.index_in_order[:-1]
    following[lives.order[:-1][same_life]] = lives.order[1:][same_life]
    nowhere = np.zeros(len(label), np.int64)
    both = sample.tick * (int(sample.place.max()) + 1) + sample.place

    def information(of: np.ndarray, given: np.ndarray) -> Estimate:
        return resampled.estimate(lambda weight: information_beyond_chance(label, of, given, weight, seed))

    measures = {
        "perplexity": resampled.estimate(lambda weight: perplexity(label, weight)),
        "persistence": resampled.estimate(lambda weight: persistence(label, following, weight)),
        "behaviour": information(sample.act, both),
        "tick": information(sample.tick, nowhere),
        "place": information(sample.place, nowhere),
        "seeds": Estimate(float("nan")),
        "halves": Estimate(float("nan")),
    }
    if anew:
        half = np.random.default_rng([seed, 3]).permutation(len(lives)) < len(lives) // 2
        parts = [np.flatnonzero(half[lives.index] == which) for which in (True, False)]
        fits = {
            "seeds": [_from_zero(method(states, lives, seed + number)(states)) for number in (1, 2)],
            "halves": [_from_zero(method(states[own], _of(lives, own), seed)(states)) for own in parts],
        }
        for measure, (first, second) in fits.items():
            measures[measure] = resampled.estimate(partial(weighted_adjusted_rand, first, second))
    return Row(name, len(np.unique(label)), measures)


def _of(lives: Lives, records: np.ndarray) -> Lives:
    kept = np.zeros(len(lives.index), bool)
    kept[records] = True
    return lives.of_records(kept)


def _from_zero(label: np.ndarray) -> np.ndarray:
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


def _codebook(states: np.ndarray, lives: Lives, seed: int, options: FitOptions) -> Labeller:
    ticks = np.empty(len(states), np.int64)  # records kept are far apart, so places in a life stand for ticks
    ticks[lives.order] = np.arange(len(states)) - np.repeat(lives.starts, lives.lengths)
    return fit_codebook(states, lives, 10 * ticks, replace(options), seed).labels


def _umap_hdbscan(states: np.ndarray, lives: Lives, seed: int) -> Labeller:
    points = umap_embedding(states, min(_NEIGHBOURS, len(states) - 1), _MIN_DIST, seed)
    label = hdbscan_labels(points, _SMALLEST, _SAMPLES)
    rule = rule_from(states, label, lives.index)

    def labels_of(activations: np.ndarray) -> np.ndarray:
        return label if activations is states else rule.labels_of(activations)

    return labels_of


def _k_means(states: np.ndarray, lives: Lives, seed: int, clusters: int) -> Labeller:
    from sklearn.cluster import KMeans

    model = KMeans(clusters, n_init=4, random_state=seed % 2**32).fit(states)
    return lambda activations: np.asarray(model.predict(activations), np.int64)
