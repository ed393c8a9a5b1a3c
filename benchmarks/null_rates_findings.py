"""Cases of `benchmarks.null_rates`: stabilities beside their floor, the meter of blindness, and maps of saliency.py.

Views, networks and maps are those of tests/planted_maps.py. A map passes if no check of `judged` fails.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from analysis.attribution.sanity import RANDOM
from analysis.clusters.blindness import TOO_SHORT, coverage
from analysis.dynamics.decompositions import Scale, above_gaussians, decompose
from analysis.dynamics.neighbours import resampled_lives
from analysis.sparse.report import matched, stability
from analysis.sparse.training import FitPlan, normalisation, train
from analysis.statistics.inference import Inference
from analysis.statistics.stability import (
    ClusterMethod,
    exceeds,
    gaussian_surrogate,
    projection_stability,
    stability_floor,
)
from benchmarks.null_rates_lives import LIMIT, NULL, POWER, Case
from tests.planted_coverage import told
from tests.planted_lives import make_lives, smooth, values_of
from tests.planted_maps import POLICY_FREE, Maps, checked, policy_free, true_maps

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
    stable = decomposition.stable
    if not planted:
        return {"component is stable": bool(stable.any())}
    r = np.abs(np.corrcoef(decomposition.scores(z).T, sources[:, :planted].T)[: len(stable), len(stable) :])
    theirs = (r > 0.9).any(axis=1)
    return {
        "all planted ones are stable": bool((theirs & stable).sum() == planted),
        "another one is stable": bool((~theirs & stable).any()),
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
    return {"clusters are beyond the Gaussian's": exceeds(result.over_embeddings, floor.over_lives)}


def features(rng: np.random.Generator, settings: Inference, planted: int) -> dict[str, bool]:
    """Train autoencoders on Gaussian states that last, or on sums of a few of `planted` features."""
    lives = make_lives(LENGTHS * 8)
    states = values_of(smooth, rng, LENGTHS * 8, SPARSE_UNITS) @ rng.normal(size=(SPARSE_UNITS, SPARSE_UNITS))
    if planted:
        directions = rng.normal(size=(planted, SPARSE_UNITS))
        size = (len(states), planted)
        strengths = (rng.random(size) < ACTIVE / planted) * rng.exponential(size=size)
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
    parameters = train(FitPlan("topk", FEATURES, ACTIVE, seed, EPOCHS), states, normal, unfinished=None).parameters
    strengths = (states / normal.scale - parameters["centre"]) @ parameters["encoder"].T + parameters["encoder_bias"]
    strongest = np.argsort(-strengths, axis=1)[:, :ACTIVE]  # (B, k)
    active = np.take_along_axis(strengths, strongest, axis=1) > 0
    living = parameters["decoder"][np.unique(strongest[active])]
    return np.asarray(living / np.linalg.norm(living, axis=1, keepdims=True))


def _widest(states: np.ndarray, seed: int, run_records: int = 0) -> np.ndarray:
    return states @ np.linalg.eigh(np.cov(states.T))[1][:, -1:]


def _cut(points: np.ndarray, min_cluster_size: int) -> np.ndarray:
    return (points[:, 0] > points[:, 0].mean()).astype(np.int64)


def floors() -> Iterator[Case]:
    """How often states without structure are called stable, and planted ones are."""
    partial = functools.partial
    yield NULL, "floors: six independent components of a Gaussian", partial(components, planted=0)
    yield NULL, "floors: a Gaussian cut in two", partial(halves, apart=0.0)
    yield NULL, "floors: sparse features of a Gaussian", partial(features, planted=0)
    yield POWER, "floors: two of six components mostly silent", partial(components, planted=2)
    yield POWER, "floors: two groups, 20 apart", partial(halves, apart=20.0)
    yield POWER, "floors: sums of about three of 48 features", partial(features, planted=FEATURES)


COVERED = {
    "noise": (NULL, "clusters that nothing follows from"),
    "one feature": (NULL, "clusters that are quarters of a listed feature"),
    "two features": (NULL, "clusters that need two listed features at once"),
    "half hidden": (POWER, "clusters of which half is in no feature"),
    "hidden": (POWER, "clusters that are in no feature"),
}


def blindness() -> Iterator[Case]:
    """How often the meter of blindness is wrong about what a list of features covers."""
    for how, (kind, name) in COVERED.items():
        yield kind, f"coverage: {name}", functools.partial(covered, how=how)


def covered(rng: np.random.Generator, settings: Inference, how: str) -> dict[str, bool]:
    """Measure planted lives as analyze_activations.py does: whether clusters tell anything, and the list is short."""
    drawn = told(rng, how)
    studied = (drawn.groups[:, None] == np.arange(4)).astype(np.float64)
    (measure,) = coverage(drawn.listed, studied, drawn.groups, {"what happens": drawn.targets}, drawn.unit, settings)
    reliable = {"clusters tell something": measure.reliable} if how == "noise" else {}
    return {**reliable, "the list is too short": bool(measure.uncovered_low > TOO_SHORT)}


OWN = 0.5
"""Worth of what no other network shares, where that of food nearby is 1."""


def saliency_checks() -> Iterator[Case]:
    """Maps that know nothing of the policy, which must not pass, and true ones, which should.

    The limit is what such a map passes if it is compared with a random order alone.
    """
    for name, draw in POLICY_FREE.items():
        yield NULL, f"saliency: {name}", functools.partial(_drawn_map_passes, draw=draw)
    yield LIMIT, "saliency: food first, against a random order alone", _beats_random
    for own in (0.1, 0.25, 0.5):
        run = functools.partial(_map_passes, maps=true_maps, own=own)
        yield POWER, f"saliency: true map, {own:g} of its own", run


def _drawn_map_passes(
    rng: np.random.Generator, settings: Inference, draw: Callable[[np.random.Generator], Maps]
) -> dict[str, bool]:
    return _map_passes(rng, settings, draw(rng))


def _map_passes(rng: np.random.Generator, settings: Inference, maps: Maps, own: float = OWN) -> dict[str, bool]:
    sanity = checked(rng, own, maps)
    return {
        "passes all checks": not sanity.failures(),
        "its order passes": all(check.passed for check in sanity.leads),
    }


def _beats_random(rng: np.random.Generator, settings: Inference) -> dict[str, bool]:
    leads = checked(rng, OWN, policy_free("food first")).leads
    return {"beats a random order": any(check.of == RANDOM and check.passed for check in leads)}
