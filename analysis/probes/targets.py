"""The registry of targets: behavioural features, what no observation shows, the future, and the present action.

To add a target, add one entry to `HIDDEN` or `FUTURE`, or a feature to the registry of features. The present action is
meant for `--given action`: whoever knows the action of this tick knows part of the near future without any plan.

Targets about what the agent does next and what happens to it are read from the rest of its recorded life; they need
every tick of whole lives, and are NaN where the recording does not tell: the life ended first, or the episode was cut.
"""

from collections.abc import Iterable

import numpy as np

from activation_store.directions import Axis, PlannedDisplacement
from analysis.features.body import earlier, was_replenished
from analysis.features.choices import ACTIONS, DIRECTIONS
from analysis.features.feature import YES_OR_NO, Feature
from analysis.features.observed import Observed
from analysis.features.registry import EXTENDED_FEATURES
from analysis.features.surroundings import RADIUS, TILE_OFFSETS
from analysis.life.events import died
from analysis.lives import Lives
from analysis.materials import MATERIAL_NAMES
from common.argument_checks import nearest
from common.user_error import UserError

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


RESOURCES = {
    "food": "food", "water": "water", "fish": "fishing_exp", "herb": "herbalism_exp", "ore": "prospecting_exp",
    "tree": "carving_exp", "crystal": "alchemy_exp",
}  # fmt: skip
"""What agents live on and harvest, each with the column of their own row that shows when they just got some."""


def _got(resource: str, seen: Observed) -> np.ndarray:
    """Return the records in which it shows that the agent just got some of a resource, (B,) bool."""
    now = seen.own(RESOURCES[resource]).astype(np.int64)
    before = earlier(now, seen.lives, 1)
    return was_replenished(now, before) if resource in ("food", "water") else now > before


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
        got = {name: _got(name, seen) for name in RESOURCES}
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
        following = next_record(_got(level, seen), seen.lives)
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


_SUMS_UP_OTHERS = ("is_idle",)
_WATER = MATERIAL_NAMES.index("water")
_WIDEST = 1 << 12
"""More rows or columns than any map has."""
_NO_QUANTITY = ("nearest_npc_type",)
"""Features whose numbers name kinds: neither more nor less, so no regression fits them."""
OF_FEATURES = {f.name: f for f in EXTENDED_FEATURES if f.name not in _NO_QUANTITY}
DEFAULT = (
    "self_health", "self_food", "self_water", "ticks_since_eating", "ticks_since_drinking", "is_starving",
    "is_dehydrated", "is_starving_or_dehydrated", "health_change", "next_health_change", "tick", "age", "self_row",
    "self_col", "distance_to_centre", "distance_to_edge", "rows_from_spawn", "cols_from_spawn", "distance_to_spawn",
    "displacement", "ticks_standing_still", "remembered_water_distance", "remembered_water_rows",
    "remembered_water_cols", "distance_to_water", "distance_to_foilage", "n_water_tiles", "n_foilage_tiles",
    "walkable_share", "is_beside_water", "n_visible_players", "n_visible_npcs", "distance_to_player",
    "distance_to_npc", "n_aggressive_npcs", "n_stronger_npcs", "damage_taken", "is_attacked", "in_combat",
    "ticks_since_combat", "max_combat_level", "max_harvesting_level", "self_gold", "n_inventory_items", "item_level",
    "is_moving", "is_attacking", "is_using_item", "is_trading",
)  # fmt: skip
"""The body and its past first, then time and place, then what is in view, belongings and actions."""


def _moves(option: int, name: str) -> Feature:
    return Feature(
        f"is_moving_{name}",
        YES_OR_NO,
        f"The agent chose to move {name}.",
        lambda seen: seen.option("Move.Direction") == option,
    )


def _attacked(axis: str, side: str) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        way = np.zeros(len(seen))
        struck = seen.target_rows >= 0
        there = seen.entity(axis)[seen.target_rows[struck]].astype(np.float64)
        way[struck] = there - seen.own_as_seen(axis)[struck]
        return way

    text = f"Tiles {side} to the entity that the agent chose to attack; 0 if it chose none."
    return Feature(f"attacked_{axis}s", "tiles", text, compute)


PRESENT_ACTION = {
    target.name: target
    for target in (
        *(_moves(option, name) for option, name in enumerate(DIRECTIONS)),
        *(feature for feature in ACTIONS if feature.name not in _SUMS_UP_OTHERS),
        _attacked("row", "south"),
        _attacked("col", "east"),
    )
}  # fmt: skip


