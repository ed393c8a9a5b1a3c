"""Describe agents' chosen actions in the words of the game."""

from collections.abc import Callable, Iterator

import numpy as np

from activation_store.records import RaggedRows
from analysis.features.choices import DIRECTIONS, STYLES
from analysis.features.observed import Observed
from analysis.life.events import NPC_NAMES

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
