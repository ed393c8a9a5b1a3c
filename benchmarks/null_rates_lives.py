"""Cases of `benchmarks.null_rates` on lives: what follows what, differences of clusters, and means over trainings."""

import functools
from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from analysis.life.phases.transitions import memory_of_two, transitions
from analysis.life.phases.visits import LabelSequences, visits
from analysis.lives import Lives
from analysis.statistics.effect_intervals import Differences, cluster_differences
from analysis.statistics.inference import LEVEL, Inference
from benchmarks.power import planted
from tests.planted_labels import (
    FREQUENCIES,
    drifting_odds,
    favoured_pair,
    labels_at_random,
    lasting_labels,
    memory_of_two_steps,
)
from tests.planted_lives import (
    COURSES,
    drifting_together,
    labels_of,
    make_lives,
    shared_shocks,
    uneven_lengths,
    values_of,
)
from tests.planted_trainings import differs, trainings_in_worlds

NULL, LIMIT, POWER = "nothing to find", "nothing but time or a shared world, as reports warn", "something to find"
ORDERS, DIFFERENCES, OVER_TRAININGS = "orders: ", "differences: ", "over trainings: "
PAIRS, MEMORY = "what follows what", "memory of order two"
GIVEN_AGE, ANY_AGE = ", given age", ", without age"

Outcomes = dict[str, bool]
"""What was found in one run, by what was looked for."""

Run = Callable[[np.random.Generator, Inference], Outcomes]

Case = tuple[str, str, Run]
"""One kind of synthetic dump: whether it holds anything to find (`NULL`, `LIMIT` or `POWER`), its name, and its run."""

Dump = tuple[np.ndarray, np.ndarray, Lives, np.ndarray, np.ndarray]
"""Features (B, F), labels (B,), lives, and the tick and episode of each record (B,)."""

Draw = Callable[[np.random.Generator, dict[int, float]], LabelSequences]

TRAININGS, WORLDS, COMMON = (3, 4, 8), (4, 8, 24), (0.0, 0.25, 0.5, 0.75)
_INTERACTION = 0.5
_EFFECT = 3.0


def _episodes(count: int) -> str:
    return f"{count} episode{'s' * (count > 1)}"


def null_orders() -> Iterator[Case]:
    """Labels whose frequencies alone decide what follows what."""
    for name, frequencies in FREQUENCIES.items():
        shares = "/".join(f"{share:g}".removeprefix("0") for share in frequencies.values())
        run = functools.partial(ordered, labels_at_random, name)
        yield NULL, f"{ORDERS}{name} ({shares}), drawn at every tick", run
    for name in ("three states", "six states", "mostly noise"):
        yield NULL, f"{ORDERS}{name}, which last", functools.partial(ordered, lasting_labels, name)
    for kind, ending in ((NULL, GIVEN_AGE), (LIMIT, ANY_AGE)):
        for states, drift in ((3, 3.0), (5, 3.0), (4, 6.0)):
            name = f"{ORDERS}{states} states, odds drift {np.exp(drift):.0f}-fold over a life"
            yield kind, name, functools.partial(drifting_order, states=states, drift=drift, ending=ending)


def found_in_orders(sequences: LabelSequences, settings: Inference) -> dict[str, bool]:
    """Test labels as cluster_life_phase.py does; return what it finds of `PAIRS` and `MEMORY`, given age and not."""
    visit_table, states = visits(sequences), len(sequences.labels)
    pairs = transitions(sequences, visit_table, settings.permutations, settings.seed)
    memory = memory_of_two(visit_table, states, settings.permutations, settings.seed)
    tests = {
        PAIRS + GIVEN_AGE: pairs.given_age.q,
        PAIRS + ANY_AGE: pairs.any_age.q,
        MEMORY + GIVEN_AGE: memory.given_age.q,
        MEMORY + ANY_AGE: memory.any_age.q,
    }
    return {name: bool((q <= LEVEL).any()) for name, q in tests.items()}


def drifting_order(rng: np.random.Generator, settings: Inference, states: int, drift: float, ending: str) -> Outcomes:
    """Count only the tests given age, or without it, of states whose odds drift over a life."""
    discoveries = found_in_orders(drifting_odds(rng, states, drift), settings)
    return {name: discovered for name, discovered in discoveries.items() if name.endswith(ending)}


