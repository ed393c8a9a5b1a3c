"""All that cluster_life_phase.py works out, as it goes into JSON and as a page of text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from activation_store.reader import Progress
from analysis.labels import label_name
from analysis.life.phases.transitions import (
    LAGS,
    Association,
    Dwelling,
    LaggedPersistence,
    Memory,
    Shares,
    Transitions,
    association,
    dwelling,
    lagged_persistence,
    memory_of_two,
    shares,
    transitions,
)
from analysis.life.phases.visits import (
    VISITS_A_SPAN,
    LabelSequences,
    label_sequences,
    phase_edges,
    tick_edges,
    ticks_of_spans,
    visits,
)
from analysis.runs.propagated_labels import PropagatedLabels
from analysis.runs.run_folder import plain
from analysis.statistics.inference import LEVEL
from analysis.statistics.resampling import Bootstrap

Edges = Callable[[LabelSequences], np.ndarray]
_TESTS = 6
"""Rounds of permutations: by phase and by tick, each with all labels and with the run's own, transitions, memory."""


@dataclass(frozen=True)
class InTime:
    """Shares over bins of one kind of time, and whether they change; the test also on the run's own labels alone."""

    shares: Shares
    association: Association
    own_labels_only: Association


@dataclass(frozen=True)
class LifePhases:
    """All results."""

    sequences: LabelSequences
    lives: int
    shortest: int
    by_phase: InTime
    by_tick: InTime
    dwelling: Dwelling
    persistence: tuple[LaggedPersistence, ...]
    own_persistence: tuple[LaggedPersistence, ...]
    """The same from the run's own labels only; no pairs at lags that its stride leaves out."""
    transitions: Transitions
    memory: Memory
    ticks_of_spans: np.ndarray  # of the visits that both count as of one age, (spans,) int64
    propagated: PropagatedLabels
    bootstrap: Bootstrap

    @property
    def names(self) -> list[str]:
        """What the states are called."""
        return [label_name(int(label)) for label in self.sequences.labels]

    def to_json(self) -> dict[str, Any]:
        """Return every number; null is what is undefined."""
        return {
            "lives": len(self.sequences),
            "lives_in_dump": self.lives,
            "episodes": len(self.sequences.units),
            "min_lifespan_ticks": self.shortest,
            "records": len(self.sequences.state),
            "states": self.names,
            "resamples": self.bootstrap.resamples,
            "confidence": self.bootstrap.confidence,
            "by_phase": plain(self.by_phase),
            "by_tick": plain(self.by_tick),
            "dwelling_ticks": plain(self.dwelling),
            "persistence": plain(self.persistence),
            "own_labels_persistence": plain(self.own_persistence),
            "age_span": {"visits": VISITS_A_SPAN, "median_ticks": float(np.median(self.ticks_of_spans))},
            "transitions_lag_1_tick": plain(self.transitions),
            "memory_of_order_two": plain(self.memory),
        }


def life_phases(
    propagated: PropagatedLabels, lives: int, bins: int, shortest: int, permutations: int, bootstrap: Bootstrap,
    progress: Progress,
) -> LifePhases:  # fmt: skip
    """Work out all results.

    At least one life must have lasted the `shortest` ticks. The seed of the intervals is that of the permutations too.
    """
    sequences = label_sequences(propagated.places, propagated.label, shortest)
    # The labels that the run itself gave, of the lives that are counted.
    places = {name: column[propagated.exact] for name, column in propagated.places.items()}
    own = label_sequences(places, propagated.label[propagated.exact], shortest=1).of_lives(sequences)
    of_life = np.linspace(0, 1, bins + 1)
    of_ticks = np.linspace(sequences.tick.min(), sequences.tick.max() + 1, bins + 1)

    def in_time(edges: Edges, shown: np.ndarray, first: int) -> InTime:
        tests = (
            association(labels, edges(labels), permutations, bootstrap.seed, _part(first + i, progress))
            for i, labels in enumerate((sequences, own))
        )
        return InTime(shares(sequences, edges(sequences), shown, bootstrap), *tests)

    visit_table = visits(sequences)
    return LifePhases(
        sequences=sequences,
        lives=lives,
        shortest=shortest,
        by_phase=in_time(lambda labelled: phase_edges(labelled, bins), of_life, 0),
        by_tick=in_time(lambda labelled: tick_edges(labelled, of_ticks), of_ticks, 2),
        dwelling=dwelling(sequences, visit_table, bootstrap),
        persistence=tuple(lagged_persistence(sequences, lag, bootstrap) for lag in LAGS),
        own_persistence=tuple(lagged_persistence(own, lag, bootstrap) for lag in LAGS if len(own)),
        transitions=transitions(sequences, visit_table, permutations, bootstrap.seed, _part(4, progress)),
        memory=memory_of_two(visit_table, len(sequences.labels), permutations, bootstrap.seed, _part(5, progress)),
        ticks_of_spans=ticks_of_spans(visit_table),
        propagated=propagated,
        bootstrap=bootstrap,
    )


