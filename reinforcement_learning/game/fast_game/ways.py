"""Tasks to go to one side of the map: opposed goals that start alike, so an agent must remember which is its own."""

import nmmo
import numpy as np
from nmmo.core.config import Config
from nmmo.task.game_state import GameState
from nmmo.task.group import Group
from nmmo.task.task_api import Task
from nmmo.task.task_spec import TaskSpec

SIDES = ("north", "south", "east", "west")
STEPS = np.array([(-1, 0), (1, 0), (0, 1), (0, -1), (0, 0)])
"""A step towards each side in rows and columns, and none at the end, so that no side is -1."""
TILES = 32
"""How far to go."""
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
    last = first + config.MAP_CENTER - 1
    if side in ("north", "west"):
        gone, room = start[axis] - place[axis], start[axis] - first
    else:
        gone, room = place[axis] - start[axis], last - start[axis]
    return min(max(gone / max(min(tiles, room), 1), 0.0), 1.0)


def side_of_task(task: Task) -> int:
    """Return the number of the side that a task leads to, in `SIDES`; -1 if it is another task."""
    side = task._eval_fn.kwargs.get("side")
    return SIDES.index(side) if side in SIDES else -1


def move_all_agents(game: nmmo.Env, random: np.random.Generator) -> None:
    """Move every living agent to a walkable tile of the whole map, drawn independently; its way begins there."""
    realm = game.realm
    places = np.argwhere(realm.map.habitable_tiles)  # (tiles, 2)
    drawn = places[random.integers(len(places), size=len(game.possible_agents))].tolist()
    for agent, player in realm.players.items():
        row, column = drawn[agent - 1]
        realm.map.tiles[player.pos].remove_entity(agent)
        player.set_pos(row, column)
        realm.map.tiles[row, column].add_entity(player)
        game._gamestate_generator.spawn_pos[agent] = (row, column)


def ways_tasks(number: int) -> list[TaskSpec]:
    """Return tasks to go to the northern or southern side, and with four also to the eastern or western side."""
    return [
        TaskSpec(
            eval_fn=GoTowards, eval_fn_kwargs={"side": side, "tiles": TILES}, task_kwargs={"reward_multiplier": REWARD}
        )
        for side in SIDES[:number]
    ]
