"""Cards of codes as text for people."""

import math
from collections.abc import Sequence

from analysis.codes.cards import Card, Difference
from analysis.life_phase.visits import VISITS_A_SPAN
from analysis.runs.names import LABELS_FILE, called
from analysis.share_text import share_text

_LARGE = 0.05
"""Smallest difference of shares that a card names."""
_ACTS_SHOWN = 6


def cards_markdown(title: str, cards: Sequence[Card], names: dict[int, str], verdict: str) -> str:
    """Return all cards as Markdown."""
    head = (
        f"# Codes of {title}\n\n{verdict}\n\nIntervals are 95%, from resampling episodes, then lives. Chance of a "
        "dwell time: each life's ticks in random order. Chance of what follows, given age: visits of a life in random "
        f"order within spans of about {VISITS_A_SPAN} of them; q is corrected for the number of pairs.\n"
    )
    return "\n".join([head, *(_card(card, names) for card in cards)])


def _card(card: Card, names: dict[int, str]) -> str:
    heading = f"## Code {called(card.label, names)}"
    number = "" if card.number == card.label else f" (number {card.number} of the codebook)"
    lines = [
        f"label: {card.name or f'______________________ (write it in {LABELS_FILE})'}",
        f"share: {share_text(card.share)} of all ticks, in {card.lives:,} lives{number}",
        f"lasts: {_ticks(card.dwell.mean)} ticks a visit{_between(card.dwell.low, card.dwell.high)}, by chance "
        f"{_ticks(card.dwell.chance)}; {card.dwell.visits:,} visits",
        f"set apart by: {card.about}",
        *([f"given tick and age: {', '.join(card.apart)}"] if card.apart else []),
        *([f"mainly marks: {', '.join(card.marks)}"] if card.marks else []),
        f"actions: {_acts(card.acts)}",
        f"then: {_followers(card, names)}",
        f"deaths: {_deaths(card)}",
        f"where: {card.place.inside:.0f} {card.place.name}, elsewhere {card.place.elsewhere:.0f}"
        f"{_between(card.place.low, card.place.high, 'difference ')}",
    ]
    return "\n".join([heading, "", *(f"- {line}" for line in lines), ""])


def _acts(acts: Sequence[Difference]) -> str:
    told = [each for each in acts if each.certain and abs(each.inside - each.elsewhere) >= _LARGE]
    told.sort(key=lambda each: -abs(each.inside - each.elsewhere))
    if not told:
        return f"no act differs by {_LARGE:.0%} or more, with an interval without 0"
    return "; ".join(
        f"{each.name} {each.inside:.0%} of ticks, elsewhere {each.elsewhere:.0%} "
        f"(difference {each.low:+.0%} to {each.high:+.0%})"
        for each in told[:_ACTS_SHOWN]
    )


def _followers(card: Card, names: dict[int, str]) -> str:
    told = [
        f"{called(each.label, names)} {each.share:.0%} (chance {_percent(each.chance)}"
        + (f", q {each.q:.3f})" if math.isfinite(each.q) else ")")
        for each in card.followers
    ]
    return ", ".join(told) or "it is never left"


def _percent(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.0%}"


def _deaths(card: Card) -> str:
    if math.isnan(card.death_share):
        return "no agent died"
    causes = ", ".join(f"{cause} {count}" for cause, count in card.causes[:4])
    return f"{card.deaths:,}, {share_text(card.death_share)} of all" + (f" ({causes})" if causes else "")


def _ticks(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.1f}"


def _between(low: float, high: float, what: str = "") -> str:
    return "" if math.isnan(low) or math.isnan(high) else f" ({what}{low:.1f} to {high:.1f})"
