"""Agents' views, tick by tick, as tables small enough for a page."""

from typing import Any

import numpy as np

from activation_store.records import Records
from activation_store.schema import TILE_COLUMNS, TILES_IN_VIEW
from analysis.features.observed import Observed
from analysis.materials import MATERIALS
from analysis.pages.pages import ground_facts
from analysis.position import positions
from analysis.replays.replay import npc_facts
from common.user_error import UserError

SIDE = 15
"""Side of the view in tiles; the agent stands in the middle."""

_REACH = SIDE // 2
_FARTHEST = 1 << 12
"""Rows and columns that a view may be from the corner of the map. Simulated agents may leave the map."""


def view_facts() -> dict[str, Any]:
    """Return the facts that `view.js` reads."""
    return {**ground_facts(), "npcKinds": npc_facts()}


def view_tables(seen: Observed) -> dict[str, np.ndarray]:
    """Return the views of T ticks, which are ordered by life.

    Returns:
        `view.row` and `view.col`: position of the view's first tile, below 0 beyond the map, (T,). `view.tiles`:
        materials, (T, 225) uint8, encoded by `_changes`. And `entity_tables`.

    Raises:
        UserError: a view is not 15 x 15 tiles of known materials, or lies far outside any map.
    """
    first = _first_tiles(seen.records)
    return {
        "view.row": first[:, 0],
        "view.col": first[:, 1],
        "view.tiles": _changes(seen.records, first),
        **entity_tables(seen),
    }


def entity_tables(seen: Observed) -> dict[str, np.ndarray]:
    """Return who is in view at T ticks.

    Returns:
        `entity.*`: the other entities in view, tick by tick, `entity.count` (T,) of them each: kind (0 player, else the
        game's type of NPC), id, health, and rows down and columns right of the agent. `attack.target`: index of the
        attack target among its tick's entities, -1 for nobody, (T,).
    """
    others = _others(seen)
    before = np.concatenate([[0], np.cumsum(others)])
    starts = before[seen.records.entity.offsets]  # (T + 1,)
    target = seen.target_rows
    return {
        "entity.count": np.diff(starts),
        "entity.kind": np.maximum(seen.entity("npc_type"), 0)[others],
        "entity.id": seen.entity("id")[others],
        "entity.health": seen.entity("health")[others],
        "entity.down": (seen.entity("row") - seen.own_as_seen("row")[seen.entity_owner])[others],
        "entity.right": (seen.entity("col") - seen.own_as_seen("col")[seen.entity_owner])[others],
        "attack.target": np.where((target >= 0) & others[target], before[target] - starts[:-1], -1),
    }


def rows_in_view(seen: Observed) -> tuple[np.ndarray, np.ndarray]:
    """Return the tick of each entity of `entity_tables`, and its row in the tick's record."""
    others, entities = _others(seen), seen.records.entity
    rows = np.arange(len(others)) - np.repeat(entities.offsets[:-1], entities.counts)
    return seen.entity_owner[others], rows[others]


def _others(seen: Observed) -> np.ndarray:
    """Return which entities are in view and not the agent itself."""
    return ~seen.is_self & (seen.distance <= _REACH)


def _first_tiles(records: Records) -> np.ndarray:
    """Return the map row and column of each view's first tile, (T, 2), after checking that views are complete."""
    row, col, material = (records.tile[:, :, TILE_COLUMNS.index(name)] for name in TILE_COLUMNS)  # (T, 225) each
    place = np.arange(TILES_IN_VIEW)
    whole = (row == row[:, :1] + place // SIDE).all() and (col == col[:, :1] + place % SIDE).all()
    known = (material >= 0).all() and (material < len(MATERIALS)).all()
    first = np.stack(positions(records), axis=1).astype(np.int64) - _REACH
    if not (whole and known and (np.abs(first) < _FARTHEST).all()):
        raise UserError(
            f"the dump's views are not {SIDE} x {SIDE} tiles of the game's {len(MATERIALS)} materials, so they cannot "
            "be drawn: extract it again"
        )
    return first


def _changes(records: Records, first: np.ndarray) -> np.ndarray:
    """Return each tile of each view XORed with that tile's last earlier view in the same episode, or with 0 if none.

    An agent's view hardly changes from tick to tick, and agents share the map, so nearly all bytes are 0 and compress
    to a few bytes per view. Applying the same operation again in the same order restores the views.
    """
    views = records.tile[:, :, TILE_COLUMNS.index("material")].astype(np.uint8).reshape(-1, SIDE, SIDE)
    changes = np.empty_like(views)
    corner = first.min(axis=0, initial=0)
    size = first.max(axis=0, initial=0) - corner + SIDE
    worlds = {episode: np.zeros(size, np.uint8) for episode in np.unique(records.episode).tolist()}
    places = (first - corner).tolist()
    for i, ((row, col), episode) in enumerate(zip(places, records.episode.tolist(), strict=True)):
        seen = worlds[episode][row : row + SIDE, col : col + SIDE]
        np.bitwise_xor(views[i], seen, out=changes[i])
        seen[:] = views[i]
    return changes.reshape(-1, TILES_IN_VIEW)
