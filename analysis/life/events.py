"""Events in agents' lives, inferred from what they saw: ate, drank, hit, was hit, killed, died and of what.

And what agents chose to do, in the words of the game; how lives end: by hunger, by thirst, by an attack and whose, or
with the recording.

A record is the moment before a tick, so the outcome of the tick shows in the life's next record, where its event is
placed; a death is at the life's last record. No events are inferred across gaps between records.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from activation_store.records import RaggedRows
from activation_store.schema import DumpMetadata, Records
from analysis.features.body import HARVESTING_SKILLS, in_combat, is_giving_item, was_replenished
from analysis.features.choices import DIRECTIONS, STYLES
from analysis.features.observed import COMBAT_SKILLS, Observed
from analysis.features.surroundings import NPC_TYPES, REACH
from analysis.lives import previous_tick

EVENT_KINDS = ("ate", "drank", "hit", "was hit", "killed", "levelled up", "traded", "died")
ATE, DRANK, HIT, WAS_HIT, KILLED, LEVELLED_UP, TRADED, DIED = range(len(EVENT_KINDS))
NPC_NAMES = {number: f"{kind} NPC" for kind, number in NPC_TYPES.items()}


@dataclass(frozen=True)
class LifeEvents:
    """Events in order of lives, ticks and kinds; every field has one entry per event. E events."""

    record: np.ndarray  # index of the record at which it shows, (E,) int64
    kind: np.ndarray  # index into `EVENT_KINDS`, (E,) int64
    detail: tuple[str, ...]  # in words: opponent and damage of a hit, level reached, goods traded, cause of death

    def __len__(self) -> int:
        return len(self.record)

    def take(self, chosen: np.ndarray) -> "LifeEvents":
        """Return the events marked in `chosen`, (E,) bool."""
        return LifeEvents(self.record[chosen], self.kind[chosen], tuple(self.detail[i] for i in np.flatnonzero(chosen)))


def life_events(records: Records, metadata: DumpMetadata) -> LifeEvents:
    """Find all events of the records' lives.

    Pass whole episodes: an agent's killer, and whether it survived, can only be inferred from the others' records.

    Raises:
        UserError: the dump lacks a column or an action head, or an agent is not among the entities that it sees.
    """
    seen = Observed(records, metadata)
    previous = previous_tick(records, seen.lives)
    now = np.flatnonzero(previous >= 0)
    before = previous[now]
    damage, attacker = seen.own("damage"), seen.own("attacker_id").tolist()
    events = [
        *_changes(seen, now, before), *_hits(seen, now, before),
        *((int(i), WAS_HIT, f"{damage[i]} damage, by {_by(attacker[i])}") for i in now[damage[now] > 0]),
        *((record, TRADED, what) for record, what in trades(seen, now, before)),
        *((record, DIED, cause) for record, cause in endings(seen)),
    ]  # fmt: skip
    record, kind = (np.array([event[place] for event in events], np.int64) for place in (0, 1))
    order = np.lexsort((kind, records.tick[record], seen.lives.index[record]))
    return LifeEvents(record[order], kind[order], tuple(events[i][2] for i in order))


_Event = tuple[int, int, str]
"""Record, kind, detail."""


def _changes(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[_Event]:
    """Yield meals and levels reached."""
    for kind, name in ((ATE, "food"), (DRANK, "water")):
        level = seen.own(name)
        yield from ((int(i), kind, "") for i in now[was_replenished(level[now], level[before])])
    for skill in COMBAT_SKILLS + HARVESTING_SKILLS:
        level = seen.own(f"{skill}_level")
        yield from ((int(i), LEVELLED_UP, f"{skill} {level[i]}") for i in now[level[now] > level[before]])


def _hits(seen: Observed, now: np.ndarray, before: np.ndarray) -> list[_Event]:
    """Find attacks that hit and attacks that killed.

    An attack hit if its target was within reach and the game's tick of the agent's latest combat is this tick. It
    killed if the engine counted a kill or, in dumps without that count, if the target is gone from view: it cannot
    have walked out of view in one tick. In simulated lives nobody can be told to be gone.
    """
    target, latest = seen.target_rows[before], seen.own("latest_combat_tick")[now]
    struck = (target >= 0) & (seen.distance[target] <= REACH)
    struck &= (latest > 0) & (latest == seen.clock[now])  # both are 0 in simulated lives without clocks
    now, before, target = now[struck], before[struck], target[struck]
    ids, offsets, kinds = seen.entity("id"), seen.records.entity.offsets, seen.entity("npc_type")[target].tolist()
    kills, victims = seen.records.columns.get(KILLS), ids[target].tolist()
    if kills is not None:
        killed = kills[now] > kills[before]
    else:
        gone = [victim not in ids[offsets[i] : offsets[i + 1]] for i, victim in zip(now, victims, strict=True)]
        killed = np.array(gone, bool) & (not seen.simulated)
    names = [
        NPC_NAMES.get(kind, "NPC") if kind > 0 else f"agent {victim}"
        for kind, victim in zip(kinds, victims, strict=True)
    ]
    hits = [(int(i), HIT, name) for i, name in zip(now, names, strict=True)]
    return hits + [(int(i), KILLED, name) for i, name, dead in zip(now, names, killed, strict=True) if dead]


def _by(attacker: int) -> str:
    return f"agent {attacker}" if attacker > 0 else "an NPC" if attacker < 0 else "someone who is gone"


def trades(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    """Yield the record at which each trade shows, and its description.

    Gave gold: the agent chose to, had enough, and was neither frozen nor in combat. Gave an item: likewise, and the
    item is gone. Bought: it chose to, has a new item or a larger stack, and less gold than its gifts explain. Sold: an
    item that it had listed is gone, and it has more gold. Of two trades in one tick, one may go unnoticed. `now` are
    records whose life has a record one tick earlier, and `before` those earlier ones, (N,) indices each.
    """
    gold = seen.own("gold").astype(np.int64)
    spent, can_give = gold[before] - gold[now], ~in_combat(seen) & (seen.own("freeze") <= 1)
    # A freeze of 1 is over before agents act. The first option is a price of one.
    amount = seen.option("GiveGold.Price") + 1
    wanted = np.where(seen.chose("GiveGold.Target") & (amount <= seen.own("gold")) & can_give, amount, 0)[before]
    buys = seen.chose("Buy.MarketItem")[before]
    given = np.where(buys & (spent < wanted), 0, wanted)  # buying comes first and may leave too little gold
    for i in np.flatnonzero(given > 0):
        yield int(now[i]), f"gave {given[i]} gold"
    for i in np.flatnonzero(buys & (spent > given)):
        had, has = (
            dict(zip(_items(seen, record, "id").tolist(), _items(seen, record, "quantity").tolist(), strict=True))
            for record in (before[i], now[i])
        )
        if any(quantity > had.get(number, 0) for number, quantity in has.items()):
            yield int(now[i]), f"bought something for {spent[i] - given[i]} gold"
    chosen = seen.option("Give.InventoryItem")
    for i in np.flatnonzero((is_giving_item(seen) & can_give)[before]):
        ids, slot = _items(seen, before[i], "id"), chosen[before[i]]
        if slot < len(ids) and ids[slot] not in _items(seen, now[i], "id"):
            yield int(now[i]), "gave an item"
    listed = np.bincount(seen.item_owner[seen.item("listed_price") > 0], minlength=len(seen)) > 0
    for i in np.flatnonzero(listed[before] & (gold[now] > gold[before])):
        price = _items(seen, before[i], "listed_price")
        gone = (price > 0) & ~np.isin(_items(seen, before[i], "id"), _items(seen, now[i], "id"))
        if gone.any():
            yield int(now[i]), f"sold something for {price[gone].sum()} gold"


def _items(seen: Observed, record: int, name: str) -> np.ndarray:
    offsets = seen.records.inventory.offsets
    return seen.item(name)[offsets[record] : offsets[record + 1]]


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


ITEMS = {
    2: "hat", 3: "top", 4: "bottom", 5: "spear", 6: "bow", 7: "wand", 8: "rod", 9: "gloves", 10: "pickaxe", 11: "axe",
    12: "chisel", 13: "whetstone", 14: "arrow", 15: "rune", 16: "ration", 17: "potion",
}  # fmt: skip
"""The game's `type_id` values of items."""


