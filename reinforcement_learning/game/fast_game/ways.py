"""Tasks to go somewhere that an agent must remember: to its own side of the map, or to water that it saw once."""

import nmmo
import numpy as np
from nmmo.core.config import Config
from nmmo.lib import material
from nmmo.task.game_state import GameState
from nmmo.task.group import Group
from nmmo.task.task_api import Task
from nmmo.task.task_spec import TaskSpec

SIDES = ("north", "south", "east", "west")
STEPS = np.array([(-1, 0), (1, 0), (0, 1), (0, -1), (0, 0)])
"""A step towards each side in rows and columns, and none at the end, so that no side is -1."""
TILES = 32
"""How far to go."""
STEPS_FROM_WATER = 6
"""How far water is, at least, where the way to it begins with an interrupt: from most tiles it is two steps away."""
REWARD = 5.0
"""Paid in all for going there; a restored point of health pays the start kit .03."""


def GoTowards(gs: GameState, subject: Group, side: str, tiles: int) -> float:
    """Return the share of the way to a side of the map that an agent has gone since it spawned or was moved, 0 to 1.

    The way is as long as asked for, or up to the edge of the area that agents can walk on, if that is nearer. Going to
    the other side counts as 0, as does a dead agent. If agents are to be moved, the way begins only then.

    Args:
        subject: one agent.
        side: north (towards row 0), south, east or west (towards column 0).
        tiles: length of the way.
    """
    if gs.current_tick <= gs.config.INTERRUPTED_AT or not any(subject.health > 0):
        return 0.0
    place = (int(subject.row[0]), int(subject.col[0]))
    return share_of_way(place, gs.spawn_pos[subject.agents[0]], side, tiles, gs.config)


def share_of_way(place: tuple[int, int], start: tuple[int, int], side: str, tiles: int, config: Config) -> float:
    """Return the share of the way gone, 0 to 1, from places on the map as (row, column); see `GoTowards`."""
    axis = 0 if side in ("north", "south") else 1
    first = config.MAP_BORDER
    last = first + config.MAP_CENTER  # one more than the map's size: the outermost tiles on all four sides are walkable
    if side in ("north", "west"):
        gone, room = start[axis] - place[axis], start[axis] - first
    else:
        gone, room = place[axis] - start[axis], last - start[axis]
    return min(max(gone / max(min(tiles, room), 1), 0.0), 1.0)


def GoToWater(gs: GameState, subject: Group) -> float:
    """Return the share of the way that an agent has gone to the water nearest to where its way began, 0 to 1.

    That is of all water in view there, whatever the policy sees later. Without any, or beside it, the share is 0, as is
    that of a dead agent. The way begins as in `GoTowards`.

    Args:
        subject: one agent.
    """
    if gs.current_tick <= gs.config.INTERRUPTED_AT or not any(subject.health > 0):
        return 0.0
    agent = subject.agents[0]
    place = (int(subject.row[0]), int(subject.col[0]))
    return share_to_water(place, gs.spawn_pos[agent], gs.config.WATER_IN_VIEW[agent])


def share_to_water(place: tuple[int, int], start: tuple[int, int], water: np.ndarray) -> float:
    """Return the share of the way to the nearest water gone, 0 to 1; see `GoToWater`.

    Args:
        place: on the map, as (row, column).
        start: where the way began.
        water: tiles of water in view there, (W, 2).
    """
    if not len(water):
        return 0.0
    whole, left = (int(np.abs(water - where).sum(axis=1).min()) - 1 for where in (start, place))  # in steps
    return min(max((whole - left) / whole, 0.0), 1.0) if whole else 0.0


def see_water(game: nmmo.Env) -> None:
    """Keep which water each agent has in view where it stands, for `GoToWater`."""
    realm, reach = game.realm, game.config.PLAYER_VISION_RADIUS
    water = np.argwhere(_is_water(game))  # (tiles, 2)
    seen = {agent: water[np.abs(water - player.pos).max(axis=1) <= reach] for agent, player in realm.players.items()}
    game._gamestate_generator.config.WATER_IN_VIEW.update(seen)  # predicates read a copy, made for each episode


def _is_water(game: nmmo.Env) -> np.ndarray:
    tiles = game.realm.map.tiles
    return np.array([[isinstance(tile.material, material.Water) for tile in row] for row in tiles])  # (side, side)


def _far_from_water_in_view(game: nmmo.Env) -> np.ndarray:
    """Return for each tile of the map whether water is in view from it, and none within `STEPS_FROM_WATER`.

    It stays in view after a step away from it, which an agent that was moved may make before it looks.
    """
    from scipy.ndimage import distance_transform_cdt  # imported here: other tasks need no scipy

    dry = ~_is_water(game)
    in_view = distance_transform_cdt(dry, "chessboard") < game.config.PLAYER_VISION_RADIUS  # (side, side)
    return in_view & (distance_transform_cdt(dry, "taxicab") > STEPS_FROM_WATER)  # the last step would be into it


def side_of_task(task: Task) -> int:
    """Return the number of the side that a task leads to, in `SIDES`; -1 if it is another task."""
    side = task._eval_fn.kwargs.get("side")
    return SIDES.index(side) if side in SIDES else -1


def move_all_agents(game: nmmo.Env, random: np.random.Generator, to_water: bool = False) -> None:
    """Move every living agent to a walkable tile of the whole map, drawn independently; its way begins there.

    Args:
        to_water: only to tiles with water in view and none near, if there are any.
    """
    realm = game.realm
    walkable = np.asarray(realm.map.habitable_tiles, bool)  # (side, side)
    suitable = walkable & _far_from_water_in_view(game) if to_water else walkable
    places = np.argwhere(suitable if suitable.any() else walkable)  # (tiles, 2)
    drawn = places[random.integers(len(places), size=len(game.possible_agents))].tolist()
    for agent, player in realm.players.items():
        row, column = drawn[agent - 1]
        realm.map.tiles[player.pos].remove_entity(agent)
        player.set_pos(row, column)
        realm.map.tiles[row, column].add_entity(player)
        game._gamestate_generator.spawn_pos[agent] = (row, column)


def water_tasks() -> list[TaskSpec]:
    """Return the task to go to the nearest water."""
    return [TaskSpec(eval_fn=GoToWater, eval_fn_kwargs={}, task_kwargs={"reward_multiplier": REWARD})]


def ways_tasks(number: int) -> list[TaskSpec]:
    """Return tasks to go to the northern or southern side, and with four also to the eastern or western side."""
    return [
        TaskSpec(
            eval_fn=GoTowards, eval_fn_kwargs={"side": side, "tiles": TILES}, task_kwargs={"reward_multiplier": REWARD}
        )
        for side in SIDES[:number]
    ]
