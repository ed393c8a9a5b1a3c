"""Which way things are: the side on which the nearest water, food, player or NPC is, in the directions of a move."""

import re

import numpy as np

from analysis.features import observed
from analysis.features.choices import DIRECTIONS
from analysis.features.feature import Category
from analysis.features.observed import Observed
from analysis.features.over_time import change
from analysis.features.surroundings import NPC_TYPES, NPCS, PLAYERS, SIDE, TILE_OFFSETS, Who
from analysis.materials import MATERIAL_NAMES

_HERE, _NOWHERE = len(DIRECTIONS), len(DIRECTIONS) + 1


def side_of(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return the side on which an offset lies, (B,) int64: 0 to 3 as in `DIRECTIONS`, 4 for no offset.

    The larger of both differences decides; the row where they are equal. Rows count to the south, columns to the east,
    (B,) each.
    """
    along_rows = np.where(row < 0, 0, 1)
    along_columns = np.where(column > 0, 2, 3)
    side = np.where(np.abs(row) >= np.abs(column), along_rows, along_columns)
    return np.where((row == 0) & (column == 0), _HERE, side)


def _key(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return a number that is smaller the nearer an offset is, and tells its side: `_side_of_key` of it.

    Nearness is in tiles as the game counts, then in steps to walk; of equally near ones the first side comes first.
    """
    rank = np.maximum(np.abs(row), np.abs(column)) * (4 * SIDE) + np.abs(row) + np.abs(column)
    return rank * _NOWHERE + side_of(row, column)


def _side_of_key(key: np.ndarray) -> np.ndarray:
    """Return the side that a key tells, (B,) int64; `_NOWHERE` for keys below 0."""
    return np.where(key < 0, _NOWHERE, key % _NOWHERE).astype(np.int64)


_TILE_KEY = _key(*TILE_OFFSETS).astype(np.int32)
_FARTHER = np.int32(_TILE_KEY.max() + 1)


def _tile(seen: Observed, material: str) -> np.ndarray:
    key = np.where(seen.material == MATERIAL_NAMES.index(material), _TILE_KEY, _FARTHER).min(axis=1)  # (B,)
    return _side_of_key(np.where(key == _FARTHER, -1, key))


def _entity(seen: Observed, who: Who) -> np.ndarray:
    rows = who(seen)
    owner = seen.entity_owner[rows]
    row, column = (seen.entity(axis)[rows].astype(np.int64) - seen.own_as_seen(axis)[owner] for axis in ("row", "col"))
    return _side_of_key(observed.extreme(_key(row, column), owner, len(seen), -1))


def _moved(seen: Observed) -> np.ndarray:
    return side_of(change("row")(seen), change("col")(seen))


def _sides(what: str, here: str) -> dict[str, str]:
    sides = {side: f"has the nearest {what} in the {side}" for side in DIRECTIONS}
    return {**sides, "here": f"{here}", "nowhere": f"sees no {what}"}


def _nearest(what: str) -> str:
    return f"The side on which the nearest {what} in view is."


_DANGEROUS = (NPC_TYPES["neutral"], NPC_TYPES["aggressive"])

WAYS = (
    Category(
        "nearest_water", _nearest("water tile"), _sides("water", "stands on water"), lambda seen: _tile(seen, "water"),
        of_tiles=True,
    ),
    Category(
        "nearest_foilage", _nearest("foilage tile (food)"), _sides("foilage", "stands on foilage"),
        lambda seen: _tile(seen, "foilage"), of_tiles=True,
    ),
    Category(
        "nearest_player", _nearest("other player"), _sides("player", "shares its tile with a player"),
        lambda seen: _entity(seen, PLAYERS),
    ),
    Category(
        "nearest_npc", _nearest("NPC"), _sides("NPC", "shares its tile with an NPC"),
        lambda seen: _entity(seen, NPCS),
    ),
    Category(
        "nearest_enemy", _nearest("neutral or aggressive NPC"), _sides("enemy", "shares its tile with an enemy"),
        lambda seen: _entity(seen, lambda seen: np.isin(seen.entity("npc_type"), _DANGEROUS)),
    ),
)  # fmt: skip

_SIDE_OF_TASK = re.compile(rf"GoTowards_\(side:({'|'.join(DIRECTIONS)})_")

MOVED = Category(
    "moved",
    "The direction that the agent has moved in since the previous tick: what came of its choice.",
    {**{side: f"has moved {side}" for side in DIRECTIONS}, "nowhere": "has not moved"},
    _moved,
    over_time=True,
)  # fmt: skip


def _goal(seen: Observed) -> np.ndarray:
    sides = [_SIDE_OF_TASK.search(name) for name in seen.task_names]
    numbers = np.array([DIRECTIONS.index(side[1]) if side else len(DIRECTIONS) for side in sides])
    return numbers[seen.task] if sides else np.full(len(seen), len(DIRECTIONS))


GOAL = Category(
    "goal",
    "The side of the map that the agent's task is to go to, also where it is not shown to the policy.",
    {**{side: f"has the task to go {side}" for side in DIRECTIONS}, "none": "has another task"},
    _goal,
)
