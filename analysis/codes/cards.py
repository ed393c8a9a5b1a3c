"""A card for each code: how common it is, how long it lasts, what agents do in it, what follows, where, and deaths."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from activation_store.lives import places_of
from analysis.codes.content import CodedDump
from analysis.features.body import is_giving_item
from analysis.features.choices import DIRECTIONS, STYLES
from analysis.figures.style import VALUE_MAP, new_figure, style, title
from analysis.life.events import endings
from analysis.life.phases.transitions import Dwelling, Transitions, dwelling, transitions
from analysis.life.phases.visits import VISITS_A_SPAN, LabelSequences, label_sequences, visits
from analysis.position import positions
from analysis.runs.codebook_rule import NAMES_FILE, called
from analysis.statistics.resampling import Bootstrap
from common.number_text import format_p, share_text

NEXT_SHOWN = 3
_ACTS = (
    ("moves", "Move.Direction"), ("attacks", "Attack.Target"), ("uses an item", "Use.InventoryItem"),
    ("destroys an item", "Destroy.InventoryItem"), ("buys", "Buy.MarketItem"),
    ("offers for sale", "Sell.InventoryItem"), ("gives gold", "GiveGold.Target"),
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A share or mean of a code's records against all others, with the 95% interval of the difference.

    What is elsewhere is NaN where no record has another code.
    """

    name: str
    inside: float
    elsewhere: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Card:
    """What is known of one code."""

    label: int  # of the code in the run
    number: int  # of the code in the codebook
    name: str  # as a person gave it, or ""
    share: float  # of all records of the dump
    lives: int
    about: str  # description from the run: features that survive correction, given tick and age where possible
    apart: tuple[str, ...]  # its features that survive given tick and age, with Cohen's d and interval, strongest first
    marks: tuple[str, ...]  # what it mainly marks, such as tick or row, if anything; from the run
    dwell: dict[str, float]
    """Mean ticks that a visit lasts, `low` and `high` of its 95% interval, the same by `chance`, if each life's ticks
    were shuffled, and the number of `visits`."""
    acts: tuple[Difference, ...]  # shares of records in which agents act so
    followers: tuple[dict[str, Any], ...]
    """Codes that follow, the commonest first: `label`, `share` of the changes out of the code, with what `chance` gives
    and `q`, both given age."""
    deaths: int  # that ended lives in it
    death_share: float  # of all deaths; compare with `share`
    causes: tuple[tuple[str, int], ...]  # of these deaths, with their numbers, most common first
    place: Difference  # distance from the middle of the map, in tiles


def cards_of(coded: CodedDump, bootstrap: Bootstrap, permutations: int) -> tuple[Card, ...]:
    """Describe every code of a run.

    Args:
        permutations: random orders of visits that what follows is compared with.
    """
    sequences = label_sequences(places_of(coded.records), coded.label, 1)
    stays = visits(sequences)
    lasting = dwelling(sequences, stays, bootstrap)
    following = transitions(sequences, stays, permutations, bootstrap.seed)
    weights = _weights(coded, bootstrap)
    acts = {name: _differences(coded, did, weights, bootstrap) for name, did in _acts(coded).items()}
    row, col = (coordinate.astype(np.float64) for coordinate in positions(coded.records))
    # The larger of the distances in rows and columns from the middle of what agents visited, in tiles, (B,).
    far = np.maximum(np.abs(row - (row.min() + row.max()) / 2), np.abs(col - (col.min() + col.max()) / 2))
    places_apart = _differences(coded, far, weights, bootstrap)
    dead = list(endings(coded.seen))
    return tuple(_card(coded, label, sequences, lasting, following, acts, places_apart, dead) for label in coded.labels)


def _card(
    coded: CodedDump, label: int, sequences: LabelSequences, lasting: Dwelling, following: Transitions,
    acts: dict[str, dict[int, tuple[float, ...]]], places_apart: dict[int, tuple[float, ...]],
    dead: list[tuple[int, str]],
) -> Card:  # fmt: skip
    summary = coded.run.summary
    cluster = next(entry for entry in summary["clusters"] if entry["label"] == label)
    survivors = [effect for effect in cluster["effects"] if effect["survives_given_time"]]
    survivors.sort(key=lambda effect: -abs(effect["d_complement"]))
    state = int(np.flatnonzero(sequences.labels == label)[0])
    causes = Counter(cause.partition(" by agent")[0] for record, cause in dead if coded.label[record] == label)
    return Card(
        label=label, number=summary["codes"]["numbers"][label], name=coded.names.get(label, ""),
        share=float((coded.label == label).mean()), lives=len(np.unique(coded.lives.index[coded.label == label])),
        about=cluster["description"], apart=tuple(_apart(effect) for effect in survivors),
        marks=tuple(confound["name"] for confound in cluster["confounds"] if confound["flagged"]),
        dwell={name: getattr(lasting, name)[state].item() for name in ("mean", "low", "high", "chance", "visits")},
        acts=tuple(Difference(name, *values[label]) for name, values in acts.items()),
        followers=_followers(following, sequences, state), deaths=sum(causes.values()),
        death_share=sum(causes.values()) / len(dead) if dead else float("nan"), causes=tuple(causes.most_common()),
        place=Difference("tiles from the middle of the map", *places_apart[label]),
    )  # fmt: skip


