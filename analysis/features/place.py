"""The agent's place on the map."""

import numpy as np

from analysis.features.basics import own
from analysis.features.feature import Feature
from analysis.features.observed import Observed
from common.user_error import UserError

MAP_BORDER = 16
"""Width in tiles of the void border around every map; rows and columns count from the border's outer edge."""


def _map_size(seen: Observed) -> int:
    size = seen.metadata.environment.get("map_size")
    if type(size) is not int or size < 1:
        raise UserError(
            "the dump does not record the size of its maps: leave distance_to_centre and distance_to_edge out of "
            "the features, or extract it again"
        )
    return size


def _position(seen: Observed) -> np.ndarray:
    """Return the agents' rows and columns, (2, B) int64."""
    return np.stack([seen.own("row"), seen.own("col")]).astype(np.int64)


def _distance_to_centre(seen: Observed) -> np.ndarray:
    centre = (_map_size(seen) + 2 * MAP_BORDER) // 2
    return np.abs(_position(seen) - centre).max(axis=0)


def _distance_to_edge(seen: Observed) -> np.ndarray:
    inside = _position(seen) - MAP_BORDER
    return np.minimum(inside, _map_size(seen) - 1 - inside).min(axis=0)


PLACE = (
    Feature("self_row", "tiles", "The agent's row on the map, including the 16 rows of the border.", own("row")),
    Feature("self_col", "tiles", "The agent's column on the map, including the 16 columns of the border.", own("col")),
    Feature(
        "distance_to_centre",
        "tiles",
        "Tiles to the centre of the map, counting a diagonal step as one.",
        _distance_to_centre,
    ),
    Feature(
        "distance_to_edge",
        "tiles",
        "Tiles to the nearest outermost row or column of the map, excluding the border.",
        _distance_to_edge,
    ),
)
