"""Positions of agents."""

import numpy as np

from activation_store.records import Records
from activation_store.schema import TILE_COLUMNS, TILES_IN_VIEW, DumpMetadata

POSITION_COLUMNS = ("row", "col")
"""True positions, recorded even if hidden from the policy; dumps of the original tools lack them."""


def has_position(metadata: DumpMetadata) -> bool:
    """Return whether a dump records agents' positions in columns, so that tiles are not needed."""
    return set(POSITION_COLUMNS) <= metadata.columns.keys()


def positions(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return the map row and column of each agent, (B,) each.

    If the records lack `POSITION_COLUMNS`, these are read from the middle of the view.
    """
    if set(POSITION_COLUMNS) <= records.columns.keys():
        return records.columns["row"], records.columns["col"]
    own_tile = records.tile[:, TILES_IN_VIEW // 2]
    return own_tile[:, TILE_COLUMNS.index("row")], own_tile[:, TILE_COLUMNS.index("col")]
