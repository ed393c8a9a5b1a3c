"""Ways to divide states into groups, and measures of the groups, with 95% intervals from resampling lives.

Labels of B records, and other numbers that divide them, are (B,) int64 from 0; their weights are (B,).
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial

import numpy as np

from analysis.clusters.embeddings import umap_embedding
from analysis.clusters.projection import hdbscan_labels
from analysis.codes.fit import TICKS_APART, fit_codebook
from analysis.dynamics.decompositions import Scale, decompose
from analysis.dynamics.neighbours import DIMENSIONS, STEPS, ward_labels
from analysis.lives import Lives
from analysis.runs.propagated_labels import rule_from
from analysis.statistics.resampling import Estimate, draws_of

_NEIGHBOURS, _MIN_DIST, _SMALLEST, _SAMPLES = 15, 0.1, 15, 5
_STEPS, _STATES = 400, 256
_FEATURES_A_CODE, _ACTIVE, _STATES_SEEN = 4, 4, 200_000

Labeller = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, Lives, int], Labeller]
"""Fits to states (B, U) of lives, with a seed; returns what labels any states, (N, U) to (N,) int64."""


@dataclass(frozen=True)
class Partition:
    """A way to divide states."""

    name: str  # for tables
    short: str  # for files and the names of directions
    fit: Fit
    of_trajectories: bool = False  # whether it reads `trajectories`, not single states


def partitions(groups: int) -> tuple[Partition, ...]:
    """Return the ways to divide states that a leaderboard compares with semantic codes."""
    features = _FEATURES_A_CODE * groups
    return (
        Partition("UMAP and HDBSCAN", "hdbscan", _umap_hdbscan),
        Partition("k-means on the state", "kmeans", lambda states, _, seed: k_means(states, groups, seed)),
        Partition("behaviours (trajectories, Ward)", "behaviours", partial(_behaviours, groups=groups), True),
        Partition("strongest sparse feature", "sparse", partial(_strongest_feature, features=features)),
        Partition("strongest component (ICA)", "components", partial(_strongest_component, components=features // 2)),
    )


def codebook(groups: int) -> Fit:
    """Return the fit of a semantic codebook, smaller than that of `semantic_clusters.py fit`."""

    def fit(states: np.ndarray, lives: Lives, seed: int) -> Labeller:
        ticks = TICKS_APART * _place_in_life(lives)  # records kept are far apart
        return fit_codebook(states, lives, ticks, seed, codes=groups, steps=_STEPS, states=_STATES)[0].labels_of

    return fit


def k_means(states: np.ndarray, groups: int, seed: int) -> Labeller:
    """Fit K-means to states, (B, U), of any lives."""
    from sklearn.cluster import KMeans

    model = KMeans(groups, n_init=4, random_state=seed % 2**32).fit(states)
    return lambda activations: np.asarray(model.predict(activations), np.int64)


def trajectories(states: np.ndarray, lives: Lives) -> np.ndarray:
    """Return each state beside its differences from those some ticks before, (B, U) to (B, 4 U).

    Where a life is not that old yet, the difference is from its first state.

    Args:
        states: of every tick of whole lives.
    """
    spread = states.std(axis=0)
    z = (states - states.mean(axis=0)) / np.where(spread > 0, spread, 1)
    place = _place_in_life(lives)
    earlier = [lives.order[lives.starts[lives.index] + np.maximum(place - step, 0)] for step in STEPS]
    return np.concatenate([z, *(z - z[index] for index in earlier)], axis=1).astype(np.float32)


def _place_in_life(lives: Lives) -> np.ndarray:
    """Return how many records of its life are before each record, (B,) int64."""
    place = np.empty(len(lives.order), np.int64)
    place[lives.order] = np.arange(len(place)) - np.repeat(lives.starts, lives.lengths)
    return place


def _umap_hdbscan(states: np.ndarray, lives: Lives, seed: int) -> Labeller:
    points = umap_embedding(states, min(_NEIGHBOURS, len(states) - 1), _MIN_DIST, seed)
    label = hdbscan_labels(points, _SMALLEST, _SAMPLES)
    rule = rule_from(states, label, lives.index)

    def labels_of(activations: np.ndarray) -> np.ndarray:
        return label if activations is states else rule.labels_of(activations)

    return labels_of


def _behaviours(states: np.ndarray, lives: Lives, seed: int, groups: int) -> Labeller:
    """Divide trajectories by Ward's method; others belong to the nearest mean. Nothing in it is random."""
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestCentroid

    model = PCA(min(DIMENSIONS, *states.shape), svd_solver="covariance_eigh").fit(states)
    points = model.transform(states)
    label = ward_labels(points, min(groups, len(points)))
    means = NearestCentroid().fit(points, label) if len(np.unique(label)) > 1 else None

    def labels_of(activations: np.ndarray) -> np.ndarray:
        if activations is states or means is None:
            return label if activations is states else np.zeros(len(activations), np.int64)
        return np.asarray(means.predict(model.transform(activations)), np.int64)

    return labels_of


