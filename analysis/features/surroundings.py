"""What is in view: players and NPCs, how near, how many, how strong; and materials of the 15 x 15 tiles."""

import math
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

import numpy as np

from activation_store.schema import TILES_IN_VIEW
from analysis.features import observed
from analysis.features.body import max_combat_level
from analysis.features.feature import YES_OR_NO, Compute, Feature
from analysis.features.observed import Observed
from analysis.materials import MATERIAL_NAMES

NPC_TYPES = {"passive": 1, "neutral": 2, "aggressive": 3}
"""The game's `npc_type` values: passive NPCs never attack, neutral ones fight back, aggressive ones attack on sight."""

REACH = 3
"""Attack range in tiles; the game uses the same one for every combat style."""

Who = Callable[[Observed], np.ndarray]
"""Marks entity rows: (E,) bool."""
PLAYERS: Who = attrgetter("is_player")
NPCS: Who = attrgetter("is_npc")
SIDE = math.isqrt(TILES_IN_VIEW)
RADIUS = SIDE // 2
OUT_OF_VIEW = RADIUS + 1
"""Distance given to anything out of view, in tiles: it is at least this far away."""
MIDDLE = TILES_IN_VIEW // 2
_NEIGHBOURS = [MIDDLE - SIDE, MIDDLE + SIDE, MIDDLE - 1, MIDDLE + 1]
TILE_OFFSETS = np.indices((SIDE, SIDE)).reshape(2, -1) - RADIUS
"""Rows and columns from the agent to each tile in view, (2, tiles) int64."""
_FROM_MIDDLE = np.abs(TILE_OFFSETS).max(axis=0).astype(np.int8)
GIVES_ITEMS = ("ore", "tree", "crystal", "herb", "fish")
USED_UP = ("slag", "stump", "fragment", "weeds")
IMPASSABLE = ("void", "water", "stone", "ocean", "fish")


def _of_type(kind: str) -> Who:
    return lambda seen: seen.entity("npc_type") == NPC_TYPES[kind]


def _within_reach(who: Who) -> Who:
    return lambda seen: who(seen) & (seen.distance <= REACH)


def _stronger(who: Who) -> Who:
    return lambda seen: who(seen) & (seen.combat_level > max_combat_level(seen)[seen.entity_owner])


def _count(who: Who) -> Compute:
    return lambda seen: observed.count(who(seen), seen.entity_owner, len(seen))


def _distance(who: Who) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        rows = who(seen)
        return observed.extreme(seen.distance[rows], seen.entity_owner[rows], len(seen), OUT_OF_VIEW)

    return compute


def _nearest_npc_type(seen: Observed) -> np.ndarray:
    rows = seen.is_npc
    # A combined sort key: distance first; at equal distance, the most dangerous type has the smallest key.
    kinds = len(NPC_TYPES) + 1
    rank = seen.distance[rows] * kinds - seen.entity("npc_type")[rows]
    nearest = observed.extreme(rank, seen.entity_owner[rows], len(seen), 0)
    return -nearest % kinds


def _player_health(choose: np.ufunc) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        rows = seen.is_player
        return observed.extreme(seen.entity("health")[rows], seen.entity_owner[rows], len(seen), 0, choose)

    return compute


def _nearest(what: str) -> str:
    return f"Tiles to the nearest {what} in view, counting a diagonal step as one; {OUT_OF_VIEW} if there is none."


SURROUNDINGS = (
    Feature("distance_to_player", "tiles", _nearest("other player"), _distance(PLAYERS)),
    Feature("distance_to_npc", "tiles", _nearest("NPC"), _distance(NPCS)),
    *(
        Feature(f"distance_to_{kind}_npc", "tiles", _nearest(f"{kind} NPC"), _distance(_of_type(kind)))
        for kind in NPC_TYPES
    ),
    Feature(
        "nearest_npc_type", "type",
        "Type of the nearest NPC in view: 1 passive, 2 neutral, 3 aggressive; the most dangerous if several are "
        "equally near; 0 if there is none.", _nearest_npc_type,
    ),
    *(Feature(f"n_{kind}_npcs", "NPCs", f"{kind.title()} NPCs in view.", _count(_of_type(kind))) for kind in NPC_TYPES),
    Feature(
        "n_players_within_reach", "players", f"Other players within attack range, {REACH} tiles.",
        _count(_within_reach(PLAYERS)),
    ),
    Feature("n_npcs_within_reach", "NPCs", f"NPCs within attack range, {REACH} tiles.", _count(_within_reach(NPCS))),
    Feature(
        "lowest_player_health", "points", "The lowest health of the other players in view; 0 if there are none.",
        _player_health(np.minimum),
    ),
    Feature(
        "highest_player_health", "points", "The highest health of the other players in view; 0 if there are none.",
        _player_health(np.maximum),
    ),
    Feature(
        "n_stronger_players", "players", "Other players in view whose highest combat level is above the agent's.",
        _count(_stronger(PLAYERS)),
    ),
    Feature(
        "n_stronger_npcs", "NPCs", "NPCs in view whose highest combat level is above the agent's.",
        _count(_stronger(NPCS)),
    ),
)  # fmt: skip


def _made_of(material: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    wanted = [MATERIAL_NAMES.index(name) for name in names]
    return material == wanted[0] if len(wanted) == 1 else np.isin(material, wanted, kind="table")


def _tiles_away(*names: str) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        return np.where(_made_of(seen.material, names), _FROM_MIDDLE, np.int8(OUT_OF_VIEW)).min(axis=1)

    return compute


def _tiles(*names: str) -> Compute:
    return lambda seen: np.count_nonzero(_made_of(seen.material, names), axis=1)


def _stands_on(*names: str) -> Compute:
    return lambda seen: _made_of(seen.material[:, MIDDLE], names)


def _is_beside(*names: str) -> Compute:
    return lambda seen: np.count_nonzero(_made_of(seen.material[:, _NEIGHBOURS], names), axis=1) > 0


_VIEW = (
    Feature("distance_to_water", "tiles", _nearest("water tile (not ocean or fish)"), _tiles_away("water")),
    Feature("distance_to_foilage", "tiles", _nearest("foilage tile (food)"), _tiles_away("foilage")),
    Feature("distance_to_resource", "tiles", _nearest("ore, tree, crystal, herb or fish"), _tiles_away(*GIVES_ITEMS)),
    *(Feature(f"distance_to_{name}", "tiles", _nearest(name), _tiles_away(name)) for name in GIVES_ITEMS),
    Feature("n_water_tiles", "tiles", "Water tiles in view.", _tiles("water")),
    Feature("n_foilage_tiles", "tiles", "Foilage tiles (food) in view.", _tiles("foilage")),
    Feature("n_resource_tiles", "tiles", "Ore, tree, crystal, herb and fish tiles in view.", _tiles(*GIVES_ITEMS)),
    Feature(
        "walkable_share", "share", "Share of the 225 tiles in view that can be walked on.",
        lambda seen: 1 - np.count_nonzero(_made_of(seen.material, IMPASSABLE), axis=1) / TILES_IN_VIEW,
    ),
    Feature(
        "n_open_sides", "sides", "Number of the four tiles beside the agent that can be walked on.",
        lambda seen: 4 - np.count_nonzero(_made_of(seen.material[:, _NEIGHBOURS], IMPASSABLE), axis=1),
    ),
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
