"""Agents that forage for food and water and otherwise act at random: they live long enough to do everything."""

import numpy as np

from agent_zoo.observation import ObservationLayout

_FOILAGE = 4
_WATER = (1, 15)
_IMPASSIBLE = (0, 1, 5, 14, 15)
_NOOP_WEIGHT = 0.3  # the no-op is rarely drawn, since most agents have few other options
_FAR = 99


def forage(observations: np.ndarray, layout: ObservationLayout, random: np.random.Generator) -> np.ndarray:
    """Draw a legal option in every head, and walk to the nearest food or water in view, whichever is needed more.

    Args:
        observations: (agents,) structured; agents without an observation get zeros.
        layout: of the observations.
        random: generator to draw from.

    Returns:
        Actions, (agents, heads) int64.
    """
    actions = np.zeros((len(observations), len(layout.heads)), dtype=np.int64)
    for column, head in enumerate(layout.heads):
        action, argument = head.name.split(".")
        legal = observations["ActionTargets"][action][argument]
        score = random.random(legal.shape) * legal
        if head.noop is not None:
            score[:, head.noop] *= _NOOP_WEIGHT
        actions[:, column] = score.argmax(axis=1)
    move, result = _towards(_what_is_needed(observations, layout), layout.view_side)
    column = next(number for number, head in enumerate(layout.heads) if head.name == "Move.Direction")
    legal = observations["ActionTargets"]["Move"]["Direction"]
    walks = result & (legal[np.arange(len(legal)), move] == 1)
    actions[walks, column] = move[walks]
    return actions


def _what_is_needed(observations: np.ndarray, layout: ObservationLayout) -> tuple[np.ndarray, np.ndarray]:
    """Tiles that each agent needs, and tiles that it can walk on, both (agents, side, side) bool."""
    side = layout.view_side
    material = observations["Tile"][:, :, layout.tile_columns.index("material_id")].reshape(-1, side, side)
    entity = observations["Entity"]
    me = (entity[:, :, 0] == observations["AgentId"][:, None]).argmax(axis=1)
    own = entity[np.arange(len(entity)), me]
    thirsty = own[:, layout.entity_columns.index("water")] <= own[:, layout.entity_columns.index("food")]
    by_water = np.any(_neighbours(np.isin(material, _WATER), False), axis=0)
    return np.where(thirsty[:, None, None], by_water, material == _FOILAGE), ~np.isin(material, _IMPASSIBLE)


def _towards(needed: tuple[np.ndarray, np.ndarray], side: int) -> tuple[np.ndarray, np.ndarray]:
    """First step of the shortest path (north, south, east, west, stay), and whether there is one."""
    goal, walkable = needed
    distance = np.where(goal & walkable, 0, _FAR)
    for _ in range(side):
        nearer = np.min(_neighbours(distance, _FAR), axis=0) + 1
        distance = np.where(walkable, np.minimum(distance, nearer), _FAR)
    centre = side // 2
    options = np.stack([*_neighbours(distance, _FAR), distance])[:, :, centre, centre]  # (5, agents)
    return options.argmin(axis=0), options.min(axis=0) < _FAR


def _neighbours(grid: np.ndarray, outside: int) -> np.ndarray:
    """The values north, south, east and west of each tile, (4, agents, side, side)."""
    padded = np.pad(grid, ((0, 0), (1, 1), (1, 1)), constant_values=outside)
    return np.stack([padded[:, :-2, 1:-1], padded[:, 2:, 1:-1], padded[:, 1:-1, 2:], padded[:, 1:-1, :-2]])
