"""Events of agents in a replay: deaths and their causes, kills, and levels gained."""

from dataclasses import dataclass

import numpy as np

from analysis.replays.replay import Entities, Replay

DEATH, KILL, LEVEL_UP = range(3)
EVENT_KINDS = ("death", "kill", "level-up")
CAUSES = ("killed", "starved", "dehydrated", "starved and dehydrated", "of unknown cause")
_STRUCK, _STARVED, _DEHYDRATED, _BOTH, _UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True)
class Events:
    """Events in order of ticks; every array has one entry per event, int32.

    Attributes:
        kind: index into `EVENT_KINDS`.
        player: column of the agent concerned.
        other: id of its killer or victim; 0 for nobody.
        detail: for a death, an index into `CAUSES`; for a level-up, the skill.
        value: for a level-up, the new level.
    """

    tick: np.ndarray
    kind: np.ndarray
    player: np.ndarray
    other: np.ndarray
    detail: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.tick)


def events_of(replay: Replay) -> Events:
    """Find all events of a replay's agents."""
    events = [*_deaths_and_kills(replay), *_level_ups(replay)]
    rows = np.array(events, dtype=np.int32).reshape(-1, 6)
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    return Events(*np.ascontiguousarray(rows.T))


def _deaths_and_kills(replay: Replay) -> list[tuple[int, ...]]:
    players = replay.players
    column_of = {int(number): column for column, number in enumerate(players.ids)}
    events: list[tuple[int, ...]] = []
    for entities in (players, replay.npcs):
        for tick, column in zip(*deaths(entities), strict=True):
            killer = _killer(replay, int(tick), int(entities.ids[column]))
            if entities is players:
                events.append((tick, DEATH, column, killer, _cause(replay, tick, column, killer), 0))
            if killer > 0:
                events.append((tick, KILL, column_of[killer], entities.ids[column], 0, 0))
    return events


def deaths(entities: Entities) -> tuple[np.ndarray, np.ndarray]:
    """Return the ticks and columns of all deaths: the first ticks at which entities are no longer alive."""
    ticks, columns = np.nonzero(entities.alive[:-1] & ~entities.alive[1:])
    return ticks + 1, columns


def _killer(replay: Replay, tick: int, victim: int) -> int:
    """Return the id of the entity that made the fatal attack, 0 if nobody attacked.

    The dead cannot be attacked, so it is the last attacker; players attack before NPCs, each in order of ids.
    """
    for entities in (replay.npcs, replay.players):
        strikers = np.flatnonzero(entities.target[tick] == victim)
        if len(strikers):
            return int(entities.ids[strikers[-1]])
    return 0


def _cause(replay: Replay, tick: int, column: int, killer: int) -> int:
    if killer:
        return _STRUCK
    # Food or water that is empty before the tick costs health in it.
    hungry, thirsty = (vital[tick - 1, column] == 0 for vital in (replay.players.food, replay.players.water))
    if hungry and thirsty:
        return _BOTH
    return _STARVED if hungry else _DEHYDRATED if thirsty else _UNKNOWN


def _level_ups(replay: Replay) -> list[tuple[int, ...]]:
    players = replay.players
    levels = players.skill_level
    both = players.present[1:] & players.present[:-1]
    ticks, columns, skills = np.nonzero((levels[1:] > levels[:-1]) & both[:, :, None])
    reached = levels[ticks + 1, columns, skills]
    return [
        (tick + 1, LEVEL_UP, column, 0, skill, level)
        for tick, column, skill, level in zip(ticks, columns, skills, reached, strict=True)
    ]