def action_words(seen: Observed) -> list[str]:
    """Return one phrase per record, such as "moves north, attacks passive NPC -12 (melee)", or "does nothing".

    These are intentions: the game carries them out after the record is made, if it can.
    """
    phrases: list[list[str]] = [[] for _ in range(len(seen))]
    for record, phrase in _acts(seen):
        phrases[record].append(phrase)
    return [", ".join(parts) or "does nothing" for parts in phrases]


def _acts(seen: Observed) -> Iterator[tuple[int, str]]:
    """Yield the record and the phrase of every action, grouped by kind of action."""
    moves = seen.option("Move.Direction")
    for i in _chosen(seen, "Move.Direction"):
        yield i, f"moves {_at(DIRECTIONS, moves[i])}"
    attacked, style = _people(seen, "Attack.Target"), seen.option("Attack.Style")
    for i in _chosen(seen, "Attack.Target"):
        yield i, f"attacks {attacked(i)} ({_at(STYLES, style[i])})"
    for head, verb in (("Use.InventoryItem", "uses"), ("Destroy.InventoryItem", "destroys")):
        item = _things(seen, head)
        for i in _chosen(seen, head):
            yield i, f"{verb} {item(i)}"
    yield from _trades(seen)


def _trades(seen: Observed) -> Iterator[tuple[int, str]]:
    for i in _chosen(seen, "Buy.MarketItem"):
        yield i, f"buys offer {seen.option('Buy.MarketItem')[i]} of the market"
    item, price = _things(seen, "Sell.InventoryItem"), seen.option("Sell.Price")
    for i in _chosen(seen, "Sell.InventoryItem"):
        yield i, f"offers {item(i)} for {price[i] + 1} gold"  # prices start at 1
    given, taker = _things(seen, "Give.InventoryItem"), _people(seen, "Give.Target")
    for i in np.intersect1d(_chosen(seen, "Give.InventoryItem"), _chosen(seen, "Give.Target")).tolist():
        yield i, f"gives {given(i)} to {taker(i)}"
    payee, amount = _people(seen, "GiveGold.Target"), seen.option("GiveGold.Price")
    for i in _chosen(seen, "GiveGold.Target"):
        yield i, f"gives {amount[i] + 1} gold to {payee(i)}"


