"""Cases of `benchmarks.null_rates` beside those of lives.

Planted edits: verdicts beside random directions, and which edit ranks first. Stabilities beside their floor, the meter
of blindness, and maps of saliency.py: views, networks and maps are those of tests/planted_maps.py, and a map passes if
no check of `judged` fails.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from activation_store.interventions import Arm, LivesTable
from analysis.attribution.sanity import RANDOM
from analysis.clusters.blindness import TOO_SHORT, coverage
from analysis.dynamics.decompositions import Scale, above_gaussians, decompose
from analysis.dynamics.neighbours import resampled_lives
from analysis.interventions.effects.effects import Effect, effects_of_edits
from analysis.interventions.effects.inference import OUTCOMES, PAIRED_SPREAD, OverEpisodes
from analysis.interventions.effects.outcomes import Margins
from analysis.interventions.effects.pairs import paired
from analysis.interventions.effects.predicted import options_that_follow
from analysis.interventions.effects.study import ranking, study_effects
from analysis.sparse.outputs import matched, stability
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
from tests.planted_interventions import Planted, plant
from tests.planted_lives import make_lives, smooth, values_of
from tests.planted_maps import POLICY_FREE, Maps, checked, policy_free, true_maps

TWIN = Arm("unedited", "unedited", "trained", None, "unedited")
AGENTS, EDITED = 128, 64
SPREAD = 30.0
"""Standard deviation between directions of their effects, in ticks."""

OPTIONS = 20
MARGIN = 20.0


def verdict_cases() -> Iterator[Case]:
    """Directions that differ among each other, shares that follow a variable, and true effects."""
    for randoms in (3, 8, 20):
        run = functools.partial(all_random, randoms=randoms, outcomes=1)
        yield NULL, f"verdicts: directions that differ by {SPREAD:g} ticks, {randoms} random ones, 24 episodes", run
    many = functools.partial(all_random, randoms=8, outcomes=OUTCOMES)
    yield NULL, f"verdicts: the same in each of {OUTCOMES} outcomes, 8 random ones", many
    heavy = functools.partial(all_random, randoms=8, outcomes=1, freedom=3)
    yield NULL, "verdicts: a few directions do far more (Student's t, 3 degrees of freedom), 8 random ones", heavy
    yield NULL, f"verdicts: shares of {OPTIONS} options, all directions random, 20 random ones", shares_at_random
    at_margin = functools.partial(planted_effect, effect=-MARGIN, episodes=24, margin=MARGIN)
    yield NULL, f"verdicts: an effect of {MARGIN:g} ticks is called smaller, 24 episodes", at_margin
    for episodes in (4, 8, 24):
        for effect in (-25.0, -50.0):
            run = functools.partial(planted_effect, effect=effect, episodes=episodes)
            yield POWER, f"verdicts: {effect:g} ticks, 8 random directions, {episodes} episodes", run
        run = functools.partial(stated_effect, episodes=episodes)
        yield POWER, f"verdicts: the effect that would be found in 80%, {episodes} episodes", run
    none = functools.partial(planted_effect, effect=0.0, episodes=24, margin=MARGIN)
    yield POWER, f"verdicts: no effect, called smaller than {MARGIN:g} ticks, 24 episodes", none


def all_random(
    rng: np.random.Generator, settings: Inference, randoms: int, outcomes: int, freedom: int = 0
) -> dict[str, bool]:
    """Draw the studied direction like the others; any effect that is called one is false."""
    size = (1 + randoms, outcomes)
    drawn = rng.standard_t(freedom, size) / np.sqrt(freedom / (freedom - 2)) if freedom else rng.normal(size=size)
    return {"effect": any(effect.verdict == "effect" for effect in measured(rng, settings, SPREAD * drawn, 24))}


def planted_effect(
    rng: np.random.Generator, settings: Inference, effect: float, episodes: int, margin: float = np.nan
) -> dict[str, bool]:
    """Plant an effect on the first of all outcomes; random directions do nothing."""
    effects = np.zeros((9, OUTCOMES))
    effects[0, 0] = effect
    first = measured(rng, settings, effects, episodes, Margins(named={"outcome_00": margin}))[0]
    if np.isfinite(margin):
        return {"equivalent to none": first.verdict == "equivalent to none"}
    return {"effect": first.verdict == "effect"}


def stated_effect(rng: np.random.Generator, settings: Inference, episodes: int) -> dict[str, bool]:
    """Plant the effect that runs without one state as detectable."""
    return planted_effect(rng, settings, -stated(episodes), episodes)


@functools.cache
def stated(episodes: int, runs: int = 15) -> float:
    """Return the detectable effect that runs of so many episodes state: the median of some."""
    values = []
    for run in range(runs):
        rng = np.random.default_rng([23, run])
        values.append(measured(rng, Inference(999, 99, seed=run), np.zeros((9, OUTCOMES)), episodes)[0].detectable)
    return float(np.median(values))


def measured(
    rng: np.random.Generator, settings: Inference, effects: np.ndarray, episodes: int, margins: Margins | None = None
) -> list[Effect]:
    """Judge an edit beside random directions.

    Args:
        effects: on each outcome of edited lives in ticks, of the edit first, (1 + K, outcomes).
    """
    lives = episodes * AGENTS
    edited = np.concatenate([rng.permutation(AGENTS) < EDITED for _ in range(episodes)])
    twin = rng.normal(0, PAIRED_SPREAD, (lives, effects.shape[1]))
    # Lives of unedited agents change too, since they meet edited ones, but less.
    spread = np.where(edited, PAIRED_SPREAD, PAIRED_SPREAD / 2)[:, None]
    arms = [twin + spread * rng.normal(size=twin.shape) + edited[:, None] * effect for effect in effects]
    values = np.concatenate([twin, *arms])  # ((2 + K) * lives, outcomes)
    names = [f"outcome_{place:02d}" for place in range(effects.shape[1])]
    table, listed = _table(edited, episodes, len(effects) - 1, dict(zip(names, values.T, strict=True)))
    over = OverEpisodes(settings)
    return effects_of_edits(paired(table, listed), names, over, margins or Margins(), pairing_works=True)


def shares_at_random(rng: np.random.Generator, settings: Inference) -> dict[str, bool]:
    """Let every direction move every option nearly always in the same way, or in the other: shares near 0 and 1."""
    episodes, randoms = 8, 20
    edited = np.tile(np.arange(AGENTS) < EDITED, episodes)
    follows = rng.beta(0.5, 0.5, (1 + randoms, OPTIONS))
    outcomes = {}
    for option in range(OPTIONS):
        for side in ("lower", "higher"):
            noise = rng.normal(0, 0.1, (1 + randoms, len(edited)))
            shares = np.clip(follows[:, option, None] + noise, 0, 1)
            columns = [np.full(len(edited), np.nan), *np.where(edited, shares, np.nan)]
            outcomes[f"follows_{side}/self_food/Head/{option:02d}"] = np.concatenate(columns)
    table, arms = _table(edited, episodes, randoms, outcomes)
    judged = options_that_follow(table, paired(table, arms), OverEpisodes(settings), Margins(), pairing_works=True)
    return {"effect": any(follow.verdict == "effect" for follow in judged)}


def _table(
    edited: np.ndarray, episodes: int, randoms: int, outcomes: dict[str, np.ndarray]
) -> tuple[LivesTable, list[Arm]]:
    """Return lives of the twin, the edit and random directions, in this order, and their arms."""
    arms = [TWIN, Arm("edit", "edit", "trained", None, TWIN.name)]
    for number in range(1, randoms + 1):
        arms.append(Arm(f"random direction {number}", "random direction", "trained", None, TWIN.name))
    count = len(arms)
    table = LivesTable(
        arm=np.repeat([arm.name for arm in arms], len(edited)),
        episode=np.tile(np.repeat(np.arange(episodes), AGENTS), count),
        agent=np.tile(np.arange(AGENTS), episodes * count),
        edited=np.tile(edited, count),
        outcomes=outcomes,
    )
    return table, arms


TOTAL = {"slow": 0.022, "fast": 0.016}
"""KL in total, in nats, of the edits of two units, of which the memory keeps one for longer; measured by hand. Their
ratio is planted; lives differ by a third."""
IN_PLAY = {"slow": 0.0063, "fast": 0.0073}
"""The same in play."""


def ranked_pairs() -> Iterator[Case]:
    """Directions that are edited one by one; whatever is looked for is false."""
    yield NULL, "ranking: KL of .022 and .016 in total, of .0063 and .0073 in play, 4 episodes", wrong_one_first


def wrong_one_first(rng: np.random.Generator, settings: Inference) -> dict[str, bool]:
    """Rank a run of both units."""
    planted = Planted(
        doses=(None,), kinds=(), episodes=4, agents=16, edited=8,
        directions={name: math.sqrt(kl / TOTAL["fast"]) for name, kl in TOTAL.items()},
        in_play={name: IN_PLAY[name] / kl for name, kl in TOTAL.items()},
    )  # fmt: skip
    table, arms = plant(planted, int(rng.integers(2**31)))
    first = ranking(study_effects(table, arms, settings))[0]
    return {"the weaker one first": first.direction == "fast"}


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
