"""Whether water must be remembered: how far it is from places drawn at random, and who reaches it without looking.

python -m benchmarks.water_in_reach
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nmmo.lib import material
from scipy.ndimage import distance_transform_cdt

from common import command_line
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.settings import EnvironmentSettings

STEPS = np.array([(-1, 0), (1, 0), (0, 1), (0, -1)])
HABITABLE = [tile.index for tile in material.Habitable.materials]


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/water_in_reach.py."""

    water: tuple[float, ...] = (0.3, 0.05)
    """Heights of the terrain up to which there is water, as in --env.water of train.py."""
    maps: int = 12
    """Number of maps."""
    walkers: int = 500
    """Number of places drawn on each map."""
    ticks: int = 44
    """Ticks that each walker has."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""


def reached(tiles: np.ndarray, place: np.ndarray, ticks: int, straight: bool, random: np.random.Generator) -> float:
    """Return the share of walkers that come to stand beside water.

    Args:
        tiles: materials of the map, (rows, columns).
        place: where walkers begin, (N, 2) rows and columns.
        straight: walkers keep their direction until something is in the way, instead of drawing one in each tick.
    """
    walkable = np.isin(tiles, HABITABLE)
    beside = (distance_transform_cdt(tiles != material.Water.index, "taxicab") == 1) & walkable
    place, heading = place.copy(), random.integers(4, size=len(place))
    arrived = beside[tuple(place.T)]
    for _ in range(ticks):
        if not straight:
            heading = random.integers(4, size=len(place))
        ahead = place + STEPS[heading]
        free = walkable[tuple(ahead.T)]
        place[free] = ahead[free]
        heading = np.where(free, heading, random.integers(4, size=len(place)))
        arrived |= beside[tuple(place.T)]
    return float(arrived.mean())


def main() -> None:
    """Measure maps with different amounts of water."""
    arguments = command_line.parse(Arguments, __doc__)
    random = np.random.default_rng(0)
    for water in arguments.water:
        folder = ensure_maps(EnvironmentSettings(water=water, num_maps=arguments.maps, maps_dir=arguments.maps_dir))
        rows = []
        for number in range(1, arguments.maps + 1):
            tiles = np.load(folder / f"map{number}" / "map.npy")
            inside = tiles != material.Void.index
            places = np.argwhere(np.isin(tiles, HABITABLE))
            place = places[random.integers(len(places), size=arguments.walkers)]
            away = distance_transform_cdt(tiles != material.Water.index, "taxicab")[tuple(place.T)] - 1
            walks = [reached(tiles, place, arguments.ticks, straight, random) for straight in (False, True)]
            rows.append((np.mean(tiles[inside] == material.Water.index), np.mean(away), *walks))
        covered, steps, at_random, straight_on = np.mean(rows, axis=0)
        print(
            f"--env.water {water}: {covered:.1%} of tiles are water; beside it from a place drawn at random: "
            f"{steps:.1f} steps; within {arguments.ticks} ticks, {at_random:.1%} of those who walk at random come "
            f"there, and {straight_on:.1%} of those who walk straight on"
        )


if __name__ == "__main__":
    main()
