"""Players and NPCs in view: how near, how many, how strong."""

from collections.abc import Callable

import numpy as np

from analysis.features import ragged
from analysis.features.basics import max_combat_level
from analysis.features.feature import Compute, Feature
from analysis.features.observed import Observed
from analysis.features.view import OUT_OF_VIEW

NPC_TYPES = {"passive": 1, "neutral": 2, "aggressive": 3}
"""The game's `npc_type` values: passive NPCs never attack, neutral ones fight back, aggressive ones attack on sight."""

REACH = 3
"""Attack range in tiles; the game uses the same one for every combat style."""

Who = Callable[[Observed], np.ndarray]
"""Marks entity rows: (E,) bool."""


def _players(seen: Observed) -> np.ndarray:
    return seen.is_player


def _npcs(seen: Observed) -> np.ndarray:
    return seen.is_npc


def _of_type(kind: str) -> Who:
    return lambda seen: seen.entity("npc_type") == NPC_TYPES[kind]


def _within_reach(who: Who) -> Who:
    return lambda seen: who(seen) & (seen.distance <= REACH)


def _stronger(who: Who) -> Who:
    return lambda seen: who(seen) & (seen.combat_level > max_combat_level(seen)[seen.entity_owner])


def _count(who: Who) -> Compute:
    return lambda seen: ragged.count(who(seen), seen.entity_owner, len(seen))


def _distance(who: Who) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        rows = who(seen)
        return ragged.smallest(seen.distance[rows], seen.entity_owner[rows], len(seen), OUT_OF_VIEW)

    return compute


def _nearest_npc_type(seen: Observed) -> np.ndarray:
    rows = seen.is_npc
    # A combined sort key: distance first; at equal distance, the most dangerous type has the smallest key.
    kinds = len(NPC_TYPES) + 1
    rank = seen.distance[rows] * kinds - seen.entity("npc_type")[rows]
    nearest = ragged.smallest(rank, seen.entity_owner[rows], len(seen), 0)
    return -nearest % kinds


def _player_health(extreme: Callable[..., np.ndarray]) -> Compute:
    def compute(seen: Observed) -> np.ndarray:
        return extreme(seen.entity("health")[seen.is_player], seen.entity_owner[seen.is_player], len(seen), 0)

    return compute


def _nobody(what: str) -> str:
    return f"Tiles to the nearest {what} in view, counting a diagonal step as one; {OUT_OF_VIEW} if there is none."


SURROUNDINGS = (
    Feature("distance_to_player", "tiles", _nobody("other player"), _distance(_players)),
    Feature("distance_to_npc", "tiles", _nobody("NPC"), _distance(_npcs)),
    *(
        Feature(f"distance_to_{kind}_npc", "tiles", _nobody(f"{kind} NPC"), _distance(_of_type(kind)))
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
        _count(_within_reach(_players)),
    ),
    Feature("n_npcs_within_reach", "NPCs", f"NPCs within attack range, {REACH} tiles.", _count(_within_reach(_npcs))),
    Feature(
        "lowest_player_health", "points", "The lowest health of the other players in view; 0 if there are none.",
        _player_health(ragged.smallest),
    ),
    Feature(
        "highest_player_health", "points", "The highest health of the other players in view; 0 if there are none.",
        _player_health(ragged.largest),
    ),
    Feature(
        "n_stronger_players", "players", "Other players in view whose highest combat level is above the agent's.",
        _count(_stronger(_players)),
    ),
    Feature(
        "n_stronger_npcs", "NPCs", "NPCs in view whose highest combat level is above the agent's.",
        _count(_stronger(_npcs)),
    ),
)  # fmt: skip
