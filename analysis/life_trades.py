"""Trades that came about, read from what an agent chose and what it then had."""

from collections.abc import Iterator

import numpy as np

from analysis.features.basics import is_giving_item
from analysis.features.observed import Observed


def trades(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    """Yield the record at which each trade shows, and what it was.

    Bought: the agent chose to buy, and then carries more pieces and less gold. Sold: an item that it had listed is
    gone and its gold is more. Gave gold, gave an item: it chose so, and the gold or that item is gone.

    Args:
        seen: records.
        now: records with one a tick earlier in the same life, (N,).
        before: that one, (N,).
    """
    yield from _purchases_and_gold(seen, now, before)
    yield from _gifts(seen, now, before)
    yield from _sales(seen, now, before)


def _purchases_and_gold(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    gold = seen.own("gold").astype(np.int64)
    spent = gold[before] - gold[now]
    pieces = np.bincount(seen.item_owner, weights=seen.item("quantity"), minlength=len(seen))
    bought = seen.chose("Buy.MarketItem")[before] & (spent > 0) & (pieces[now] > pieces[before])
    gave = seen.chose("GiveGold.Target")[before] & (spent > 0)
    for i in np.flatnonzero(bought):
        yield int(now[i]), f"bought something for {spent[i]} gold"
    for i in np.flatnonzero(gave & ~bought):
        yield int(now[i]), f"gave {spent[i]} gold"


def _gifts(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    chosen = seen.option("Give.InventoryItem")
    inventory, ids = seen.records.inventory, seen.item("id")
    for i in np.flatnonzero(is_giving_item(seen)[before]):
        slot = chosen[before[i]]
        if slot < inventory.counts[before[i]] and ids[inventory.offsets[before[i]] + slot] not in _items(seen, now[i]):
            yield int(now[i]), "gave an item"


def _sales(seen: Observed, now: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, str]]:
    gold, price, ids = seen.own("gold").astype(np.int64), seen.item("listed_price"), seen.item("id")
    listed = np.bincount(seen.item_owner[price > 0], minlength=len(seen)) > 0
    offsets = seen.records.inventory.offsets
    for i in np.flatnonzero(listed[before] & (gold[now] > gold[before])):
        rows = np.arange(offsets[before[i]], offsets[before[i] + 1])
        gone = rows[(price[rows] > 0) & ~np.isin(ids[rows], _items(seen, now[i]))]
        if len(gone):
            yield int(now[i]), f"sold something for {price[gone].sum()} gold"


def _items(seen: Observed, record: int) -> np.ndarray:
    offsets = seen.records.inventory.offsets
    return seen.item("id")[offsets[record] : offsets[record + 1]]
