"""Events in agents' lives, inferred from what they saw: ate, drank, hit, was hit, killed, died and of what.

A record is the moment before a tick, so the outcome of the tick shows in the life's next record, where its event is
placed; a death is at the life's last record. No events are inferred across gaps between records.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from activation_store.schema import DumpMetadata, Records
from analysis.features.basics import in_combat, is_giving_item
from analysis.features.body import HARVESTING_SKILLS
from analysis.features.observed import COMBAT_SKILLS, Observed
from analysis.features.over_time import was_replenished
from analysis.features.surroundings import NPC_TYPES, REACH
from analysis.life.endings import KILLS, endings
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
    events = [
        *_meals(seen, now, before), *_hits(seen, now, before), *_taken_hits(seen, now), *_level_ups(seen, now, before),
        *((record, TRADED, what) for record, what in trades(seen, now, before)),
        *((record, DIED, cause) for record, cause in endings(seen)),
    ]  # fmt: skip
    record, kind = (np.array([event[place] for event in events], np.int64) for place in (0, 1))
    order = np.lexsort((kind, records.tick[record], seen.lives.index[record]))
    return LifeEvents(record[order], kind[order], tuple(events[i][2] for i in order))


_Event = tuple[int, int, str]
"""Record, kind, detail."""


def _meals(seen: Observed, now: np.ndarray, before: np.ndarray) -> list[_Event]:
    events = []
    for kind, name in ((ATE, "food"), (DRANK, "water")):
        level = seen.own(name)
        events += [(int(i), kind, "") for i in now[was_replenished(level[now], level[before])]]
    return events


def _hits(seen: Observed, now: np.ndarray, before: np.ndarray) -> list[_Event]:
    """Find attacks that hit and attacks that killed.

    An attack hit if its target was within reach and the game's tick of the agent's latest combat is this tick. It
    killed if the engine counted a kill or, in dumps without that count, if the target is gone from view: it cannot
    have walked out of view in one tick.
    """
    target = seen.target_rows[before]
    struck = (target >= 0) & (seen.distance[target] <= REACH)
    struck &= seen.own("latest_combat_tick")[now] == seen.records.tick[now]
    now, before, target = now[struck], before[struck], target[struck]
    victim = seen.entity("id")[target]
    kills = seen.records.columns.get(KILLS)
    killed = kills[now] > kills[before] if kills is not None else _gone(seen, now, victim)
    names = [_name(seen, row) for row in target]
    hits = [(int(i), HIT, name) for i, name in zip(now, names, strict=True)]
    return hits + [(int(i), KILLED, name) for i, name, dead in zip(now, names, killed, strict=True) if dead]


def _gone(seen: Observed, now: np.ndarray, victim: np.ndarray) -> np.ndarray:
    """Return which victims are not among the entities of the records `now`, (K,) and (K,) to (K,) bool."""
    entities = seen.records.entity
    ids, offsets = seen.entity("id"), entities.offsets
    return np.array([v not in ids[offsets[i] : offsets[i + 1]] for i, v in zip(now, victim, strict=True)], bool)


def _taken_hits(seen: Observed, now: np.ndarray) -> list[_Event]:
    damage, attacker = seen.own("damage"), seen.own("attacker_id")
    hurt = now[damage[now] > 0]
    return [(int(i), WAS_HIT, f"{damage[i]} damage, by {_by(int(attacker[i]))}") for i in hurt]


def _by(attacker: int) -> str:
    return f"agent {attacker}" if attacker > 0 else "an NPC" if attacker < 0 else "someone who is gone"


def _name(seen: Observed, row: int) -> str:
    kind = int(seen.entity("npc_type")[row])
    return NPC_NAMES.get(kind, "NPC") if kind > 0 else f"agent {seen.entity('id')[row]}"


def _level_ups(seen: Observed, now: np.ndarray, before: np.ndarray) -> list[_Event]:
    events = []
    for skill in COMBAT_SKILLS + HARVESTING_SKILLS:
        level = seen.own(f"{skill}_level")
        events += [(int(i), LEVELLED_UP, f"{skill} {level[i]}") for i in now[level[now] > level[before]]]
    return events


def trades(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    """Yield the record at which each trade shows, and its description.

    Gave gold: the agent chose to, had enough, and was neither frozen nor in combat. Gave an item: likewise, and the
    item is gone. Bought: it chose to, has a new item or a larger stack, and less gold than its gifts explain. Sold: an
    item that it had listed is gone, and it has more gold. Of two trades in one tick, one may go unnoticed. `now` are
    records whose life has a record one tick earlier, and `before` those earlier ones, (N,) indices each.
    """
    spent = seen.own("gold")[before].astype(np.int64) - seen.own("gold")[now]
    wanted, buys = _gold_to_give(seen)[before], seen.chose("Buy.MarketItem")[before]
    given = np.where(buys & (spent < wanted), 0, wanted)  # buying comes first and may leave too little gold
    for i in np.flatnonzero(given > 0):
        yield int(now[i]), f"gave {given[i]} gold"
    for i in np.flatnonzero(buys & (spent > given)):
        if _has_more(seen, int(before[i]), int(now[i])):
            yield int(now[i]), f"bought something for {spent[i] - given[i]} gold"
    yield from _gifts(seen, now, before)
    yield from _sales(seen, now, before)


def _gold_to_give(seen: Observed) -> np.ndarray:
    """Return the gold that each agent gives in the tick after its record unless it buys too, (B,) int64."""
    amount = seen.option("GiveGold.Price") + 1  # the first option is a price of one
    return np.where(seen.chose("GiveGold.Target") & (amount <= seen.own("gold")) & _can_give(seen), amount, 0)


def _can_give(seen: Observed) -> np.ndarray:
    return ~in_combat(seen) & (seen.own("freeze") <= 1)  # a freeze of 1 is over before agents act


def _has_more(seen: Observed, before: int, now: int) -> bool:
    had, has = (
        dict(zip(_items(seen, record, "id").tolist(), _items(seen, record, "quantity").tolist(), strict=True))
        for record in (before, now)
    )
    return any(quantity > had.get(number, 0) for number, quantity in has.items())


def _gifts(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    chosen = seen.option("Give.InventoryItem")
    for i in np.flatnonzero((is_giving_item(seen) & _can_give(seen))[before]):
        had, slot = _items(seen, before[i], "id"), chosen[before[i]]
        if slot < len(had) and had[slot] not in _items(seen, now[i], "id"):
            yield int(now[i]), "gave an item"


def _sales(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    gold = seen.own("gold").astype(np.int64)
    listed = np.bincount(seen.item_owner[seen.item("listed_price") > 0], minlength=len(seen)) > 0
    for i in np.flatnonzero(listed[before] & (gold[now] > gold[before])):
        price = _items(seen, before[i], "listed_price")
        gone = (price > 0) & ~np.isin(_items(seen, before[i], "id"), _items(seen, now[i], "id"))
        if gone.any():
            yield int(now[i]), f"sold something for {price[gone].sum()} gold"


def _items(seen: Observed, record: int, name: str) -> np.ndarray:
    offsets = seen.records.inventory.offsets
    return seen.item(name)[offsets[record] : offsets[record + 1]]
