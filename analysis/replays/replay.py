"""A recorded episode of Neural MMO as tables: positions and states of all entities at each tick, the map, and events.

And the colours of agents and NPCs on a map, the same in the page and in films.

T ticks, P players, N non-player characters (NPCs). Table cells are zero where their entity is not present.
"""

import re
from dataclasses import dataclass

import numpy as np

from analysis.labels import NOISE
from analysis.materials import HARVESTED

STYLES = ("Melee", "Range", "Mage")
SLOTS = ("hat", "top", "bottom", "held", "ammunition")
DEATH, KILL, LEVEL_UP = range(3)
EVENT_KINDS = ("death", "kill", "level-up")
CAUSES = ("killed", "starved", "dehydrated", "starved and dehydrated", "of unknown cause")
_STRUCK, _STARVED, _DEHYDRATED, _BOTH, _UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True)
class Item:
    """One stack in an inventory; `slot` is where it is worn, one of `SLOTS`, or empty."""

    name: str
    level: int
    quantity: int
    slot: str


@dataclass(frozen=True)
class Entities:
    """The common fields of players and NPCs, (T, E) int32 where nothing else is said."""

    ids: np.ndarray  # in the game: positive for players, negative for NPCs, (E,) int32
    names: tuple[str, ...]  # as in the replay, E of them
    present: np.ndarray  # whether in a tick's packet, (T, E) bool
    alive: np.ndarray  # whether present and alive; the dead are still in the packet of their last tick, (T, E) bool
    row: np.ndarray
    col: np.ndarray
    health: np.ndarray
    level: np.ndarray  # the highest of their combat levels
    damage: np.ndarray  # health lost to the last hit that it took in this tick
    target: np.ndarray  # id of the entity that it attacked in this tick, 0 for nobody
    style: np.ndarray  # of that attack, an index into `STYLES`

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Players(Entities):
    """The agents, (T, P) int32 each; of skills, (T, P, skills)."""

    food: np.ndarray
    water: np.ndarray
    gold: np.ndarray
    kills: np.ndarray  # players and NPCs killed so far
    inflicted: np.ndarray  # damage dealt so far
    received: np.ndarray  # damage taken so far
    frozen: np.ndarray  # ticks for which it still cannot act
    skill_level: np.ndarray
    skill_experience: np.ndarray
    inventory: np.ndarray  # index into `Replay.inventories`

    @property
    def policies(self) -> tuple[str, ...]:
        """The policy of each player, P names."""
        return tuple(policy_of(name, int(number)) for name, number in zip(self.names, self.ids, strict=True))


@dataclass(frozen=True)
class Npcs(Entities):
    """The NPCs; `kind` is an index into `NPC_KINDS`, the same wherever one is present, (T, N) int32."""

    kind: np.ndarray


@dataclass(frozen=True)
class Replay:
    """One episode."""

    tiles: np.ndarray  # materials before any harvesting, (rows, cols) uint8
    harvested: tuple[np.ndarray, ...]
    """Sorted positions, row * cols + col, of the tiles that are used up at each tick; T arrays of int32."""
    players: Players
    npcs: Npcs
    skills: tuple[str, ...]
    inventories: tuple[tuple[Item, ...], ...]  # every inventory that occurs; the first is empty

    @property
    def ticks(self) -> int:
        """Number of packets in the replay, which are ticks 0 to `ticks` - 1."""
        return len(self.harvested)

    def materials_at(self, tick: int) -> np.ndarray:
        """Return the visible material of each tile at a tick, (rows, cols) uint8."""
        seen = self.tiles.copy()
        places = self.harvested[tick]
        seen.flat[places] = HARVESTED[seen.flat[places]]
        return seen


def policy_of(name: str, number: int) -> str:
    """Return the policy in an agent's name: the name without the agent's number; the whole name if it has none."""
    match = re.fullmatch(r"(.+)_\d+", name)
    if match:
        return match[1]
    if name.endswith(str(number)) and name != str(number):
        return name.removesuffix(str(number))
    match = re.fullmatch(r"(.*?\D)\d+", name)
    return match[1] if match else name


@dataclass(frozen=True)
class Events:
    """Events in order of ticks; every array has one entry per event, int32."""

    tick: np.ndarray
    kind: np.ndarray  # index into `EVENT_KINDS`
    player: np.ndarray  # column of the agent concerned
    other: np.ndarray  # id of its killer or victim; 0 for nobody
    detail: np.ndarray  # for a death, an index into `CAUSES`; for a level-up, the skill
    value: np.ndarray  # for a level-up, the new level

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
                cause = _STRUCK
                if not killer:
                    # Food or water that is empty before the tick costs health in it.
                    hungry, thirsty = (vital[tick - 1, column] == 0 for vital in (players.food, players.water))
                    alone = _STARVED if hungry else _DEHYDRATED if thirsty else _UNKNOWN
                    cause = _BOTH if hungry and thirsty else alone
                events.append((tick, DEATH, column, killer, cause, 0))
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


NPC_KINDS = ("passive", "neutral", "aggressive")
NPC_COLOURS = dict(zip(NPC_KINDS, ("#ffffff", "#ffe14d", "#1d1d1f"), strict=True))
"""Colours of NPCs, also distinguished by lightness and by shape: triangle, diamond, square."""
NPC_SHAPES = dict(zip(NPC_KINDS, ("triangle", "diamond", "square"), strict=True))
UNLABELLED, UNLABELLED_COLOUR = -2, "#ffffff"


def policy_colours(policies: tuple[str, ...]) -> dict[str, str]:
    """Return a colour for each policy, in the order of names, as those of clusters."""
    from analysis.figures.style import cluster_colour

    return {policy: cluster_colour(number) for number, policy in enumerate(sorted(set(policies)))}


def cluster_colours(clusters: list[int]) -> dict[int, str]:
    """Return the colour of each cluster, as in the figures of the analysis, of noise, and of unlabelled agents."""
    from analysis.figures.style import NOISE_COLOUR, cluster_colour

    named = {cluster: cluster_colour(cluster) for cluster in clusters}
    return {UNLABELLED: UNLABELLED_COLOUR, NOISE: NOISE_COLOUR, **named}


def npc_facts() -> list[dict[str, str]]:
    """Return what pages read of kinds of NPCs."""
    return [{"name": kind, "colour": NPC_COLOURS[kind], "shape": NPC_SHAPES[kind]} for kind in NPC_KINDS]


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`."""
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue
