"""The map: regrowth of resources, and movement of players and NPCs.

`ground.pxd` gives the types with which this file is compiled.
"""

from typing import Any

import numpy as np
from nmmo.core import action
from nmmo.core.map import Map
from nmmo.core.tile import Tile
from nmmo.entity.npc import DIRECTIONS
from nmmo.lib.event_code import EventCode

from reinforcement_learning.game.fast_game.state import Body

_STEPS = [(down, right) for down, right, _ in DIRECTIONS]
_NORTH = action.North.delta


class Ground:
    """What movement depends on, in lists, from which single elements are read faster than from arrays.

    Attributes:
        habitable: for each row and column, whether players and NPCs can walk there.
        occupants: for each row and column, the tile's own players and NPCs by number.
        tiles: for each row and column, the tile.
        reach: distance from the map's border to its centre.
    """

    def __init__(self, world: Map):
        self.habitable = world.habitable_tiles.tolist()
        self.tiles = world.tiles.tolist()
        self.occupants = [[tile.entities for tile in row] for row in self.tiles]
        self.centre_row, self.centre_column = world.center_coord
        self.reach = world.dist_border_center


def move(ground: Ground, log: Any, body: Body, down: int, right: int) -> None:
    """Move one tile, unless something is in the way, as the game's `Move` does, without the checks that cannot fail.

    Tiles that are not habitable are the game's impassible ones, including the void beyond the border, so nobody can
    leave the map or enter the void.

    Args:
        body: of a player or NPC that is alive and not frozen.
        down: number of rows.
        right: number of columns.
    """
    row, column = body.row._val, body.column._val
    if not ground.habitable[row + down][column + right]:
        return
    if down or right:
        number = body.number
        del ground.occupants[row][column][number]
        row, column = row + down, column + right
        ground.occupants[row][column][number] = body.entity
        if down:
            body.row.update(row)
        else:
            body.column.update(column)
    progress = ground.reach - max(abs(ground.centre_row - row), abs(ground.centre_column - column))
    if progress > body.history.exploration:
        body.history.exploration = progress
        if body.is_player:
            log.note(EventCode.GO_FARTHEST, body.number, (0, 0, progress))


def move_all(ground: Ground, log: Any, moves: list[tuple[Body, int, int]]) -> None:
    """Make all moves in turn; those of the dead and the frozen are left out."""
    for body, down, right in moves:
        if body.can_act():
            move(ground, log, body, down, right)


def wander(ground: Ground, body: Body, start: int) -> tuple[int, int]:
    """Return a step in the first walkable of the four directions from `start` on, as `NPC._meander` does."""
    row, column = body.row._val, body.column._val
    for turn in range(start, start + 4):
        down, right = _STEPS[turn]
        if ground.habitable[row + down][column + right]:
            return down, right
    return _NORTH


class Regrowth(dict):
    """An ordered set of tiles with removal in constant time, and the probability with which each regrows in a tick.

    Attributes:
        regrown: tiles that regrew in the last tick, and are removed in the next one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.regrown: list[Tile] = []

    def add(self, tile: Tile) -> None:
        """Add a tile that is being depleted."""
        self.setdefault(tile, tile.material.respawn)


def regrow(tiles: Regrowth) -> None:
    """Regrow depleted tiles.

    The game copies the list of tiles and searches it for each regrown tile. Here the random numbers are drawn in one
    call, which gives the same numbers as one call each.

    Args:
        tiles: that were depleted; those that regrew in the last tick are removed, unless they are depleted again.
    """
    for tile in tiles.regrown:
        if not tile.depleted:
            del tiles[tile]
    tiles.regrown = []
    if not tiles:
        return
    depleted, chances = list(tiles), np.fromiter(tiles.values(), np.float64, len(tiles))
    growing = chances.nonzero()[0]  # the game draws nothing for the others
    draws = depleted[0]._np_random.random(len(growing))
    for index in growing[draws < chances[growing]].tolist():
        depleted[index]._respawn()
        tiles.regrown.append(depleted[index])


class FastMap(Map):
    """The game's map."""

    ground: Ground

    def reset(self, map_dict: dict, np_random: np.random.Generator, seize_targets: list | None = None) -> None:
        """Load a map."""
        super().reset(map_dict, np_random, seize_targets)
        self.update_list = Regrowth()
        self.ground = Ground(self)

    def step(self) -> None:
        """Regrow depleted tiles."""
        regrow(self.update_list)
        for row, column in self.seize_targets:
            self.tiles[row, column].update_seize()
