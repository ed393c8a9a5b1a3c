"""Targets about what the agent does next and what happens to it, read from the rest of its recorded life.

A target is NaN where the recording does not tell: the life ended first, or the episode was cut off. Every function
needs every tick of whole lives.
"""

from collections.abc import Callable

import numpy as np

from activation_store.directions import Axis, PlannedDisplacement
from analysis.features.choices import DIRECTIONS
from analysis.features.feature import YES_OR_NO, Feature
from analysis.features.observed import Observed
from analysis.features.over_time import earlier, was_replenished
from analysis.life.events import died
from analysis.lives import Lives

HORIZONS = (2, 5, 10, 20)
"""Ticks ahead for which displacement is predicted."""
DEATH_WITHIN = 10
"""Ticks within which death is predicted."""
_MOVE = "Move.Direction"
_LARGEST_ID = 1 << 16


def last_places(lives: Lives) -> np.ndarray:
    """Return the position in `lives.order` of the last record of each position's life, (B,) int64."""
    return np.repeat(lives.starts + lives.lengths - 1, lives.lengths)


def record_in(ticks: int, lives: Lives) -> np.ndarray:
    """Return the index of each record's life `ticks` later, -1 if the life has no such record, (B,) int64."""
    place = np.arange(len(lives.order)) + ticks
    there = place <= last_places(lives)
    records = np.full(len(place), -1)
    records[lives.order[there]] = lives.order[place[there]]
    return records


def next_record(happened: np.ndarray, lives: Lives) -> np.ndarray:
    """Return the index of the life's next record, after each record, where something happened: (B,) bool to int64.

    -1 where it does not happen again in the life.
    """
    size = len(lives.order)
    place = np.where(happened[lives.order], np.arange(size), size)
    # Positions of the next event at or after each position; the event at the position itself is not in its future.
    following = np.append(np.minimum.accumulate(place[::-1])[::-1], size)[1:]
    there = following <= last_places(lives)
    records = np.full(size, -1)
    records[lives.order[there]] = lives.order[following[there]]
    return records


