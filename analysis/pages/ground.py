"""What pages that draw agents' views need to know of the game's tiles."""

import math
from typing import Any

from activation_store.schema import TILES_IN_VIEW
from analysis.materials import MATERIALS


def ground_facts() -> dict[str, Any]:
    """Return the facts that `view.js` reads of tiles."""
    return {
        "side": math.isqrt(TILES_IN_VIEW),
        "materials": [{"name": material.name, "colour": material.colour} for material in MATERIALS],
        "harvestable": {material.name: True for material in MATERIALS if material.leaves is not None},
    }
