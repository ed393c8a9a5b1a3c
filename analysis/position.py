"""Where agents are."""

import numpy as np

from activation_store.records import Records
from activation_store.schema import TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata

POSITION_COLUMNS = ("row", "col")
"""What is true, also where a policy does not see its place; dumps of the original tools lack them."""


def has_position(metadata: DumpMetadata) -> bool:
    """Tell whether a dump says where agents are without the tiles that they see."""
    return set(POSITION_COLUMNS) <= metadata.columns.keys()


def positions(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column of the map that each agent stands on, (B,) each.

    They are the middle of the view where the records have no `POSITION_COLUMNS`.
    """
    if set(POSITION_COLUMNS) <= records.columns.keys():
        return records.columns["row"], records.columns["col"]
    own_tile = records.tile[:, TILES_IN_VIEW // 2]
    return own_tile[:, TILE_COLUMNS.index("row")], own_tile[:, TILE_COLUMNS.index("col")]
