"""The palette covers the game's materials, by the game's own numbers and names."""

import numpy as np
from nmmo.lib import material

from analysis.materials import HARVESTED, MATERIALS, PALETTE

GAME = {one.index: one for one in material.All}


def test_numbers_and_names_are_exactly_the_games_and_every_material_has_a_colour_of_its_own() -> None:
    assert {m.number: m.name for m in MATERIALS} == {number: item.tex for number, item in GAME.items()}
    assert [m.number for m in MATERIALS] == list(range(len(GAME)))
    assert PALETTE.shape == (len(GAME), 3) and len(np.unique(PALETTE, axis=0)) == len(GAME)


def test_what_harvesting_leaves_is_the_games() -> None:
    left = {number: item.deplete.index for number, item in GAME.items() if hasattr(item, "deplete")}
    assert {m.number: m.leaves for m in MATERIALS if m.leaves is not None} == left
    assert all(HARVESTED[number] == left.get(number, number) for number in GAME)