def _apart(effect: dict) -> str:
    if effect.get("choice"):
        return f"{effect['phrase']} in {share_text(effect['mean'])} ({share_text(effect['overall_mean'])} overall)"
    low, high = effect["d_complement_low"], effect["d_complement_high"]
    interval = "" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]"
    return f"{effect['name']} d {effect['d_complement']:+.2f}{interval}"


def _followers(following: Transitions, sequences: LabelSequences, state: int) -> tuple[dict[str, Any], ...]:
    order = np.argsort(-following.count[state], kind="stable")[:NEXT_SHOWN]
    chance = {"chance": following.given_age.chance, "q": following.given_age.q}
    return tuple(
        {"label": int(sequences.labels[to]), "share": float(following.share[state, to])}
        | {name: float(table[state, to]) for name, table in chance.items()}
        for to in order.tolist()
        if following.count[state, to]
    )


def _acts(coded: CodedDump) -> dict[str, np.ndarray]:
    """Whether agents chose each kind of act, (B,) bool each, with directions and styles where the dump records them."""
    heads = {head.name for head in coded.metadata.action_heads}
    seen = coded.seen
    acts = {name: seen.chose(head) for name, head in _ACTS if head in heads}
    if {"Give.InventoryItem", "Give.Target"} <= heads:
        acts["gives an item"] = is_giving_item(seen)
    if "Move.Direction" in heads:
        chosen = seen.option("Move.Direction")
        acts |= {f"moves {name}": chosen == number for number, name in enumerate(DIRECTIONS)}
    if {"Attack.Target", "Attack.Style"} <= heads:
        style, attacks = seen.option("Attack.Style"), seen.chose("Attack.Target")
        acts |= {f"attacks ({name})": attacks & (style == number) for number, name in enumerate(STYLES)}
    return acts


def _weights(coded: CodedDump, bootstrap: Bootstrap) -> np.ndarray:
    """Return how often each life is drawn when episodes are resampled, then lives in them, (R, L)."""
    lives = coded.lives
    episode = coded.records.episode[lives.order[lives.starts]]
    by_episode = [(int(number), tuple(np.flatnonzero(episode == number).tolist())) for number in np.unique(episode)]
    drawn = bootstrap.draw(tuple(by_episode)).episodes  # (R, L), lives in the order of `by_episode`
    weights = np.empty_like(drawn)
    weights[:, np.concatenate([np.array(own) for _, own in by_episode])] = drawn
    return weights


def _differences(
    coded: CodedDump, values: np.ndarray, weights: np.ndarray, bootstrap: Bootstrap
) -> dict[int, tuple[float, ...]]:
    """Return for each code: mean inside, elsewhere, and both ends of the difference's interval."""
    lives, every = coded.lives, np.ones(len(values))

    def sums(of: np.ndarray) -> np.ndarray:
        return np.bincount(lives.index, weights=of, minlength=len(lives))

    total, records = sums(values), sums(every)
    by_label: dict[int, tuple[float, ...]] = {}
    for label in coded.labels:
        inside = coded.label == label
        own, count = sums(np.where(inside, values, 0)), sums(np.where(inside, every, 0))
        others = (records - count).sum()  # none if all records have one code
        mean, rest = own.sum() / count.sum(), (total - own).sum() / others if others else np.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            elsewhere = (weights @ (total - own)) / (weights @ (records - count))
            resampled = (weights @ own) / (weights @ count) - elsewhere
        known = resampled[np.isfinite(resampled)]
        low, high = bootstrap.interval(known) if len(lives) > 1 and len(known) else (np.nan, np.nan)
        by_label[label] = (float(mean), float(rest), float(low), float(high))
    return by_label


_LARGE = 0.05
"""Smallest difference of shares that a card names."""
_ACTS_SHOWN = 6


def cards_markdown(title: str, cards: Sequence[Card], names: dict[int, str], verdict: Sequence[str]) -> str:
    """Return all cards as Markdown, under what the run's verdict says of all codes."""
    of_all = " ".join(takewhile(lambda sentence: not sentence.startswith("Cluster "), verdict))
    head = (
        f"# Codes of {title}\n\n{of_all}\n\nIntervals are 95%, from resampling episodes, then lives. Chance of a "
        "dwell time: each life's ticks in random order. Chance of what follows, given age: visits of a life in random "
        f"order within spans of about {VISITS_A_SPAN} of them; q is corrected for the number of pairs.\n"
    )
    return "\n".join([head, *(_card_text(card, names) for card in cards)])