def remembered_water(seen: Observed) -> np.ndarray:
    """Return the way to the nearest water that was in view earlier in the life and is not now: (B, 2) float64.

    In view is what the policy saw, whose view may be narrow. Nearest with diagonal steps counted as one, in a straight
    line among those equally near. Water is never used up, so what was seen is still there. The way is in rows and
    columns, south and east positive; NaN where there is none.
    """
    place = np.stack([seen.own("row"), seen.own("col")], axis=1).astype(np.int64)  # (B, 2)
    water = seen.material == _WATER  # (B, tiles in view)
    world = seen.metadata.environment
    narrow = seen.records.tick >= world.get("narrow_from", 0)
    reach = np.where(narrow, world.get("view_radius", RADIUS), RADIUS)  # (B,), in tiles
    way = np.full((len(seen), 2), np.nan)
    lives = seen.lives
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        records = lives.order[start : start + length]
        way[records] = _ways_in_life(place[records], water[records], reach[records])
    return way


def _ways_in_life(place: np.ndarray, water: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Find the ways of one life, (T, 2), from places (T, 2), water in view (T, tiles) and how far it reaches (T,)."""
    tick, tile = np.nonzero(water)
    offsets = place[tick] + TILE_OFFSETS[:, tile].T  # (sightings, 2)
    _, first = np.unique(offsets[:, 0] * _WIDEST + offsets[:, 1], return_index=True)
    if not len(first):
        return np.full((len(place), 2), np.nan)
    # One array for each axis: numpy is several times slower along a short last axis.
    rows, cols = (offsets[first, axis] - place[:, axis, None] for axis in (0, 1))  # (T, tiles of water)
    steps = np.maximum(np.abs(rows), np.abs(cols))
    known = (steps > reach[:, None]) & (tick[first] < np.arange(len(place))[:, None])
    # One number orders by steps, then by the straight line.
    rank = np.where(known, steps * (2 * _WIDEST**2) + rows**2 + cols**2, np.iinfo(np.int64).max)
    nearest = offsets[first[rank.argmin(axis=1)]] - place
    return np.where(known.any(axis=1)[:, None], nearest, np.nan)


def _from_spawn(axis: str) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        now = seen.own(axis).astype(np.float64)
        return now - earlier(now, seen.lives, len(seen))

    side = {"row": "south", "col": "east"}[axis]
    return Feature(
        f"{axis}s_from_spawn", "tiles", f"Tiles {side} of where the agent spawned; negative beyond it.", compute
    )


def _remembered(name: str, definition: str, axis: int | None) -> Feature:
    def compute(seen: Observed) -> np.ndarray:
        way = seen.remembered(remembered_water.__name__, remembered_water)  # three targets need it
        return np.abs(way).max(axis=1) if axis is None else way[:, axis]

    return Feature(
        name, "tiles", f"{definition} the nearest water that the agent saw earlier and sees no more.", compute
    )


HIDDEN = {
    target.name: target
    for target in (
        Feature(
            "is_starving_or_dehydrated", YES_OR_NO, "The agent's food or its water is 0, which costs health.",
            lambda seen: (seen.own("food") == 0) | (seen.own("water") == 0),
        ),
        Feature(
            "next_health_change", "points", "Change of the agent's health until its next tick; none in its last one.",
            lambda seen: at(record_in(1, seen.lives), seen.own("health")) - seen.own("health").astype(np.float64),
        ),
        _from_spawn("row"),
        _from_spawn("col"),
        _remembered("remembered_water_distance", "Tiles, diagonal steps counted as one, to", None),
        _remembered("remembered_water_rows", "Tiles south to", 0),
        _remembered("remembered_water_cols", "Tiles east to", 1),
    )
}  # fmt: skip
"""Targets beyond the registry of features."""

NOT_EVERYWHERE = (*(name for name in HIDDEN if name.startswith(("next_", "remembered_"))), *FUTURE)
"""Targets that are NaN where the question makes no sense, or where the recording does not answer it."""

TARGETS = OF_FEATURES | HIDDEN | FUTURE | PRESENT_ACTION


SETS = {
    "default": DEFAULT, "hidden": tuple(HIDDEN), "extended": tuple(OF_FEATURES | HIDDEN), "future": tuple(FUTURE),
    "action": tuple(PRESENT_ACTION),
}  # fmt: skip
"""What can be asked for by one name."""


def targets_named(names: Iterable[str]) -> tuple[Feature, ...]:
    """Return the targets of the given names or names of sets, each once, in the order in which they are named.

    Raises:
        UserError: there is no such target or set, or none is named.
    """
    wanted = [target for name in names for target in SETS.get(name, (name,))]
    if unknown := [name for name in wanted if name not in TARGETS]:
        likely = nearest(unknown[0], [*TARGETS, *SETS], 1)
        hint = f"did you mean {likely[0]}? " if likely else ""
        raise UserError(f"there is no target {unknown[0]!r}: {hint}docs/probes.md lists all; sets: {', '.join(SETS)}")
    if not wanted:
        raise UserError(f"no target is named: give names, or a set: {', '.join(SETS)}")
    return tuple(TARGETS[name] for name in dict.fromkeys(wanted))
