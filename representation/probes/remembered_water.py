"""Where the water is that an agent has seen but does not see any more."""

import numpy as np

from analysis.features.observed import Observed
from analysis.features.view import RADIUS, SIDE
from analysis.materials import MATERIAL_NAMES

_WATER = MATERIAL_NAMES.index("water")
_OFFSETS = np.indices((SIDE, SIDE)).reshape(2, -1) - RADIUS  # (2, tiles in view)
_WIDEST = 1 << 12
"""More rows or columns than any map has."""


def remembered_water(seen: Observed) -> np.ndarray:
    """Return the way to the nearest water that was in view earlier in the life and is not now: (B, 2) float64.

    Nearest with diagonal steps counted as one, in a straight line among those equally near. Water is never used up, so
    what was seen is still there. The way is in rows and columns, south and east positive; NaN where there is none.
    """
    place = np.stack([seen.own("row"), seen.own("col")], axis=1).astype(np.int64)  # (B, 2)
    water = seen.material == _WATER  # (B, tiles in view)
    way = np.full((len(seen), 2), np.nan)
    lives = seen.lives
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        records = lives.order[start : start + length]
        way[records] = _ways_in_life(place[records], water[records])
    return way


def _ways_in_life(place: np.ndarray, water: np.ndarray) -> np.ndarray:
    """Find the ways of one life: places (T, 2) and water in view (T, tiles), in order of ticks, to (T, 2)."""
    tick, tile = np.nonzero(water)
    found = place[tick] + _OFFSETS[:, tile].T  # (sightings, 2)
    _, first = np.unique(found[:, 0] * _WIDEST + found[:, 1], return_index=True)
    if not len(first):
        return np.full((len(place), 2), np.nan)
    apart = found[first][None] - place[:, None]  # (T, tiles of water, 2)
    steps = np.abs(apart).max(axis=2)
    known = (steps > RADIUS) & (tick[first][None] < np.arange(len(place))[:, None])
    # One number orders by steps, then by the straight line.
    rank = np.where(known, steps * (2 * _WIDEST**2) + (apart**2).sum(axis=2), np.iinfo(np.int64).max)
    nearest = rank.argmin(axis=1)
    ways = apart[np.arange(len(place)), nearest].astype(np.float64)
    ways[~known.any(axis=1)] = np.nan
    return ways