def _part(number: int, progress: Progress) -> Progress:
    """Return what one test reports its share to, so that all of them make one whole."""
    return lambda share: progress((number + share) / _TESTS)


_PAIRS_SHOWN = 20
_GIVEN = f"{'chance given age':>18}{'q':>8}{'chance without':>18}{'q':>8}"


def as_text(results: LifePhases) -> str:
    """Return the results as text."""
    propagated, bootstrap = results.propagated, results.bootstrap
    head = [
        f"{len(results.sequences):,} of {results.lives:,} lives last {results.shortest} ticks or more, in "
        f"{len(results.sequences.units)} episodes, {len(results.sequences.state):,} records. Each life weighs equally.",
        f"{propagated.exact.mean():.1%} of the dump's records have the run's own label. {propagated.rule.in_words()}",
        f"Intervals: {bootstrap.confidence:.0%}, {bootstrap.resamples:,} resamples of episodes, then of lives in them.",
    ]
    parts = (head, _time(results), _dwelling(results), _transitions(results))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def caption(results: LifePhases, course: InTime) -> str:
    """Return what shares over time are of, and whether they change, in one line."""
    lives = f"{len(results.sequences):,} lives of {results.shortest} ticks or more, weighted equally"
    return f"{lives}; share of the clusters' entropy that time explains: {_explained(course.association)}; bands: 95%"


def _time(results: LifePhases) -> list[str]:
    lines = ["Do clusters depend on time? Share of the clusters' entropy explained by time:"]
    both = (("phase of life", results.by_phase), ("tick of the episode", results.by_tick))
    for name, course in both:
        lines.append(f"  {name}: {_explained(course.association)}")
        lines.append(
            f"    with the run's own labels only, each held until the next: {_explained(course.own_labels_only)}"
        )
    lines.append(f"  each state separately, chance in brackets:\n    {'':12}{'by phase':>32}{'by tick':>32}")
    for state, name in enumerate(results.names):
        tests = (course.association for _, course in both)
        cells = (
            f"{_share(test.state_explained[state])} ({_share(test.state_chance[state])}), q = {test.state_q[state]:.2g}"
            for test in tests
        )
        lines.append(f"    {name:12}" + "".join(f"{cell:>32}" for cell in cells))
    shifts = results.by_phase.association.permutations
    return [
        *lines,
        f"  Chance: the labels of each life shifted circularly by a random number of records, {shifts:,} times.",
        "  q is p corrected for the number of states (Benjamini and Hochberg).",
    ]


def _dwelling(results: LifePhases) -> list[str]:
    dwelling = results.dwelling
    heads = ("visits", "cut off", "mean", "95% interval", "chance", "median", "memoryless")
    lines = ["How long does a visit to a state last, in ticks?", _row("", heads)]
    for k, name in enumerate(results.names):
        interval = f"{_number(dwelling.low[k])} to {_number(dwelling.high[k])}"
        numbers = [
            _number(column[k]) for column in (dwelling.mean, dwelling.chance, dwelling.median, dwelling.memoryless)
        ]
        cells = (f"{dwelling.visits[k]:,}", f"{dwelling.censored[k]:,}", numbers[0], interval, *numbers[1:])
        lines.append(_row(name, cells))
    lines += [
        "  Mean: ticks over visits that ended; visits cut off by death or the recording's end add their ticks.",
        "  Chance: a life's ticks in random order. Median: Kaplan-Meier estimate, which accounts for cut-offs.",
        "  Memoryless: the median if leaving were equally likely at every tick.",
    ]
    lines += _persistence("", results.persistence)
    lines += _persistence(", from the run's own labels only", results.own_persistence)
    return lines


def _persistence(whose: str, persistences: tuple[LaggedPersistence, ...]) -> list[str]:
    return [
        f"  {lagged.lag} tick{'s' * (lagged.lag > 1)} later{whose}: the same state in {_share(lagged.same)}, by chance "
        f"{_share(lagged.chance)}; beyond chance {_number(lagged.beyond_chance)} ({_number(lagged.low)} to "
        f"{_number(lagged.high)}), where 0 is chance and 1 means no change"
        for lagged in persistences
        if lagged.pairs
    ]