def _chosen(seen: Observed, head: str) -> list[int]:
    return [int(i) for i in np.flatnonzero(seen.chose(head))]


def _people(seen: Observed, head: str) -> Callable[[int], str]:
    kinds, ids = seen.entity("npc_type"), seen.entity("id")
    return _in_rows(
        seen.option(head),
        seen.records.entity,
        lambda row: f"{NPC_NAMES.get(int(kinds[row]), 'player')} {ids[row]}",
        otherwise="somebody out of view",
    )


def _things(seen: Observed, head: str) -> Callable[[int], str]:
    kinds, levels = seen.item("type_id"), seen.item("level")
    return _in_rows(
        seen.option(head),
        seen.records.inventory,
        lambda row: f"{ITEMS.get(int(kinds[row]), 'item')} (level {levels[row]})",
        otherwise="something",
    )


def _in_rows(option: np.ndarray, rows: RaggedRows, name: Callable[[int], str], otherwise: str) -> Callable[[int], str]:
    """Return a function that names the row that a record's option points to; some options point out of view."""

    def named(record: int) -> str:
        if option[record] >= rows.counts[record]:
            return otherwise
        return name(rows.offsets[record] + option[record])

    return named


def _at(names: tuple[str, ...], option: int) -> str:
    return names[option] if option < len(names) else f"option {option}"
