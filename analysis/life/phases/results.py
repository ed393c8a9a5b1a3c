"""All that cluster_life_phase.py works out, and as it goes into JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from activation_store.reader import Progress
from analysis.labels import label_name
from analysis.life.phases.phases import Association, Shares, association, shares
from analysis.life.phases.transitions import (
    LAGS,
    Dwelling,
    LaggedPersistence,
    Memory,
    Transitions,
    dwelling,
    lagged_persistence,
    memory_of_two,
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
