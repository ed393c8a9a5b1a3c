"""Lives tick by tick: an agent's state, surroundings, actions, events and clusters, as figures and pages draw them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from activation_store.lives import life_keys, places_of
from activation_store.schema import DumpMetadata, Records
from analysis.features import feature_matrix, features_named
from analysis.labels import NOISE
from analysis.life.events import DIED, EVENT_KINDS, LifeEvents, life_events
from analysis.lives import Lives, lives_of

VITALS = ("self_health", "self_food", "self_water")
LEVELS = ("melee_level", "range_level", "mage_level", "max_combat_level", "max_harvesting_level")
NEARBY = ("n_visible_players", "n_passive_npcs", "n_neutral_npcs", "n_aggressive_npcs")
BELONGINGS = ("n_inventory_items", "self_gold")
LANES = (
    "is_moving", "is_attacking_with_melee", "is_attacking_with_range", "is_attacking_with_mage", "is_using_item",
    "is_destroying_item", "is_buying", "is_selling", "is_giving_item", "is_giving_gold",
)  # fmt: skip
"""Actions that an agent can choose, each a 0-or-1 feature; several can be chosen in one tick."""

FEATURES_SHOWN = (*VITALS, *LEVELS, *NEARBY, *BELONGINGS, *LANES)
ESTIMATES = ("reward", "value")


@dataclass(frozen=True)
class Timeline:
    """Lives tick by tick. B records, sorted by life, then tick."""

    records: Records
    lives: Lives  # of the records; life i owns lives.lengths[i] records from lives.starts[i]
    columns: dict[str, np.ndarray]
    """`FEATURES_SHOWN` by the names and in the units of docs/features.md, and `ESTIMATES` in the units of the reward,
    NaN if the dump does not record them; (B,) float64 each."""
    events: LifeEvents  # of the lives; `record` is an index into these records

    def __len__(self) -> int:
        return len(self.records)

    def number_of(self, key: Sequence[int]) -> int:
        """Return the number of the life of a slot, an agent and an episode.

        Raises:
            ValueError: it is not in this timeline.
        """
        first = life_keys(places_of(self.records))[self.lives.order[self.lives.starts]]  # (L, 3)
        rows = np.flatnonzero((first == np.asarray(key)).all(axis=1))
        if not len(rows):
            raise ValueError(f"there is no life {tuple(key)}")
        return int(rows[0])

    def of(self, lives: np.ndarray) -> "Timeline":
        """Return the timeline of some lives, each a slot, an agent and an episode, (L, 3)."""
        wanted = set(map(tuple, lives.tolist()))
        first = life_keys(places_of(self.records))[self.lives.order[self.lives.starts]]  # of each life
        own = np.repeat([tuple(life) in wanted for life in first.tolist()], self.lives.lengths)
        records, place = self.records.take(np.flatnonzero(own)), np.cumsum(own) - 1
        events = self.events.take(own[self.events.record])
        return Timeline(
            records,
            lives_of(records),
            {name: column[own] for name, column in self.columns.items()},
            LifeEvents(place[events.record], events.kind, events.detail),
        )

    def life(self, number: int) -> "Timeline":
        """Return the timeline of one life, from 0 to len(lives) - 1."""
        start = int(self.lives.starts[number])
        own = slice(start, start + int(self.lives.lengths[number]))
        records = self.records.take(np.arange(own.start, own.stop))
        events = self.events.take((self.events.record >= own.start) & (self.events.record < own.stop))
        return Timeline(
            records,
            lives_of(records),
            {name: column[own] for name, column in self.columns.items()},
            LifeEvents(events.record - own.start, events.kind, events.detail),
        )


def columns_used(metadata: DumpMetadata) -> list[str]:
    """Return the optional columns of a dump that describe lives: single numbers, not masks or logits."""
    return [name for name, column in metadata.columns.items() if column.width is None]


def timeline_of(records: Records, metadata: DumpMetadata) -> Timeline:
    """Compute the columns and events of records in any order.

    Tiles, activations and columns other than `columns_used` need not have been read. Pass whole episodes: an agent's
    killer, and whether it survived, can only be inferred from the others' records.

    Raises:
        UserError: the dump lacks a column or an action head, or an agent is not among the entities that it sees.
    """
    ordered = records.take(lives_of(records).order)
    values = feature_matrix(ordered, metadata, features_named(FEATURES_SHOWN))
    columns = dict(zip(FEATURES_SHOWN, values.T, strict=True))
    columns |= {name: getattr(ordered, name).astype(np.float64) for name in ESTIMATES}
    return Timeline(ordered, lives_of(ordered), columns, life_events(ordered, metadata))


TickClusters = tuple[np.ndarray, np.ndarray]
"""Clusters of one life's records, from 0 or `labels.NOISE`, (B,) int64, and whether the run labelled the record itself,
(B,) bool; other labels were propagated."""


def ending(life: Timeline) -> str:
    """Return how a single life ended."""
    causes = [detail for kind, detail in zip(life.events.kind, life.events.detail, strict=True) if kind == DIED]
    return f"died in tick {life.records.tick[-1]}: {causes[0]}" if causes else "alive when the recording ends"


def life_summary(life: Timeline, clusters: TickClusters | None) -> dict[str, Any]:
    """Return a single life's identity, ending, events and clusters as plain values for JSON."""
    records, events = life.records, life.events
    summary: dict[str, Any] = {
        "env_id": int(records.env_id[0]),
        "agent_id": int(records.agent_id[0]),
        "episode": int(records.episode[0]),
        "first_tick": int(records.tick[0]),
        "last_tick": int(records.tick[-1]),
        "records": len(life),
        "ending": ending(life),
        "events": [
            {"tick": int(tick), "kind": EVENT_KINDS[kind], "detail": detail}
            for tick, kind, detail in zip(records.tick[events.record], events.kind, events.detail, strict=True)
        ],
    }
    if clusters is not None:
        label, exact = clusters
        labels, counts = np.unique(label, return_counts=True)
        summary["cluster_shares"] = {
            "noise" if one == NOISE else str(one): float(count / len(life))
            for one, count in zip(labels, counts, strict=True)
        }
        summary["labelled_by_the_run"] = int(exact.sum())
    return summary
