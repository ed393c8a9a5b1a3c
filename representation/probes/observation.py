"""What the policy saw, as numbers that a probe can use at once: the baseline that a memory has to beat.

The raw observation is thousands of integers, which a linear probe makes little of. So that the baseline has its best
chance, it is given every feature of the registry that one observation tells, and the view by distance and direction.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from activation_store.columns import TRUTH
from activation_store.schema import DumpMetadata, Records
from analysis.features import ragged
from analysis.features.actions import ACTIONS
from analysis.features.feature import Feature
from analysis.features.observed import Observed
from analysis.features.over_time import earlier
from analysis.features.registry import EXTENDED_FEATURES, THEMES
from analysis.features.view import RADIUS, SIDE
from analysis.lives import Lives
from analysis.materials import MATERIAL_NAMES

_BLOCK = 3
_BLOCKS = SIDE // _BLOCK
_MATERIALS = len(MATERIAL_NAMES)
_SOUGHT = ("void", "water", "foilage", "stone", "ore", "tree", "crystal", "herb", "fish")
_TILE_OFFSETS = (np.indices((SIDE, SIDE)).reshape(2, -1) - RADIUS).astype(np.int64)  # (2, tiles)


def as_seen(records: Records, metadata: DumpMetadata) -> Observed:
    """Return records as the policy saw them: without the columns beside the observation, or a clock that was withheld.

    What reads the agent's own row then reads what the policy was shown of it.
    """
    clock_withheld = f"{TRUTH}time_alive" in metadata.columns  # the own age is withheld exactly where the clock is
    tick = np.zeros_like(records.tick) if clock_withheld else records.tick
    shown = {name: values for name, values in records.columns.items() if name == "task"}
    described = {name: column for name, column in metadata.columns.items() if name in shown}
    return Observed(replace(records, columns=shown, tick=tick), replace(metadata, columns=described))


def in_one_observation() -> tuple[Feature, ...]:
    """Return the features that a single observation tells: neither what was done nor what happened over time."""
    chosen = {feature.name for feature in (*ACTIONS, *THEMES["Choices"])} | {"is_moving", "is_attacking", "is_trading"}
    return tuple(f for f in EXTENDED_FEATURES if not f.over_time and f.name not in chosen)


def digest(seen: Observed) -> np.ndarray:
    """Return the gist of an observation: registry features, the own row, and where things are, (B, columns) float32."""
    features = [feature.compute(seen) for feature in _told(seen)]
    own = [seen.own_as_seen(name) for name in seen.metadata.entity_columns]
    ways = [_way_to_material(seen, name) for name in _SOUGHT]
    others = [_way_to_entity(seen, who) for who in (seen.is_player, seen.is_npc)]
    return np.column_stack([*features, *own, *ways, *others]).astype(np.float32)


def whole_view(seen: Observed) -> np.ndarray:
    """Return the view in detail: materials and entities by distance and direction, and the task where it is recorded.

    Materials and kinds of entities are counted in blocks of 3 x 3 tiles; the nine tiles around the agent have columns
    of their own: (B, columns) float32.
    """
    parts = [_materials_in_blocks(seen), _materials_around(seen)]
    parts += [_entities_in_blocks(seen, who) for who in (seen.is_player, seen.is_npc)]
    if "task" in seen.records.columns:
        parts.append(seen.records.columns["task"])
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def last_observations(gist: np.ndarray, lives: Lives, ticks: int) -> np.ndarray:
    """Return the gists of so many earlier ticks side by side, (B, ticks x columns); before a life, that of its birth.

    Args:
        gist: of every tick of whole lives, (B, columns).
        lives: of these records.
        ticks: to look back, from 0.
    """
    return np.concatenate([gist[:, :0], *(earlier(gist, lives, back) for back in range(1, ticks + 1))], axis=1)


def _told(seen: Observed) -> Sequence[Feature]:
    # Where a dump does not say how large its maps are, two features of the place cannot be told.
    unknown = () if "map_size" in seen.metadata.environment else ("distance_to_centre", "distance_to_edge")
    return [feature for feature in in_one_observation() if feature.name not in unknown]


def _way_to_material(seen: Observed, name: str) -> np.ndarray:
    """Return rows and columns to the nearest tile of a material in view, (B, 2); zeros where there is none."""
    there = seen.material == MATERIAL_NAMES.index(name)
    rank = np.abs(_TILE_OFFSETS).max(axis=0) * 1000 + (_TILE_OFFSETS**2).sum(axis=0)
    nearest = np.where(there, rank.astype(np.int32), np.iinfo(np.int32).max).argmin(axis=1)
    return np.where(there.any(axis=1)[:, None], _TILE_OFFSETS[:, nearest].T, 0)


def _apart(seen: Observed) -> np.ndarray:
    """Return rows and columns from the agent to each visible entity, (E, 2) int64."""
    sides = [seen.entity(axis).astype(np.int64) - seen.own_as_seen(axis)[seen.entity_owner] for axis in ("row", "col")]
    return np.stack(sides, axis=1)


def _way_to_entity(seen: Observed, who: np.ndarray) -> np.ndarray:
    """Return rows and columns to the nearest of some entities, its health and its level, (B, 4); zeros without one."""
    apart, owner = _apart(seen)[who], seen.entity_owner[who]
    steps = np.abs(apart).max(axis=1)
    rows = len(owner)
    # Distance first; then the row, so that the smallest number also tells which row it is.
    first = ragged.smallest(steps * (rows + 1) + np.arange(rows), owner, len(seen), -1)
    found = np.zeros((len(seen), 4))
    there = first >= 0
    nearest = first[there] % (rows + 1)
    found[there, :2] = apart[nearest]
    found[there, 2] = seen.entity("health")[who][nearest]
    found[there, 3] = seen.combat_level[who][nearest]
    return found


def _block_of(rows_and_columns: np.ndarray) -> np.ndarray:
    """Return the number of the block that each place relative to the agent lies in, (N, 2) to (N,)."""
    block = (rows_and_columns + RADIUS) // _BLOCK
    return block[:, 0] * _BLOCKS + block[:, 1]


def _materials_in_blocks(seen: Observed) -> np.ndarray:
    cells = _BLOCKS**2 * _MATERIALS
    cell = _block_of(_TILE_OFFSETS.T)[None] * _MATERIALS + seen.material  # (B, tiles)
    place = np.arange(len(seen))[:, None] * cells + cell
    return np.bincount(place.ravel(), minlength=len(seen) * cells).reshape(len(seen), cells)


def _materials_around(seen: Observed) -> np.ndarray:
    around = np.abs(_TILE_OFFSETS).max(axis=0) <= 1
    return (seen.material[:, around, None] == np.arange(_MATERIALS)).reshape(len(seen), -1)


def _entities_in_blocks(seen: Observed, who: np.ndarray) -> np.ndarray:
    apart = _apart(seen)[who]
    inside = np.abs(apart).max(axis=1, initial=0) <= RADIUS
    place = seen.entity_owner[who][inside] * _BLOCKS**2 + _block_of(apart[inside])
    return np.bincount(place, minlength=len(seen) * _BLOCKS**2).reshape(len(seen), -1)
