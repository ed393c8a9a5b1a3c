"""The settings of a world that say what a policy is shown of it; without torch, so that options are checked early."""

from collections.abc import Mapping
from typing import Any

FULL_RADIUS = 7
"""How far the game lets agents see, in tiles in each direction."""

SHOWN: Mapping[str, Any] = {
    "mask_intrinsics": "off", "relative_position": False, "view_radius": FULL_RADIUS, "narrow_from": 0,
    "task_shown_for": None,
}  # fmt: skip
"""Their names and defaults."""
