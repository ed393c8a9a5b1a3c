"""Materials of the 15 x 15 tiles in view and of the tile that the agent stands on."""

import math
from dataclasses import replace

import numpy as np

from activation_store.schema import TILES_IN_VIEW
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import Observed
from analysis.materials import MATERIAL_NAMES

SIDE = math.isqrt(TILES_IN_VIEW)
RADIUS = SIDE // 2
OUT_OF_VIEW = RADIUS + 1
"""Distance given to anything out of view, in tiles: it is at least this far away."""

MIDDLE = TILES_IN_VIEW // 2
_NEIGHBOURS = [MIDDLE - SIDE, MIDDLE + SIDE, MIDDLE - 1, MIDDLE + 1]
_FROM_MIDDLE = np.abs(np.indices((SIDE, SIDE)) - RADIUS).max(axis=0).ravel().astype(np.int8)

GIVES_ITEMS = ("ore", "tree", "crystal", "herb", "fish")
USED_UP = ("slag", "stump", "fragment", "weeds")
IMPASSABLE = ("void", "water", "stone", "ocean", "fish")


def _made_of(material: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    wanted = [MATERIAL_NAMES.index(name) for name in names]
    return material == wanted[0] if len(wanted) == 1 else np.isin(material, wanted, kind="table")


def _distance(*names: str) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        return np.where(_made_of(seen.material, names), _FROM_MIDDLE, np.int8(OUT_OF_VIEW)).min(axis=1)

    return compute


def _tiles(*names: str) -> Compute:
    return lambda seen: np.count_nonzero(_made_of(seen.material, names), axis=1)


def _stands_on(*names: str) -> Compute:
    return lambda seen: _made_of(seen.material[:, MIDDLE], names)


def _is_beside(*names: str) -> Compute:
    return lambda seen: np.count_nonzero(_made_of(seen.material[:, _NEIGHBOURS], names), axis=1) > 0


def _walkable_share(seen: Observed) -> np.ndarray:
    return 1 - np.count_nonzero(_made_of(seen.material, IMPASSABLE), axis=1) / TILES_IN_VIEW


def _open_sides(seen: Observed) -> np.ndarray:
    return len(_NEIGHBOURS) - np.count_nonzero(_made_of(seen.material[:, _NEIGHBOURS], IMPASSABLE), axis=1)


def _nearest(what: str) -> str:
    return f"Tiles to the nearest {what} in view, counting a diagonal step as one; {OUT_OF_VIEW} if there is none."


_VIEW = (
    Feature("distance_to_water", "tiles", _nearest("water tile (not ocean or fish)"), _distance("water")),
    Feature("distance_to_foilage", "tiles", _nearest("foilage tile (food)"), _distance("foilage")),
    Feature("distance_to_resource", "tiles", _nearest("ore, tree, crystal, herb or fish"), _distance(*GIVES_ITEMS)),
    *(Feature(f"distance_to_{name}", "tiles", _nearest(name), _distance(name)) for name in GIVES_ITEMS),
    Feature("n_water_tiles", "tiles", "Water tiles in view.", _tiles("water")),
    Feature("n_foilage_tiles", "tiles", "Foilage tiles (food) in view.", _tiles("foilage")),
    Feature("n_resource_tiles", "tiles", "Ore, tree, crystal, herb and fish tiles in view.", _tiles(*GIVES_ITEMS)),
    Feature("walkable_share", "share", "Share of the 225 tiles in view that can be walked on.", _walkable_share),
    Feature("n_open_sides", "sides", "Number of the four tiles beside the agent that can be walked on.", _open_sides),
    Feature(
        "is_beside_water", YES_OR_NO, "A water tile is directly north, south, east or west of the agent, so it drinks.",
        _is_beside("water"),
    ),
    Feature(
        "is_beside_fish", YES_OR_NO,
        "A fish tile is directly north, south, east or west of the agent, so it fishes; fish do not restore water.",
        _is_beside("fish"),
    ),
    *(
        Feature(f"is_on_{name}", YES_OR_NO, f"The agent stands on {name}.", _stands_on(name))
        for name in ("grass", "foilage", "scrub")
    ),
    Feature(
        "is_on_resource", YES_OR_NO, "The agent stands on ore, a tree, a crystal or a herb.", _stands_on(*GIVES_ITEMS)
    ),
    Feature(
        "is_on_used_up", YES_OR_NO,
        "The agent stands on slag, a stump, fragments or weeds: what harvesting leaves behind.", _stands_on(*USED_UP),
    ),
)  # fmt: skip

VIEW = tuple(replace(feature, of_tiles=True) for feature in _VIEW)