def ordered(draw: Draw, name: str, rng: np.random.Generator, settings: Inference) -> Outcomes:
    """Draw labels of given frequencies and test their order."""
    return found_in_orders(draw(rng, FREQUENCIES[name]), settings)


def null_differences() -> Iterator[Case]:
    """Clusters and features that have nothing to do with each other, but follow time or the same world."""
    for course in COURSES:
        for episodes in (1, 8):
            run = functools.partial(unrelated, course=course, episodes=episodes)
            name = f"three clusters, five features, {course.replace('_', ' ')}, {_episodes(episodes)}"
            yield NULL, f"{DIFFERENCES}{name}", run
    for kind, given_time, several in ((NULL, True, (6, 8)), (LIMIT, False, (1, 4))):
        run = functools.partial(drifting, given_time=given_time)
        yield kind, f"{DIFFERENCES}cluster and feature drift with the tick", run
        for episodes in several:
            run = functools.partial(shocked, episodes=episodes)
            yield kind, f"{DIFFERENCES}shocks that a world shares, {_episodes(episodes)}", run


def differences(dump: Dump, settings: Inference) -> Differences:
    """Compare clusters as analyze_activations.py does."""
    return cluster_differences(*dump, settings)


def unrelated(rng: np.random.Generator, settings: Inference, course: str, episodes: int) -> Outcomes:
    """Three clusters and five features that follow the same kind of course, independently."""
    lengths = uneven_lengths(rng, 10 * episodes if episodes > 1 else 40)
    features, labels = values_of(COURSES[course], rng, lengths, 5), labels_of(COURSES[course], rng, lengths)
    tick = np.concatenate([np.arange(length) for length in lengths])
    episode = np.repeat(np.arange(len(lengths)) % episodes, lengths)
    results = differences((features, labels, make_lives(lengths), tick, episode), settings)
    return {"difference survives": bool(results.survives.any())}


def drifting(rng: np.random.Generator, settings: Inference, given_time: bool) -> Outcomes:
    """A cluster more and more frequent with the tick, and a feature that declines with it."""
    features, labels, lives, tick = drifting_together(rng)
    results = differences((features, labels, lives, tick, np.zeros(len(tick), np.int64)), settings)
    if given_time:
        return {"survives given tick and age": bool(results.survives_given_time.any())}
    return {"survives without tick and age": bool(results.survives.any())}


def shocked(rng: np.random.Generator, settings: Inference, episodes: int) -> Outcomes:
    """A cluster and a feature that follow separate slow shocks, each common to all lives of an episode."""
    features, labels, lives, episode = shared_shocks(rng, episodes, 8 if episodes > 1 else 40, 45)
    tick = np.concatenate([np.arange(length) for length in lives.lengths])
    results = differences((features, labels, lives, tick, episode), settings)
    return {
        "difference survives": bool(results.survives.any()),
        "survives given tick and age": bool(results.survives_given_time.any()),
    }


def planted_orders() -> Iterator[Case]:
    """States that follow each other by more than chance."""
    for states in (3, 4, 5, 6):
        run = functools.partial(favoured, states=states)
        yield POWER, f"{ORDERS}{states} states, 1 follows 0 three times as often as others do", run
    for states in (3, 4, 5, 6):
        chance, back = 1 / (states - 1), 1 / (states - 1) + 0.2
        run = functools.partial(remembering, states=states, back=back)
        yield POWER, f"{ORDERS}{states} states, back to the one before in {back:.0%}, not {chance:.0%}", run


def favoured(rng: np.random.Generator, settings: Inference, states: int) -> Outcomes:
    """Look for the one pair that is planted."""
    sequences = favoured_pair(rng, states, times=3)
    pairs = transitions(sequences, visits(sequences), settings.permutations, settings.seed)
    tests = {GIVEN_AGE: pairs.given_age, ANY_AGE: pairs.any_age}
    return {
        f"the pair, more often{ending}": bool(against.q[0, 1] <= LEVEL and pairs.share[0, 1] > against.chance[0, 1])
        for ending, against in tests.items()
    }


