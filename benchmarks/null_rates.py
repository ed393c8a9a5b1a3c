"""False findings where there is nothing to find, and power where there is: the tables of docs/benchmarks.md.

    python -m benchmarks.null_rates
    python -m benchmarks.null_rates --runs 400 --only "six states" --orders 999 -o null_rates.json

Each case draws synthetic lives anew in every run and passes them to the functions that cluster_life_phase.py and
analyze_activations.py use; cases called "verdicts" pass lives of planted edits to those of intervene.py. A run has a
finding if any of its tests has q <= 0.05 and whatever else the scripts ask for. Intervals of the shares are exact
(Clopper and Pearson 1934), 95%. Planted cases run on the same kind of lives, with something to find. Progress goes to
standard error.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from scipy import stats

from analysis.life.phases.label_sequences import LabelSequences
from analysis.life.phases.transitions import transitions
from analysis.life.phases.visits import visits
from analysis.lives import Lives
from analysis.statistics.differences import Differences, cluster_differences
from analysis.statistics.inference import LEVEL, Inference
from benchmarks import null_rates_coverage, null_rates_floors, null_rates_over_trainings
from benchmarks.null_rates_at_once import ranked_pairs
from benchmarks.null_rates_controls import verdict_cases
from benchmarks.null_rates_drift import ANY_AGE, GIVEN_AGE, MEMORY, drifting_cases, found_in_orders
from benchmarks.null_rates_saliency import policy_free_cases, true_cases, warned_cases
from benchmarks.power import planted
from common import command_line, progress_view
from common.files import write_json
from common.user_error import UserError
from tests.planted_labels import FREQUENCIES, favoured_pair, labels_at_random, lasting_labels, memory_of_two_steps
from tests.planted_lives import (
    COURSES,
    drifting_together,
    labels_of,
    make_lives,
    shared_shocks,
    uneven_lengths,
    values_of,
)

Outcomes = dict[str, bool]
"""What was found in one run, by what was looked for."""

Dump = tuple[np.ndarray, np.ndarray, Lives, np.ndarray, np.ndarray]
"""Features (B, F), labels (B,), lives, and the tick and episode of each record (B,)."""

HEAD = "| case | looked for | runs | found | share | 95% interval |\n|---|---|---|---|---|---|"

Draw = Callable[[np.random.Generator, dict[int, float]], LabelSequences]

ORDERS, DIFFERENCES = "orders: ", "differences: "
NULL, LIMIT, POWER = "nothing to find", "nothing but time or a shared world, as reports warn", "something to find"


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/null_rates.py."""

    runs: int = 200
    """Number of synthetic dumps per case, at least 10."""
    orders: int = 199
    """Random orders of visits per test of what follows what, at least 99; cluster_life_phase.py draws 1000."""
    permutations: int = 999
    """Shifts per test of a difference, and resamples per interval, at least 99; 999 as in analyze_activations.py."""
    only: str = ""
    """Only run cases whose name contains this text, such as "orders:" or "differences:"."""
    seed: int = 0
    """Seed of the synthetic dumps."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file to write the result to."""


@dataclass(frozen=True)
class Case:
    """One kind of synthetic dump, and whether it holds anything to find (`NULL`, `LIMIT` or `POWER`)."""

    kind: str
    name: str
    run: Callable[[np.random.Generator, Inference], Outcomes]


@dataclass(frozen=True)
class Row:
    """One row of the table: `found` of `runs` runs, and the 95% interval of the share."""

    kind: str
    case: str
    looked_for: str
    runs: int
    found: int
    low: float
    high: float


