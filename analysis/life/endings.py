"""How lives end: by hunger, by thirst, by an attack and whose, or with the recording."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from analysis.features.observed import Observed
from analysis.features.surroundings import REACH

DONE = "done"
KILLS = "truth/player_kills"
"""The engine's count of an agent's kills, including NPCs, if it was recorded."""

LOSS = 10
"""Health lost per tick without food, and likewise without water; the game's default."""


def died(seen: Observed) -> np.ndarray:
    """Return which lives ended by death, (L,) bool; the others were alive when the recording ended.

    A life ended by death if its last record is marked as the last of the life or, if that is not recorded, if others in
    its episode continue. A life that ends at the episode's last tick counts as survived, since no record can tell.
    """
    records, lives = seen.records, seen.lives
    last = lives.order[lives.starts + lives.lengths - 1]
    latest: dict[int, int] = defaultdict(int)
    for episode, tick in zip(records.episode[last].tolist(), records.tick[last].tolist(), strict=True):
        latest[episode] = max(latest[episode], tick)
    horizon = seen.metadata.environment.get("horizon")
    end = np.array([latest[episode] for episode in records.episode[last].tolist()])
    if DONE in records.columns:
        end = np.full(len(last), horizon - 1) if isinstance(horizon, int) else end
        return records.column(DONE)[last] & (records.tick[last] < end)
    return records.tick[last] < end


def endings(seen: Observed) -> Iterator[tuple[int, str]]:
    """Yield the last record of each life that ended by death, and the cause of death.

    Hunger and thirst cost health before any attack, so if they take the last health, nobody attacked. Otherwise the
    killer is an agent within reach that chose to attack and, if the engine's count is recorded, killed someone; or else
    an NPC within reach, since NPCs have no records.
    """
    lives, health = seen.lives, seen.own("health")
    last = lives.order[lives.starts + lives.lengths - 1][died(seen)]
    strikers = _strikers(seen, last)
    hungry, thirsty = seen.own("food") == 0, seen.own("water") == 0
    npc_near = np.bincount(seen.entity_owner[seen.is_npc & (seen.distance <= REACH)], minlength=len(seen)) > 0
    for i in last.tolist():
        if health[i] <= LOSS * (int(hungry[i]) + int(thirsty[i])):
            yield i, " and ".join(name for name, is_so in (("hunger", hungry[i]), ("thirst", thirsty[i])) if is_so)
        elif strikers[i]:
            yield i, "struck by " + " or ".join(f"agent {agent}" for agent in strikers[i])
        else:
            yield i, "struck by an NPC" if npc_near[i] else "unknown cause"


def _strikers(seen: Observed, last: np.ndarray) -> dict[int, list[int]]:
    """Return, for each given record, the agents that may have made the fatal attack in the tick after it."""
    records = seen.records
    in_reach = (seen.target_rows >= 0) & (seen.distance[seen.target_rows] <= REACH)
    struck = np.flatnonzero(in_reach & _may_have_killed(seen))
    target = seen.entity("id")[seen.target_rows[struck]]
    dead = {(int(records.episode[i]), int(records.tick[i]), int(records.agent_id[i])): i for i in last.tolist()}
    strikers: dict[int, list[int]] = defaultdict(list)
    for record, victim in zip(struck.tolist(), target.tolist(), strict=True):
        i = dead.get((int(records.episode[record]), int(records.tick[record]), victim))
        if i is not None:
            strikers[i].append(int(records.agent_id[record]))
    return strikers


def _may_have_killed(seen: Observed) -> np.ndarray:
    """Return where the recorded counts allow a kill by the agent in the tick after its record, (B,) bool."""
    if KILLS not in seen.records.columns:
        return np.ones(len(seen), bool)
    kills, order = seen.records.column(KILLS), seen.lives.order
    may = np.ones(len(seen), bool)
    same_life = seen.lives.index[order[1:]] == seen.lives.index[order[:-1]]
    may[order[:-1]] = ~same_life | (kills[order[1:]] > kills[order[:-1]])
    return may
