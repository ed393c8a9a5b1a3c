"""Completed trades, inferred from an agent's choices and its possessions afterwards."""

from collections.abc import Iterator

import numpy as np

from analysis.features.basics import in_combat, is_giving_item
from analysis.features.observed import Observed


def trades(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    """Yield the record at which each trade shows, and its description.

    Gave gold: the agent chose to, had enough, and was neither frozen nor in combat. Gave an item: likewise, and the
    item is gone. Bought: it chose to, has a new item or a larger stack, and less gold than its gifts explain. Sold: an
    item that it had listed is gone, and it has more gold. Of two trades in one tick, one may go unnoticed.

    Args:
        seen: records.
        now: indices of records whose life has a record one tick earlier, (N,).
        before: indices of those earlier records, (N,).
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
    """Return where the game lets an agent give, (B,) bool."""
    return ~in_combat(seen) & (seen.own("freeze") <= 1)  # a freeze of 1 is over before agents act


def _has_more(seen: Observed, before: int, now: int) -> bool:
    """Return whether an agent has an item that it did not have before, or a larger stack."""
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
