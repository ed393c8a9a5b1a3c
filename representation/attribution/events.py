"""When something begins: the ticks at which a condition on a behavioural feature starts to hold, in a dump."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.conditions import COMPARISONS, parts_of
from activation_store.lives import places_of
from activation_store.reader import read_dump, read_identity
from activation_store.schema import LIFE_KEY, DumpMetadata
from analysis.features.feature import Feature
from analysis.features.matrix import feature_matrix
from analysis.features.observed import own_truth_columns
from analysis.features.registry import features_named
from analysis.lives import lives_of

LifeKey = tuple[int, ...]
"""Slot, agent and episode of a life."""


@dataclass(frozen=True)
class Event:
    """A condition on a behavioural feature that begins to hold, such as `distance_to_npc <= 3`.

    Attributes:
        text: as the user wrote it.
        feature: that is compared.
        comparison: one of <, <=, >, >=, ==, !=.
        number: that the feature is compared with.
    """

    text: str
    feature: Feature
    comparison: str
    number: float

    @staticmethod
    def parse(text: str) -> "Event":
        """Read an event.

        Raises:
            UserError: it has another form, or names no feature of docs/features.md.
        """
        name, comparison, number = parts_of(text, "--event")
        (feature,) = features_named([name])
        return Event(text.strip(), feature, comparison, number)

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Return where the condition holds, given values of the feature."""
        return COMPARISONS[self.comparison](values, self.number)


@dataclass(frozen=True)
class Onsets:
    """Where an event begins.

    Attributes:
        place: of each life, the ticks of that life at which it begins, counted from the life's first record.
        held: of each life and each of these ticks, in which share of the ticks from then on the condition holds.
        born: tick of each life's first record.
    """

    place: dict[LifeKey, tuple[int, ...]]
    held: dict[LifeKey, tuple[float, ...]]
    born: dict[LifeKey, int]


def onsets(holds: np.ndarray, before: int, after: int) -> np.ndarray:
    """Return the ticks of one life at which a condition begins to hold, ascending.

    Args:
        holds: in each tick of the life, (T,) bool.
        before: ticks before, in none of which it may hold.
        after: ticks that must be there from the beginning on, that one included.
    """
    starts = np.flatnonzero(holds[1:] & ~holds[:-1]) + 1
    total = np.concatenate([[0], np.cumsum(holds)])
    quiet = total[starts] - total[np.maximum(starts - before, 0)] == 0
    return starts[quiet & (starts >= before) & (starts + after <= len(holds))]


def find_onsets(
    dump: Path, metadata: DumpMetadata, event: Event, before: int, after: int, lead: int,
    progress: Callable[[float], None],
) -> Onsets:  # fmt: skip
    """Find where an event begins in all lives of a dump.

    Args:
        dump: its folder.
        metadata: of the dump.
        event: to look for.
        before: ticks before it in which the condition does not hold.
        after: ticks from then on.
        lead: ticks that must be there before all these.
        progress: called with the share of episodes read.

    Raises:
        UserError: the dump lacks what the feature needs.
    """
    episodes = np.unique(read_identity(dump)["episode"]).tolist()
    leave_out = ["tables", *(() if event.feature.of_tiles else ("tile",))]
    place: dict[LifeKey, tuple[int, ...]] = {}
    held: dict[LifeKey, tuple[float, ...]] = {}
    born: dict[LifeKey, int] = {}
    for number, episode in enumerate(episodes):
        records = read_dump(
            dump, layers=[], columns=own_truth_columns(metadata), leave_out=leave_out, episodes=[episode]
        )
        holds = event.holds(feature_matrix(records, metadata, [event.feature])[:, 0])
        lives, places = lives_of(records), places_of(records)
        for start, length in zip(lives.starts.tolist(), lives.lengths.tolist(), strict=True):
            own = lives.order[start : start + length]
            found = [each for each in onsets(holds[own], before, after).tolist() if each >= before + lead]
            if found:
                key = tuple(int(places[name][own[0]]) for name in LIFE_KEY)
                place[key], born[key] = tuple(found), int(records.tick[own[0]])
                held[key] = tuple(float(holds[own][each : each + after].mean()) for each in found)
        progress((number + 1) / len(episodes))
    return Onsets(place, held, born)
