"""Visits: unbroken stretches of a life in one state."""

from dataclasses import dataclass

import numpy as np

from analysis.life_phase.label_sequences import LabelSequences


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