def _row(name: str, cells: tuple[str, ...]) -> str:
    return f"    {name:12}" + "".join(f"{cell:>19}" if i == 3 else f"{cell:>11}" for i, cell in enumerate(cells))


def _transitions(results: LifePhases) -> list[str]:
    transitions, names = results.transitions, results.names
    given, anyhow = transitions.given_age, transitions.any_age
    pairs = np.argwhere(np.isfinite(anyhow.q))
    if not len(pairs):
        few = len(names) <= 2
        why = "with two states, each follows the other" if few else "visits can follow each other in only one order"
        return [f"Which state follows which, from one tick to the next? There is nothing to test: {why}."]
    counts, q, q_any = (matrix[tuple(pairs.T)] for matrix in (transitions.count, given.q, anyhow.q))
    shown = pairs[np.lexsort((-counts, q_any, q))[:_PAIRS_SHOWN]]  # NaN last
    lines = [
        "Which state follows which, from one tick to the next?",
        f"  Of {len(pairs)} pairs tested, {_surviving(q)} survive given age, {_surviving(q_any)} without.",
        f"  The {len(shown)} with lowest q:",
        f"    {'from':12}{'to':12}{'times':>8}{'share':>9}{_GIVEN}",
    ]
    for a, b in shown.tolist():
        lines.append(
            f"    {names[a]:12}{names[b]:12}{transitions.count[a, b]:>8,}{_share(transitions.share[a, b]):>9}"
            + _cells(given.chance[a, b], given.q[a, b], anyhow.chance[a, b], anyhow.q[a, b])
        )
    lives = np.median(results.sequences.lengths)
    span = f"{VISITS_A_SPAN} visits (median {np.median(results.ticks_of_spans):,.0f} ticks"
    return [
        *lines,
        f"  Share: of all changes out of the first state. To survive, q must be {LEVEL:g} or less.",
        "  Chance without age: the visits of each life between its first and last in random order, no state after",
        "  itself. States whose odds change over a life deviate from that, though there is no order to find.",
        f"  Chance given age: random order within spans of about {span}; of lives, {lives:,.0f}).",
        "  Odds that change within such a span can still look like order.",
        *_memory(results),
    ]


def _memory(results: LifePhases) -> list[str]:
    memory, names = results.memory, results.names
    given, anyhow = memory.given_age, memory.any_age
    tested = np.flatnonzero(np.isfinite(anyhow.q))
    if not len(tested):
        return []
    surest = tested[np.lexsort((-memory.visits[tested], anyhow.q[tested], given.q[tested]))[:_PAIRS_SHOWN]]
    return [
        "  Does the state before a visit predict the state after it? Of "
        f"{len(tested)} states, {_surviving(given.q)} survive given age, {_surviving(anyhow.q)} without.",
        "  Share of the entropy of the following state:",
        f"    {'visit to':12}{'visits':>8}{'explained':>11}{_GIVEN}",
        *(
            f"    {names[k]:12}{memory.visits[k]:>8,}{_share(memory.explained[k]):>11}"
            + _cells(given.chance[k], given.q[k], anyhow.chance[k], anyhow.q[k])
            for k in surest.tolist()
        ),
        "  Chance: the stretches of a life between two visits to the same state in random order, so that what follows",
        "  depends on that state only (a first-order Markov chain); given age: within the same spans. A state must be",
        "  visited more than twice in a span to be tested so: of six states or more, much memory is missed.",
    ]


def _cells(chance: float, q: float, chance_any: float, q_any: float) -> str:
    surety = ("n/a" if np.isnan(value) else f"{value:.2g}" for value in (q, q_any))
    return "".join(f"{_share(c):>18}{s:>8}" for c, s in zip((chance, chance_any), surety, strict=True))


def _surviving(q: np.ndarray) -> int:
    return int((q <= LEVEL).sum())


def _explained(association: Association) -> str:
    if np.isnan(association.explained):
        return "only one label occurs, so there is nothing to explain"
    chance = f"chance {association.chance:.1%}, 95% of it below {association.chance_high:.1%}"
    return f"{association.explained:.1%} ({chance}), p = {association.p:.2g}"


def _share(value: float) -> str:
    return "n/a" if np.isnan(value) else f"{value:.1%}"


def _number(value: float) -> str:
    return "n/a" if np.isnan(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