def main() -> None:
    """Parse, run all cases, print a row for each as it is finished."""
    arguments = command_line.parse(Arguments, __doc__)
    if arguments.runs < 10 or min(arguments.orders, arguments.permutations) < 99:
        raise UserError("--runs must be at least 10, --orders and --permutations at least 99")
    cases = [case for case in all_cases() if arguments.only in case.name]
    if not cases:
        raise UserError(f"no case has a name that contains {arguments.only!r}")
    rows: list[Row] = []
    for kind in (NULL, LIMIT, POWER):
        chosen = [case for case in cases if case.kind == kind]
        if chosen:
            print(f"\n{kind}:\n\n{HEAD}")
        for case in chosen:
            rows += measured(case, arguments)
    above = [f"{row.case} ({row.looked_for})" for row in rows if row.kind == NULL and row.low > LEVEL]
    print(f"\nnulls with more than {LEVEL:.0%} beyond doubt: {'; '.join(above) or 'none'}")
    if arguments.output:
        settings = {name: getattr(arguments, name) for name in ("runs", "orders", "permutations", "seed")}
        write_json(arguments.output, {**settings, "rows": [asdict(row) for row in rows]})


def measured(case: Case, arguments: Arguments) -> list[Row]:
    """Run one case as often as asked for, and print its rows."""
    counts: Counter[str] = Counter()
    with progress_view.progress(case.name, "runs", Console(stderr=True)) as report:
        for run in range(arguments.runs):
            number = arguments.orders if case.name.startswith(ORDERS) else arguments.permutations
            settings = Inference(number, number, seed=run)
            counts.update(case.run(np.random.default_rng([arguments.seed, run]), settings))
            report(run + 1, arguments.runs)
    rows = []
    for looked_for, times in counts.items():
        interval = stats.binomtest(times, arguments.runs).proportion_ci()
        rows.append(Row(case.kind, case.name, looked_for, arguments.runs, times, interval.low, interval.high))
        print(
            f"| {case.name} | {looked_for} | {arguments.runs} | {times} | {times / arguments.runs:.1%} "
            f"| {interval.low:.1%} to {interval.high:.1%} |",
            flush=True,
        )
    return rows


def all_cases() -> list[Case]:
    """Return all cases."""
    verdicts = [Case(POWER if something else NULL, name, run) for something, name, run in verdict_cases()]
    return [
        *null_orders(),
        *null_differences(),
        *(Case(NULL, *case) for case in ranked_pairs()),
        *(Case(NULL, *case) for case in null_rates_over_trainings.null_cases()),
        *(Case(LIMIT, *case) for case in null_rates_over_trainings.limit_cases()),
        *planted_orders(),
        *planted_differences(),
        *(Case(POWER, *case) for case in null_rates_over_trainings.planted_cases()),
        *verdicts,
        *saliency_checks(),
        *(Case(NULL, *case) for case in null_rates_floors.NOTHING.items()),
        *(Case(POWER, *case) for case in null_rates_floors.SOMETHING.items()),
        *(Case(NULL, *case) for case in null_rates_coverage.cases(null_rates_coverage.NULLS)),
        *(Case(POWER, *case) for case in null_rates_coverage.cases(null_rates_coverage.PLANTED)),
    ]


def saliency_checks() -> Iterator[Case]:
    """Maps of saliency.py that know nothing of the policy, and true ones."""
    several = ((NULL, policy_free_cases()), (LIMIT, warned_cases()), (POWER, true_cases()))
    for kind, cases in several:
        for name, run in cases.items():
            yield Case(kind, name, functools.partial(maps_checked, run=run))


def maps_checked(
    rng: np.random.Generator, _: Inference, run: Callable[[np.random.Generator], Outcomes]
) -> Outcomes:  # fmt: skip
    """Check the maps of one draw; they need no settings of tests."""
    return run(rng)


def null_orders() -> Iterator[Case]:
    """Labels whose frequencies alone decide what follows what."""
    for name, frequencies in FREQUENCIES.items():
        shares = "/".join(f"{share:g}".removeprefix("0") for share in frequencies.values())
        yield Case(
            NULL, f"{ORDERS}{name} ({shares}), drawn at every tick", functools.partial(ordered, labels_at_random, name)
        )
    for name in ("three states", "six states", "mostly noise"):
        yield Case(NULL, f"{ORDERS}{name}, which last", functools.partial(ordered, lasting_labels, name))
    for kind, ending in ((NULL, GIVEN_AGE), (LIMIT, ANY_AGE)):
        for name, run in drifting_cases(ending):
            yield Case(kind, f"{ORDERS}{name}", run)


