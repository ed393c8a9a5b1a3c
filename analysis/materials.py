"""The 16 materials of maps: the game's numbers and names, and one palette for all pictures of maps."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Material:
    """One material of the game."""

    number: int
    name: str  # the game's own, `foilage` included
    colour: str
    """In all pictures, `#rrggbb`. Resources have a strong colour, harvested ones a paler shade of it; all are duller
    than the agents drawn over them."""
    leaves: int | None  # number of the material that replaces it once harvested; None if it is never used up
    note: str  # what an agent gets there, or needs to harvest it


MATERIALS = (
    Material(0, "void", "#15181c", None, "world's edge"),
    Material(1, "water", "#699fcb", None, "drink"),
    Material(2, "grass", "#b3c594", None, "ground"),
    Material(3, "scrub", "#d3c79f", None, "eaten foilage"),
    Material(4, "foilage", "#77a556", 3, "food"),
    Material(5, "stone", "#84878d", None, "impassable"),
    Material(6, "slag", "#b39d8d", None, "mined ore"),
    Material(7, "ore", "#a85a32", 6, "with a pickaxe"),
    Material(8, "stump", "#b9ab80", None, "felled tree"),
    Material(9, "tree", "#3d7346", 8, "with an axe"),
    Material(10, "fragment", "#cbb9d6", None, "mined crystal"),
    Material(11, "crystal", "#9360b5", 10, "with a chisel"),
    Material(12, "weeds", "#cfd085", None, "picked herb"),
    Material(13, "herb", "#c9a21b", 12, "with gloves"),
    Material(14, "ocean", "#3f6a9c", None, "fished out"),
    Material(15, "fish", "#2aa39c", 14, "with a rod"),
)
MATERIAL_NAMES = tuple(material.name for material in MATERIALS)

PALETTE = np.array([list(bytes.fromhex(material.colour[1:])) for material in MATERIALS], dtype=np.uint8)
"""Red, green and blue of each material, (16, 3) uint8."""

HARVESTED = np.array([m.number if m.leaves is None else m.leaves for m in MATERIALS], dtype=np.uint8)
"""The material that replaces each material once harvested, (16,) uint8; itself if it is never used up."""
