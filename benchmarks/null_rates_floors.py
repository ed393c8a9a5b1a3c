"""Stabilities beside their floor: how often states without structure are called stable, and planted ones are."""

import functools
from dataclasses import replace

import numpy as np

from analysis.dynamics.behaviours import resampled_lives
from analysis.dynamics.decompositions import Decomposition, Scale, decompose
from analysis.dynamics.floors import above_gaussians
from analysis.sparse.report import matched, stability
from analysis.sparse.training import Plan, normalisation, train
from analysis.statistics.cluster_method import ClusterMethod
from analysis.statistics.inference import Inference
from analysis.statistics.stability import exceeds, projection_stability, stability_floor
from analysis.statistics.surrogate import gaussian_surrogate
from tests.planted_lives import make_lives, smooth, values_of

LENGTHS = [15, 40, 5, 20] * 5
UNITS = 6
SPARSE_UNITS, FEATURES, ACTIVE, EPOCHS = 32, 48, 3, 80
"""Of the autoencoders: units of the states, features, active ones of a state, and passes over the states."""


def components(rng: np.random.Generator, settings: Inference, planted: int) -> dict[str, bool]:
    """Mix Gaussian sources that last, and `planted` ones that are mostly silent, and look for stable components."""
    lives = make_lives(LENGTHS)
    sources = values_of(smooth, rng, LENGTHS, UNITS)
    active = rng.random((len(sources), planted)) < 0.2
    sources[:, :planted] = active * rng.laplace(size=active.shape)
    states = sources @ rng.normal(size=(UNITS, UNITS))
    z = Scale.of(states).z(states)
    decomposition = decompose("ica", z, UNITS, settings.seed, resampled_lives(lives.index, 3, settings.seed))
    decomposition = replace(decomposition, stability_q=above_gaussians(decomposition, z, lives, settings.seed)[1])
    return (
        {"component is stable": bool(decomposition.stable.any())}
        if not planted
        else _which(decomposition, sources[:, :planted])
    )


def _which(decomposition: Decomposition, sources: np.ndarray) -> dict[str, bool]:
    """Tell whether the stable components are the planted sources, (B, P)."""
    r = np.abs(np.corrcoef(decomposition.scores.T, sources.T)[: len(decomposition.stable), len(decomposition.stable) :])
    theirs = (r > 0.9).any(axis=1)
    return {
        "all planted ones are stable": bool((theirs & decomposition.stable).sum() == sources.shape[1]),
        "another one is stable": bool((~theirs & decomposition.stable).any()),
    }


def halves(rng: np.random.Generator, settings: Inference, apart: float) -> dict[str, bool]:
    """Cut states in two along their widest axis, where there are two groups so far apart or, at 0, a single cloud."""
    lives = make_lives(LENGTHS * 3)
    states = values_of(smooth, rng, LENGTHS * 3, 3) * [3.0, 1.0, 1.0]
    states[:, 0] += apart * (rng.random(len(states)) < 0.5)
    method = ClusterMethod(_widest, _cut, 50, seeded=False)
    labels = method.cluster(method.embed(states, seed=0))
    result = projection_stability(states, labels, lives, method, settings.seed)
    floor = stability_floor(states, lives, method, settings.seed)
    return {"clusters are beyond the Gaussian's": exceeds(result.over_lives, floor.over_lives)}


def features(rng: np.random.Generator, settings: Inference, planted: int) -> dict[str, bool]:
    """Train autoencoders on Gaussian states that last, or on sums of a few of `planted` features."""
    lives = make_lives(LENGTHS * 8)
    states = values_of(smooth, rng, LENGTHS * 8, SPARSE_UNITS) @ rng.normal(size=(SPARSE_UNITS, SPARSE_UNITS))
    if planted:
        directions = rng.normal(size=(planted, SPARSE_UNITS))
        strengths = (rng.random((len(states), planted)) < ACTIVE / planted) * rng.exponential(
            size=(len(states), planted)
        )
        states = strengths @ directions + 0.02 * states
    drawn = gaussian_surrogate(states, lives, rng)
    own, other, floor, floors_other = (
        _living_features(values.astype(np.float32), seed)
        for values in (states, drawn)
        for seed in (settings.seed, settings.seed + 1)
    )
    result = stability(own, other, matched(floor, floors_other), settings.seed)
    return {"a feature is stable": result.stable > 0}


def _living_features(states: np.ndarray, seed: int) -> np.ndarray:
    """Train one autoencoder, and return the directions of the features that are active in any state, (F, U)."""
    normal = normalisation(states, seed)
    parameters = train(Plan("topk", FEATURES, ACTIVE, seed, EPOCHS), states, normal, unfinished=None).parameters
    strengths = (states / normal.scale - parameters["centre"]) @ parameters["encoder"].T + parameters["encoder_bias"]
    strongest = np.argsort(-strengths, axis=1)[:, :ACTIVE]  # (B, k)
    active = np.take_along_axis(strengths, strongest, axis=1) > 0
    living = parameters["decoder"][np.unique(strongest[active])]
    return np.asarray(living / np.linalg.norm(living, axis=1, keepdims=True))


def _widest(states: np.ndarray, seed: int, run_records: int = 0) -> np.ndarray:
    return states @ np.linalg.eigh(np.cov(states.T))[1][:, -1:]


def _cut(points: np.ndarray, min_cluster_size: int) -> np.ndarray:
    return (points[:, 0] > points[:, 0].mean()).astype(np.int64)


NOTHING = {
    "floors: six independent components of a Gaussian": functools.partial(components, planted=0),
    "floors: a Gaussian cut in two": functools.partial(halves, apart=0.0),
    "floors: sparse features of a Gaussian": functools.partial(features, planted=0),
}
"""Cases without anything to find, by name."""

SOMETHING = {
    "floors: two of six components mostly silent": functools.partial(components, planted=2),
    "floors: two groups, 20 apart": functools.partial(halves, apart=20.0),
    "floors: sums of about three of 48 features": functools.partial(features, planted=FEATURES),
}
"""Cases with something to find, by name."""
