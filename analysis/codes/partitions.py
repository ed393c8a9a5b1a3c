"""Ways to divide states into groups; each is fitted to states of some lives and can then label any states."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from analysis.clusters.clustering import hdbscan_labels
from analysis.clusters.projection import umap_embedding
from analysis.codes.fit import FitOptions, fit_codebook
from analysis.dynamics.behaviours import DIMENSIONS, STEPS
from analysis.dynamics.neighbours import ward_labels
from analysis.lives import Lives
from analysis.runs.propagated_labels import rule_from

_NEIGHBOURS, _MIN_DIST, _SMALLEST, _SAMPLES = 15, 0.1, 15, 5
_STEPS, _STATES = 400, 256
_FEATURES_A_CODE, _ACTIVE, _STATES_SEEN = 4, 4, 200_000

Labeller = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, Lives, int], Labeller]
"""Fits to states (B, U) of lives, with a seed; returns what labels any states, (N, U) to (N,) int64."""


@dataclass(frozen=True)
class Partition:
    """A way to divide states.

    Attributes:
        name: for tables.
        short: for files and the names of directions.
        of_trajectories: whether it reads `trajectories`, not single states.
    """

    name: str
    short: str
    fit: Fit
    of_trajectories: bool = False


def partitions(groups: int) -> tuple[Partition, ...]:
    """Return the ways to divide states that a leaderboard compares with semantic codes.

    Args:
        groups: wanted, for the ways that take a number.
    """
    features = _FEATURES_A_CODE * groups
    return (
        Partition("UMAP and HDBSCAN", "hdbscan", _umap_hdbscan),
        Partition("k-means on the state", "kmeans", partial(_k_means, groups=groups)),
        Partition("behaviours (trajectories, Ward)", "behaviours", partial(_behaviours, groups=groups), True),
        Partition("strongest sparse feature", "sparse", partial(_strongest_feature, features=features)),
    )


def codebook(groups: int) -> Fit:
    """Return the fit of a semantic codebook, smaller than that of `semantic_clusters.py fit`."""
    return partial(_codebook, options=FitOptions(codes=groups, steps=_STEPS, states=_STATES))


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
    place = np.empty(len(states), np.int64)
    place[lives.order] = np.arange(len(states)) - np.repeat(lives.starts, lives.lengths)
    earlier = [lives.order[lives.starts[lives.index] + np.maximum(place - step, 0)] for step in STEPS]
    return np.concatenate([z, *(z - z[index] for index in earlier)], axis=1).astype(np.float32)


def _codebook(states: np.ndarray, lives: Lives, seed: int, options: FitOptions) -> Labeller:
    ticks = np.empty(len(states), np.int64)  # records kept are far apart, so places in a life stand for ticks
    ticks[lives.order] = np.arange(len(states)) - np.repeat(lives.starts, lives.lengths)
    return fit_codebook(states, lives, 10 * ticks, options, seed).labels


def _umap_hdbscan(states: np.ndarray, lives: Lives, seed: int) -> Labeller:
    points = umap_embedding(states, min(_NEIGHBOURS, len(states) - 1), _MIN_DIST, seed)
    label = hdbscan_labels(points, _SMALLEST, _SAMPLES)
    rule = rule_from(states, label, lives.index)

    def labels_of(activations: np.ndarray) -> np.ndarray:
        return label if activations is states else rule.labels_of(activations)

    return labels_of


def _k_means(states: np.ndarray, lives: Lives, seed: int, groups: int) -> Labeller:
    return k_means(states, groups, seed)


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
    from analysis.sparse.training import Plan, normalisation, train

    normal = normalisation(states, seed)
    plan = Plan("topk", features, min(_ACTIVE, features), seed, max(1, _STATES_SEEN // len(states)))
    parameters = train(plan, states, normal, unfinished=None).parameters

    def labels_of(activations: np.ndarray) -> np.ndarray:
        z = (activations / normal.scale - parameters["centre"]) @ parameters["encoder"].T + parameters[
            "encoder_bias"
        ]  # (N, F)
        return z.argmax(axis=1).astype(np.int64)

    return labels_of