def remembering(rng: np.random.Generator, settings: Inference, states: int, back: float) -> Outcomes:
    """Look for memory of order two, planted in every state."""
    discoveries = found_in_orders(memory_of_two_steps(rng, states, back), settings)
    return {name: discovered for name, discovered in discoveries.items() if name.startswith(MEMORY)}


def planted_differences() -> Iterator[Case]:
    """A feature that is higher in a cluster."""
    for lives, episodes in ((60, 1), (60, 6), (120, 6), (120, 10)):
        run = functools.partial(higher, lives=lives, episodes=episodes, d=0.6)
        yield POWER, f"{DIFFERENCES}d = 0.6, {lives} lives, {_episodes(episodes)}", run
    for lives, episodes in ((100, 1), (100, 4), (100, 6), (100, 10), (500, 10)):
        run = functools.partial(higher, lives=lives, episodes=episodes, d=None)
        yield POWER, f"{DIFFERENCES}d told to be found in 80%, {lives} lives, {_episodes(episodes)}", run


def higher(rng: np.random.Generator, settings: Inference, lives: int, episodes: int, d: float | None) -> Outcomes:
    """Look for one feature that is higher by d in a cluster of 30% of the records."""
    d = stated_d(lives, episodes) if d is None else d
    features, labels, planted_lives = planted(rng, lives, 0.3, d)
    results = differences(first_feature(features, labels, planted_lives, episodes), settings)
    return {
        "interval without 0": bool(results.intervals.complement_low[0, 0] > 0),
        "survives": bool(results.survives[0, 0]),
        "survives given tick and age": bool(results.survives_given_time[0, 0]),
    }


def first_feature(features: np.ndarray, labels: np.ndarray, lives: Lives, episodes: int) -> Dump:
    """Return a dump of the first feature alone, whose lives take turns in the episodes."""
    return features[:, :1], labels, lives, np.arange(len(labels)) - lives.starts[lives.index], lives.index % episodes


@functools.cache
def stated_d(lives: int, episodes: int, dumps: int = 40) -> float:
    """Return the d that such dumps state as found with a power of 80%: the median of some."""
    detectable = []
    for run in range(dumps):
        features, labels, planted_lives = planted(np.random.default_rng([17, run]), lives, 0.3, 0.0)
        results = differences(first_feature(features, labels, planted_lives, episodes), Inference(seed=run))
        detectable.append(results.detectable[0, 0])
    return float(np.nanmedian(detectable))


def trainings() -> Iterator[Case]:
    """Means over trainings that played the same worlds, or worlds of their own.

    Nothing to find are means of 0, with a share of the variance of trainings' means that comes from the worlds. The
    limit is a t-test over trainings that played the same worlds, which the scripts no longer make. Something to find
    are means of three standard deviations of a training's mean.
    """
    for count in TRAININGS:
        for worlds in WORLDS:
            for common in COMMON:
                name = f"{OVER_TRAININGS}{count}, {worlds} worlds, {common:.0%} of their variance in common"
                yield NULL, name, functools.partial(_mean_of_trainings, count, worlds, common, 0.0)
    for common in COMMON[1:]:
        name = f"a t-test over 4 that played the same 8 worlds, {common:.0%} of their variance in common"
        yield LIMIT, f"{OVER_TRAININGS}{name}", functools.partial(_t_test, common)
    for count in TRAININGS:
        for common in (0.0, 0.5):
            name = f"{OVER_TRAININGS}{count}, 8 worlds, {common:.0%} of their variance in common, an effect of 3"
            yield POWER, name, functools.partial(_mean_of_trainings, count, 8, common, _EFFECT)


def _mean_of_trainings(
    trainings: int, worlds: int, common: float, effect: float, rng: np.random.Generator, settings: Inference
) -> Outcomes:
    planted_trainings = functools.partial(differs, rng, trainings, worlds, common, _INTERACTION, effect=effect)
    return {"the same worlds": planted_trainings(shared=True), "worlds of their own": planted_trainings(shared=False)}


def _t_test(common: float, rng: np.random.Generator, settings: Inference) -> Outcomes:
    means = trainings_in_worlds(rng, 4, 8, common, _INTERACTION).mean(axis=1)
    return {"mean": bool(stats.ttest_1samp(means, 0).pvalue <= 0.05)}