def _strongest_feature(states: np.ndarray, lives: Lives, seed: int, features: int) -> Labeller:
    """Train a small TopK autoencoder; a state belongs to its strongest feature."""
    from analysis.sparse.training import FitPlan, normalisation, train

    normal = normalisation(states, seed)
    plan = FitPlan("topk", features, min(_ACTIVE, features), seed, max(1, _STATES_SEEN // len(states)))
    parameters = train(plan, states, normal, unfinished=None).parameters

    def labels_of(activations: np.ndarray) -> np.ndarray:
        z = (activations / normal.scale - parameters["centre"]) @ parameters["encoder"].T + parameters[
            "encoder_bias"
        ]  # (N, F)
        return z.argmax(axis=1).astype(np.int64)

    return labels_of


def _strongest_component(states: np.ndarray, lives: Lives, seed: int, components: int) -> Labeller:
    """Fit independent components; a state belongs to that which adds most to its z-scores, and to its sign."""
    scale = Scale.of(states)
    model = decompose("ica", scale.z(states), min(components, *states.shape), seed, [])
    size = np.linalg.norm(model.patterns, axis=1)  # (K,)

    def labels_of(activations: np.ndarray) -> np.ndarray:
        added = scale.z(activations) @ model.read_outs.T * size  # (N, K)
        strongest = np.abs(added).argmax(axis=1)
        return 2 * strongest + (added[np.arange(len(added)), strongest] > 0)

    return labels_of


_TAILS = (0.025, 0.975)


class LifeResamples:
    """Weights of records when lives are drawn with replacement. B records, L lives."""

    def __init__(self, life: np.ndarray, resamples: int, seed: int):
        """Draw the resamples.

        Args:
            life: of each record, (B,) int64 from 0 without gaps.
        """
        lives = int(life.max()) + 1
        self.life = life
        self.draws = draws_of(lives, resamples, seed)

    def estimate(self, measure: Callable[[np.ndarray], float]) -> Estimate:
        """Return a measure of all records, and its interval.

        A resample holds fewer different lives than the data, which moves measures such as information and perplexity
        to one side. So the interval is the resamples' percentiles, moved so that their mean is the measure.

        Args:
            measure: of weights of the records, (B,).
        """
        value = measure(np.ones(len(self.life)))
        if self.draws.shape[1] < 2:
            return Estimate(value)
        resampled = np.array([measure(draw[self.life].astype(np.float64)) for draw in self.draws])
        known = resampled[np.isfinite(resampled)]
        low, high = value + np.quantile(known, _TAILS) - known.mean() if len(known) else (np.nan, np.nan)
        return Estimate(value, float(low), float(high))


def estimate_cells(estimate: Estimate) -> list[str]:
    """Return a number and the ends of its interval as cells of a table, empty where there is none."""
    return ["" if np.isnan(number) else f"{number:.4f}" for number in astuple(estimate)]


def perplexity(label: np.ndarray, weight: np.ndarray) -> float:
    """Return the exponential of the entropy of the labels' shares."""
    return float(np.exp(_entropy(np.bincount(label, weights=weight))))


def persistence(label: np.ndarray, following: np.ndarray, weight: np.ndarray) -> float:
    """Return how often a record's next one in its life has its label, beyond chance: 0 is chance, 1 always.

    Chance is two independent draws from all labels (Cohen's kappa 1960).

    Args:
        following: index of the next record of the same life, -1 for none, (B,) int64.
    """
    pairs = np.flatnonzero(following >= 0)
    own, after, weights = label[pairs], label[following[pairs]], weight[pairs]
    total = weights.sum()
    size = int(label.max()) + 1
    before, behind = (np.bincount(partition, weights=weights, minlength=size) / total for partition in (own, after))
    chance = float(before @ behind)
    same = float(weights[own == after].sum() / total)
    return (same - chance) / (1 - chance) if chance < 1 else float("nan")


def conditional_information(label: np.ndarray, act: np.ndarray, stratum: np.ndarray, weight: np.ndarray) -> float:
    """Return the mutual information of labels and acts within strata, in bits: I(label; act | stratum), plug-in."""
    labels, acts, strata = (int(variable.max()) + 1 for variable in (label, act, stratum))
    cells = np.bincount((stratum * labels + label) * acts + act, weights=weight, minlength=strata * labels * acts)
    joint = cells.reshape(strata, labels, acts) / weight.sum()
    of_stratum = joint.sum(axis=(1, 2), keepdims=True)
    expected = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        terms = joint * np.log2(joint * of_stratum / expected)
    return float(np.nansum(terms))


def information_beyond_chance(
    label: np.ndarray, act: np.ndarray, stratum: np.ndarray, weight: np.ndarray, seed: int
) -> float:
    """Return the conditional information minus that of labels shuffled within strata: the bias of the estimate.

    Arguments are as in `conditional_information`; `seed` is of the shuffle.
    """
    random = np.random.default_rng(seed)
    order, shuffled = np.argsort(stratum, kind="stable"), np.lexsort((random.random(len(label)), stratum))
    mixed = np.empty_like(label)
    mixed[order] = label[shuffled]
    return conditional_information(label, act, stratum, weight) - conditional_information(mixed, act, stratum, weight)


def weighted_adjusted_rand(label: np.ndarray, other: np.ndarray, weight: np.ndarray) -> float:
    """Return the adjusted Rand index (Hubert and Arabie 1985) of records that count several times each.

    Args:
        weight: number of copies of each record.
    """
    table = np.bincount(label * (int(other.max()) + 1) + other, weights=weight)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    first, second = (pairs(np.bincount(partition, weights=weight)) for partition in (label, other))
    expected = first * second / pairs(np.array([weight.sum()]))
    most = (first + second) / 2
    return (pairs(table) - expected) / (most - expected) if most > expected else float("nan")


def normalised_information(label: np.ndarray, other: np.ndarray, weight: np.ndarray) -> float:
    """Return the mutual information of two partitions over the mean of their entropies: 0 to 1, NaN without entropy.

    Unlike the adjusted Rand index it is not corrected for chance, and larger where there are more groups.
    """
    table = np.zeros((int(label.max()) + 1, int(other.max()) + 1))
    np.add.at(table, (label, other), weight)
    joint, first, second = (_entropy(table.sum(axis=axis).ravel()) for axis in ((), 1, 0))
    return 2 * (first + second - joint) / (first + second) if first + second > 0 else float("nan")


def _entropy(weight: np.ndarray) -> float:
    """Return the entropy of shares with these weights, in nats."""
    shares = weight[weight > 0] / weight.sum()
    return float(-(shares * np.log(shares)).sum())
