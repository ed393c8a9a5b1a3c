"""Visits: unbroken stretches of a life in one state."""

from dataclasses import dataclass

import numpy as np

from analysis.life.phases.label_sequences import LabelSequences

VISITS_A_SPAN = 8
"""About how many visits of one stretch count as of one age.

With more of them states that drift pass for order, with fewer a favoured pair is missed: docs/benchmarks.md."""


@dataclass(frozen=True)
class Visits:
    """Unbroken stretches in one state, in order of lives and ticks. V visits.

    Attributes:
        life: (V,) int64.
        stretch: unbroken run of ticks that the visit belongs to: a life, or a part of one that lacks ticks, (V,) int64.
        state: (V,) int64.
        ticks: (V,) int64.
        left: whether another state follows in the very next tick, (V,) bool.
        begun: whether its begin was seen: a life's first record, or another state in the tick before, (V,) bool.
    """

    life: np.ndarray
    stretch: np.ndarray
    state: np.ndarray
    ticks: np.ndarray
    left: np.ndarray
    begun: np.ndarray


def visits(sequences: LabelSequences) -> Visits:
    """Find the visits of all lives."""
    life, state, tick = sequences.life, sequences.state, sequences.tick
    new_life = np.diff(life, prepend=-1) != 0
    gap = ~new_life & (np.diff(tick, prepend=-1) != 1)
    begins = np.flatnonzero(new_life | gap | (np.diff(state, prepend=-1) != 0))
    stretch = np.cumsum(new_life | gap)[begins]
    follows = np.append(stretch[1:] == stretch[:-1], False)
    return Visits(
        life=life[begins],
        stretch=stretch,
        state=state[begins],
        ticks=np.diff(begins, append=len(state)),
        left=follows,
        begun=~gap[begins],
    )


def spans(visit_table: Visits) -> np.ndarray:
    """Cut each stretch into spans of about `VISITS_A_SPAN` visits, as even as can be, (V,) int64, rising.

    A visit in which one span ends and the next begins is counted with the next.
    """
    stretch = np.unique(visit_table.stretch, return_inverse=True)[1]
    lengths = np.bincount(stretch)
    starts = np.cumsum(lengths) - lengths
    steps = np.maximum(lengths - 1, 1)  # from the first visit to the last
    parts = np.maximum(np.rint(steps / VISITS_A_SPAN).astype(np.int64), 1)
    place = np.arange(len(stretch)) - starts[stretch]
    part = np.minimum(place * parts[stretch] // steps[stretch], parts[stretch] - 1)
    return (np.cumsum(parts) - parts)[stretch] + part


def ticks_of_spans(visit_table: Visits) -> np.ndarray:
    """Return how many ticks each span of visits lasts, (spans,) int64."""
    return np.bincount(spans(visit_table), weights=visit_table.ticks).astype(np.int64)