def _card_text(card: Card, names: dict[int, str]) -> str:
    heading = f"## Code {called(card.label, names)}"
    dwell = card.dwell
    number = "" if card.number == card.label else f" (number {card.number} of the codebook)"
    deaths = "no agent died"
    if not math.isnan(card.death_share):
        causes = ", ".join(f"{cause} {count}" for cause, count in card.causes[:4])
        deaths = f"{card.deaths:,}, {share_text(card.death_share)} of all" + (f" ({causes})" if causes else "")
    lines = [
        f"label: {card.name or f'______________________ (write it in {NAMES_FILE})'}",
        f"share: {share_text(card.share)} of all ticks, in {card.lives:,} lives{number}",
        f"lasts: {_known(dwell['mean'])} ticks a visit{_between(dwell['low'], dwell['high'])}, by chance "
        f"{_known(dwell['chance'])}; {dwell['visits']:,} visits",
        f"set apart by: {card.about}",
        *([f"given tick and age: {', '.join(card.apart)}"] if card.apart else []),
        *([f"mainly marks: {', '.join(card.marks)}"] if card.marks else []),
        f"actions: {_acts_text(card.acts)}",
        f"then: {_followers_text(card, names)}",
        f"deaths: {deaths}",
        f"where: {card.place.inside:.0f} {card.place.name}, elsewhere {_known(card.place.elsewhere, 0)}"
        f"{_between(card.place.low, card.place.high, 'difference ')}",
    ]
    return "\n".join([heading, "", *(f"- {line}" for line in lines), ""])


def _acts_text(acts: Sequence[Difference]) -> str:
    shown = [act for act in acts if act.certain and abs(act.inside - act.elsewhere) >= _LARGE]
    shown.sort(key=lambda act: -abs(act.inside - act.elsewhere))
    if not shown:
        return f"no act differs by {_LARGE:.0%} or more, with an interval without 0"
    return "; ".join(
        f"{act.name} {act.inside:.0%} of ticks, elsewhere {act.elsewhere:.0%} "
        f"(difference {act.low:+.0%} to {act.high:+.0%})"
        for act in shown[:_ACTS_SHOWN]
    )


def _followers_text(card: Card, names: dict[int, str]) -> str:
    parts = []
    for follower in card.followers:
        chance = "n/a" if math.isnan(follower["chance"]) else f"{follower['chance']:.0%}"
        q = f", q {format_p(follower['q'])}" if math.isfinite(follower["q"]) else ""
        parts.append(f"{called(follower['label'], names)} {follower['share']:.0%} (chance {chance}{q})")
    return ", ".join(parts) or "it is never left"


def _known(value: float, digits: int = 1) -> str:
    return "n/a" if math.isnan(value) else f"{value:.{digits}f}"


def _between(low: float, high: float, what: str = "") -> str:
    return "" if math.isnan(low) or math.isnan(high) else f" ({what}{low:.1f} to {high:.1f})"


_COLUMNS = 4
_BINS = 32
_MOST = 16


def code_places(row: np.ndarray, col: np.ndarray, label: np.ndarray, names: Sequence[str], heading: str) -> Figure:
    """Draw, for each code, how much more often than elsewhere its ticks are at a place: shares over all codes' shares.

    Args:
        row: of each record, (B,).
        label: code of each, from 0.
        names: of the codes; at most 16 are drawn.
    """
    edges = [np.linspace(coordinate.min(), coordinate.max() + 1, _BINS + 1) for coordinate in (row, col)]
    everywhere, _, _ = np.histogram2d(row, col, edges)
    shown = min(len(names), _MOST)
    lines = -(-shown // _COLUMNS)
    with style():
        figure = new_figure(3.0 * _COLUMNS, 3.0 * lines + 0.8)
        panels = figure.subplots(lines, _COLUMNS, squeeze=False).ravel()
        for code, axes in enumerate(panels):
            if code >= shown:
                axes.set_axis_off()
                continue
            own, _, _ = np.histogram2d(row[label == code], col[label == code], edges)
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.where(everywhere > 0, (own / own.sum()) / (everywhere / everywhere.sum()), np.nan)
            image = axes.imshow(
                np.log2(np.clip(ratio, 0.25, 4)), cmap=VALUE_MAP, vmin=-2, vmax=2,
                extent=(edges[1][0], edges[1][-1], edges[0][-1], edges[0][0]),
            )  # fmt: skip
            axes.set(title=names[code], xticks=[], yticks=[])
        bar = figure.colorbar(image, ax=panels.tolist(), fraction=0.02, ticks=[-2, -1, 0, 1, 2])
        bar.ax.set_yticklabels(["1/4 or less", "1/2", "as often", "2", "4 or more"])
        figure.suptitle(
            title(heading, "share of a code's ticks at each place, over that of all ticks; north is up", 110)
        )
    return figure
