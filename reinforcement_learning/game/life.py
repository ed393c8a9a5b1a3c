"""Statistics of one agent's life, read from the engine when it ends, and of lives together, as in metrics.jsonl."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import nmmo
import numpy as np
from nmmo.entity.entity import Entity, EntityState
from nmmo.entity.player import Player
from nmmo.lib.event_code import EventCode
from nmmo.lib.event_log import EventState

STARVED = "starved"
DEHYDRATED = "dehydrated"
STARVED_AND_DEHYDRATED = "starved_and_dehydrated"
KILLED_BY_PLAYER = "killed_by_player"
KILLED_BY_NPC = "killed_by_npc"
FOG = "fog"
CAUSES_OF_DEATH = (STARVED, DEHYDRATED, STARVED_AND_DEHYDRATED, KILLED_BY_PLAYER, KILLED_BY_NPC)
"""In worlds without fog."""

# Events that an agent can cause, by the game's code; removal of the dead is not one of them.
EVENTS: dict[int, str] = {
    code: name for name, code in vars(EventCode).items() if isinstance(code, int) and code != EventCode.AGENT_CULLED
}

_ENTITY = EntityState.State.attr_name_to_col
_EVENT = EventState.State.attr_name_to_col
_AVERAGED = (
    "total_reward", "task_progress", "task_completed", "died", "level", "gold", "players_killed", "noops_permitted",
)  # fmt: skip


@dataclass(frozen=True)
class Life:
    """Statistics of one agent's life, reported by `EpisodeStatistics` when it ends."""

    agent_id: int  # the game's number of the agent, from 1
    ticks: int  # lived, including the last one
    total_reward: float  # sum of the agent's rewards
    died: bool  # False if the episode was cut off while the agent lived
    cause_of_death: str | None  # one of `CAUSES_OF_DEATH`, or `FOG`; None if it did not die
    task: str  # name of the agent's task
    task_progress: float  # the agent's best progress in its task, 0 to 1
    task_completed: bool  # whether it reached 1
    level: int  # highest level over all skills at the end, from 1
    gold: int  # held before the last tick, so that a killer's loot still counts for its victim
    players_killed: int  # agents killed by this one
    events: dict[str, int]
    """Counts of the agent's logged events by the game's name of the event, such as `EAT_FOOD`; events with count 0 are
    left out. `PLAYER_KILL` is the game's name for any kill, of players or NPCs."""
    noops_permitted: int = 0  # how often its restrictions left no legal option, so that a no-op was permitted


class Before:
    """Food, water and gold of all entities before a tick; the game removes the dead before they can be read."""

    def __init__(self, game: nmmo.Env):
        entities = EntityState.Query.table(game.realm.datastore)
        self._rows = entities[:, [_ENTITY["id"], _ENTITY["food"], _ENTITY["water"], _ENTITY["gold"]]]

    def of(self, agent: int) -> tuple[int, int, int]:
        """Return the agent's food, water and gold."""
        _, food, water, gold = self._rows[self._rows[:, 0] == agent][0]
        return int(food), int(water), int(gold)


def cause_of_death(player: Player, food: int, water: int) -> str:
    """Return the cause of a player's death.

    In each tick Neural MMO first subtracts health for empty food and water, and the dead cannot be attacked. So an
    agent that was attacked in its last tick was killed by its last attacker, even if hunger or thirst cost health in
    that tick too. One that was not attacked died of the fog if it stood in it, otherwise of whichever of food and water
    was empty, or of both.

    Args:
        food: before the tick.
        water: before the tick.

    Returns:
        One of `CAUSES_OF_DEATH`, or `FOG`: nothing else can kill, since the void cannot be entered.
    """
    if player.history.damage.val > 0:
        if player.config.DEATH_FOG_ONSET is not None and player.latest_combat_tick.val != player.realm.tick:
            return FOG
        killer: Entity = player.attacker
        return KILLED_BY_PLAYER if killer.is_player else KILLED_BY_NPC
    if food == 0 and water == 0:
        return STARVED_AND_DEHYDRATED
    return STARVED if food == 0 else DEHYDRATED


def deeds(game: nmmo.Env, agents: Sequence[int]) -> dict[int, tuple[int, dict[str, int]]]:
    """Count players killed and all events of some agents, as in `Life`, in one pass over the game's event log."""
    rows = EventState.State.table(game.realm.datastore).where_in(_EVENT["ent_id"], agents)
    doer, event = rows[:, _EVENT["ent_id"]], rows[:, _EVENT["event"]]
    killed_player = (event == EventCode.PLAYER_KILL) & (rows[:, _EVENT["target_ent"]] > 0)
    counted = {}
    for agent in agents:
        own = doer == agent
        numbers = np.bincount(event[own], minlength=max(EVENTS) + 1)
        events = {name: int(numbers[code]) for code, name in EVENTS.items() if numbers[code]}
        counted[agent] = int(np.count_nonzero(killed_player & own)), events
    return counted


def life_statistics(lives: Sequence[Life], fog: bool = False) -> dict[str, float]:
    """Summarise the lives that ended, with equal weight per life.

    Args:
        fog: whether the world has fog, of which agents can die.

    Returns:
        Nothing if no life ended, otherwise

        - `lives/ended`: their number;
        - `lives/ticks`, `lives/ticks_median`, `lives/ticks_lower_quartile`, `lives/ticks_upper_quartile`: their
          length, in ticks;
        - `lives/total_reward`: mean sum of rewards of a life;
        - `lives/task_progress`: mean of each life's best progress in its task, 0 to 1;
        - `lives/task_completed`: share that reached 1;
        - `lives/died`: share that died, rather than being alive when their episode ended;
        - `lives/level`, `lives/gold`, `lives/players_killed`, `lives/noops_permitted`: means per life (see `Life`);
        - `events/<KIND>`: mean count per life; kinds have the game's names;
        - if any died, `death/<cause>`: share of deaths; these sum to 1. `death/fog` is there in worlds with fog,
          also where it is 0: who averages over updates passes over those that do not report it.
    """
    if not lives:
        return {}
    ticks = np.array([life.ticks for life in lives])  # (L,)
    lower, median, upper = np.quantile(ticks, (0.25, 0.5, 0.75))
    causes = Counter(life.cause_of_death for life in lives if life.died)
    kinds = (*CAUSES_OF_DEATH, *([FOG] if fog or FOG in causes else []))
    events: Counter[str] = Counter()
    for life in lives:
        events.update(life.events)
    return {
        "lives/ended": len(lives),
        "lives/ticks": float(ticks.mean()),
        "lives/ticks_median": float(median),
        "lives/ticks_lower_quartile": float(lower),
        "lives/ticks_upper_quartile": float(upper),
        **{f"lives/{name}": float(np.mean([getattr(life, name) for life in lives])) for name in _AVERAGED},
        **{f"events/{kind}": events[kind] / len(lives) for kind in EVENTS.values()},
        **{f"death/{cause}": causes[cause] / causes.total() for cause in kinds if causes},
    }