def ordered(draw: Draw, name: str, rng: np.random.Generator, settings: Inference) -> Outcomes:
    """Draw labels of given frequencies and test their order."""
    return found_in_orders(draw(rng, FREQUENCIES[name]), settings)


def null_differences() -> Iterator[Case]:
    """Clusters and features that have nothing to do with each other, but follow time or the same world."""
    for course in COURSES:
        for episodes in (1, 8):
            run = functools.partial(unrelated, course=course, episodes=episodes)
            worlds = f"{episodes} episode{'s' * (episodes > 1)}"
            yield Case(NULL, f"{DIFFERENCES}three clusters, five features, {course.replace('_', ' ')}, {worlds}", run)
    yield Case(
        NULL, f"{DIFFERENCES}cluster and feature drift with the tick", functools.partial(drifting, given_time=True)
    )
    for episodes in (6, 8):
        shocks = functools.partial(shocked, episodes=episodes)
        yield Case(NULL, f"{DIFFERENCES}shocks that a world shares, {episodes} episodes", shocks)
    yield Case(
        LIMIT, f"{DIFFERENCES}cluster and feature drift with the tick", functools.partial(drifting, given_time=False)
    )
    for episodes in (1, 4):
        shocks = functools.partial(shocked, episodes=episodes)
        yield Case(LIMIT, f"{DIFFERENCES}shocks that a world shares, {episodes} episode{'s' * (episodes > 1)}", shocks)


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
        pair = functools.partial(favoured, states=states)
        yield Case(POWER, f"{ORDERS}{states} states, 1 follows 0 three times as often as others do", pair)
    for states in (3, 4, 5, 6):
        back = 1 / (states - 1) + 0.2
        memory = functools.partial(remembering, states=states, back=back)
        yield Case(
            POWER, f"{ORDERS}{states} states, back to the one before in {back:.0%}, not {1 / (states - 1):.0%}", memory
        )


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
        lifted = functools.partial(higher, lives=lives, episodes=episodes, d=0.6)
        yield Case(POWER, f"{DIFFERENCES}d = 0.6, {lives} lives, {episodes} episode{'s' * (episodes > 1)}", lifted)
    for lives, episodes in ((100, 1), (100, 4), (100, 6), (100, 10), (500, 10)):
        case = functools.partial(higher, lives=lives, episodes=episodes, d=None)
        yield Case(
            POWER,
            f"{DIFFERENCES}d told to be found in 80%, {lives} lives, {episodes} episode{'s' * (episodes > 1)}",
            case,
        )


def higher(rng: np.random.Generator, settings: Inference, lives: int, episodes: int, d: float | None) -> Outcomes:
    """Look for one feature that is higher by d in a cluster of 30% of the records."""
    d = stated_d(lives, episodes) if d is None else d
    features, labels, planted_lives = planted(rng, lives, 0.3, d)
    tick, episode = np.arange(len(labels)) - planted_lives.starts[planted_lives.index], planted_lives.index % episodes
    results = differences((features[:, :1], labels, planted_lives, tick, episode), settings)
    return {
        "interval without 0": bool(results.intervals.complement_low[0, 0] > 0),
        "survives": bool(results.survives[0, 0]),
        "survives given tick and age": bool(results.survives_given_time[0, 0]),
    }


@functools.cache
def stated_d(lives: int, episodes: int, dumps: int = 40) -> float:
    """Return the d that such dumps state as found with a power of 80%: the median of some."""
    detectable = []
    for run in range(dumps):
        features, labels, planted_lives = planted(np.random.default_rng([17, run]), lives, 0.3, 0.0)
        tick, episode = (
            np.arange(len(labels)) - planted_lives.starts[planted_lives.index],
            planted_lives.index % episodes,
        )
        results = differences((features[:, :1], labels, planted_lives, tick, episode), Inference(seed=run))
        detectable.append(results.detectable[0, 0])
    return float(np.nanmedian(detectable))


if __name__ == "__main__":
    command_line.run(main)