def at(records: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values at the given records, NaN for those that are -1: (B,) int64 and (N,) to (B,) float64."""
    return np.where(records >= 0, values[records].astype(np.float64), np.nan)


Happened = Callable[[Observed], np.ndarray]
"""Marks records in which an outcome shows, (B,) bool."""


def _replenished(name: str) -> Happened:
    def happened(seen: Observed) -> np.ndarray:
        now = seen.own(name).astype(np.int64)
        return was_replenished(now, earlier(now, seen.lives, 1))

    return happened


def _gained_experience(skill: str) -> Happened:
    def happened(seen: Observed) -> np.ndarray:
        now = seen.own(f"{skill}_exp").astype(np.int64)
        return now > earlier(now, seen.lives, 1)

    return happened


RESOURCES = {
    "food": _replenished("food"), "water": _replenished("water"), "fish": _gained_experience("fishing"),
    "herb": _gained_experience("herbalism"), "ore": _gained_experience("prospecting"),
    "tree": _gained_experience("carving"), "crystal": _gained_experience("alchemy"),
}  # fmt: skip
"""What agents live on and harvest, each with the records in which it shows that they just got some."""


def _displacement(axis: Axis, ticks: int) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        place = seen.own(axis).astype(np.float64)
        return at(record_in(ticks, seen.lives), place) - place

    side = {"row": "south", "col": "east"}[axis]
    return Feature(
        PlannedDisplacement(axis, ticks).name,
        "tiles",
        f"Tiles {side} of where the agent stands that it is {ticks} ticks later; unknown if it has no record then.",
        compute,
        curve=f"displacement in {axis}s",
        ticks_ahead=ticks,
    )


def _next_direction(option: int, name: str, definition: str) -> Feature:
    return Feature(
        f"next_direction_is_{name}",
        YES_OR_NO,
        f"In its next tick the agent chooses to {definition}; unknown in the last record of a life.",
        lambda seen: at(record_in(1, seen.lives), seen.option(_MOVE) == option),
    )


def _next_resource(resource: str) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        got = {name: happened(seen) for name, happened in RESOURCES.items()}
        return at(next_record(np.logical_or.reduce([*got.values()]), seen.lives), got[resource])

    return Feature(
        f"next_resource_is_{resource}",
        YES_OR_NO,
        f"Of {', '.join(RESOURCES)}, the agent next gets {resource}, perhaps with others in the same tick; unknown if "
        "it gets none in the rest of its recorded life.",
        compute,
    )


def _ticks_to(doing: str, level: str) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        following = next_record(RESOURCES[level](seen), seen.lives)
        return at(following, seen.records.tick) - seen.records.tick

    return Feature(
        f"ticks_to_{doing}",
        "ticks",
        f"Ticks until the agent is next {doing}, at least 1, seen as {level} that does not fall; unknown if it is not "
        "in the rest of its recorded life.",
        compute,
    )


def _next_targets(seen: Observed) -> np.ndarray:
    """Return the entity row that each agent next chooses to attack, after the present tick, -1 if none, (B,) int64."""
    following = next_record(seen.target_rows >= 0, seen.lives)
    return np.where(following >= 0, seen.target_rows[following], -1)


def _way(axis: str, side: str) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        target = _next_targets(seen)
        known = np.flatnonzero(target >= 0)
        row = _rows_of(seen, known, seen.entity("id")[target[known]])
        way = np.full(len(seen), np.nan)
        way[known] = at(row, seen.entity(axis)) - seen.own_as_seen(axis)[known]
        return way

    return Feature(
        f"next_target_{axis}s",
        "tiles",
        f"Tiles {side} to the entity that the agent next chooses to attack, after this tick, as both stand now; "
        "unknown if there is none in the rest of its recorded life, or if it is not in view now.",
        compute,
    )


def _rows_of(seen: Observed, records: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the entity row with the given id in each of the given records, -1 if it is not in view, (R,) int64."""
    keys = seen.entity_owner * _LARGEST_ID + (seen.entity("id").astype(np.int64) + _LARGEST_ID // 2)
    order = np.argsort(keys, kind="stable")
    wanted = records * _LARGEST_ID + (ids.astype(np.int64) + _LARGEST_ID // 2)
    place = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    return np.where(keys[order[place]] == wanted, order[place], -1)


def _dies_within(ticks: int) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        lives = seen.lives
        # The last record is the moment before the tick in which the agent dies.
        left = last_places(lives) - np.arange(len(seen)) + 1
        ends = np.repeat(died(seen), lives.lengths)
        values = np.empty(len(seen))
        values[lives.order] = np.where(left > ticks, 0.0, np.where(ends, 1.0, np.nan))
        return values

    return Feature(
        f"dies_within_{ticks}_ticks",
        YES_OR_NO,
        f"The agent dies in this tick or in the {ticks - 1} after it; unknown where the recording ends before then and "
        "the agent is alive.",
        compute,
    )


FUTURE = {
    target.name: target
    for target in (
        *(_displacement(axis, ticks) for axis in ("row", "col") for ticks in HORIZONS),
        *(_next_direction(option, name, f"move {name}") for option, name in enumerate(DIRECTIONS)),
        _next_direction(len(DIRECTIONS), "none", "stay where it is"),
        *map(_next_resource, RESOURCES),
        _ticks_to("eating", "food"),
        _ticks_to("drinking", "water"),
        Feature(
            "next_target_is_player", YES_OR_NO,
            "The entity that the agent next chooses to attack, after this tick, is a player, not an NPC; unknown if "
            "there is none in the rest of its recorded life.", lambda seen: at(_next_targets(seen), seen.is_player),
        ),
        _way("row", "south"),
        _way("col", "east"),
        _dies_within(DEATH_WITHIN),
    )
}  # fmt: skip
