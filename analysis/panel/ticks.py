"""Rollouts, short stretches of lives that the panel plays, and what it shows of each of their ticks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.layers import LSTM_HIDDEN
from activation_store.lives import Places, life_keys, number_lives, places_of
from activation_store.reader import Progress, read_dump
from activation_store.records import Records
from activation_store.schema import LIFE_KEY, TILE_COLUMNS, DumpMetadata
from analysis.explorer.views import entity_tables
from analysis.features.observed import Observed, own_truth_columns
from analysis.life.action_words import action_words
from analysis.lives import lives_of
from analysis.materials import MATERIALS
from common.user_error import UserError

TICKS = 32
"""Ticks of a rollout."""
SHORTEST = 8
"""Shorter remains of a life are left out, unless a saliency run covers them."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Stretches of the lives of one dump. R rollouts.

    Attributes:
        life: slot, agent and episode of each, (R, 3) int64.
        start: place of its first tick in its life, from 0, (R,) int64.
        stop: place after its last tick, (R,) int64.
    """

    life: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    def __len__(self) -> int:
        return len(self.life)

    def first(self, count: int) -> "Chosen":
        """Return the first rollouts."""
        return Chosen(self.life[:count], self.start[:count], self.stop[:count])


def choose(
    identity: Places, most: int, first: Sequence[Places], mapped: Sequence[Places], seed: int, ticks: int = TICKS
) -> Chosen:
    """Cut lives into rollouts until there are enough.

    Lives with saliency maps come first, then those that the run of analyze_dynamics.py followed, then others at random.
    Rollouts begin where saliency maps begin, so that they are covered from their first tick.

    Args:
        identity: of all records of the dump.
        first: records of lives to prefer, in decreasing order of preference after those of `mapped`.
        mapped: records with saliency maps.
    """
    keys, index = number_lives(identity)
    order = np.lexsort((identity["tick"], index))
    starts = np.concatenate([[0], np.cumsum(np.bincount(index))])
    number = {tuple(key): place for place, key in enumerate(keys.tolist())}
    rank = np.full(len(keys), len(first) + 1)
    for place, places in reversed(list(enumerate([_joined_places(mapped), *first]))):
        rank[[number[key] for key in _keys(places) if key in number]] = place
    at = _ticks_by_life(mapped)
    drawn = np.random.default_rng([seed, 11]).permutation(len(keys))
    rollouts: list[tuple[int, int, int]] = []
    for number in drawn[np.argsort(rank[drawn], kind="stable")].tolist():
        if len(rollouts) >= most:
            break
        tick = identity["tick"][order[starts[number] : starts[number + 1]]]
        covered = np.isin(tick, at.get(tuple(keys[number].tolist()), []))
        rollouts += [(number, start, stop) for start, stop in pieces(covered, ticks)]
    life, begin, end = np.array(rollouts[:most], np.int64).reshape(-1, 3).T
    return Chosen(keys[life], begin, end)


def pieces(covered: np.ndarray, ticks: int) -> list[tuple[int, int]]:
    """Cut a life into pieces of at most `ticks` ticks: those with saliency maps first, then the rest, in order.

    Args:
        covered: which of its ticks have saliency maps, (ticks of the life,) bool.

    Returns:
        First place and the one after the last, of each piece.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[2], covered.astype(np.int8), [2]])))
    all_pieces = [
        (start, min(start + ticks, stop))
        for begin, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        for start in range(begin, stop, ticks)
    ]
    with_maps = [piece for piece in all_pieces if covered[piece[0]]]
    return with_maps + [piece for piece in all_pieces if not covered[piece[0]] and piece[1] - piece[0] >= SHORTEST]


def shared_out(most: int, there: Sequence[int]) -> list[int]:
    """Divide the rollouts between dumps: equal parts, and what one cannot fill goes to the others."""
    shares, left = [0] * len(there), most
    for done, place in enumerate(sorted(range(len(there)), key=lambda dump: there[dump])):
        shares[place] = min(there[place], left // (len(there) - done))
        left -= shares[place]
    return shares


def _keys(places: Places) -> list[tuple[int, ...]]:
    return [tuple(key) for key in np.unique(life_keys(places), axis=0).tolist()]


def _joined_places(places: Sequence[Places]) -> Places:
    names = ("env_id", "agent_id", "episode", "tick")
    return {name: np.concatenate([[], *(part[name] for part in places)]).astype(np.int64) for name in names}


def _ticks_by_life(mapped: Sequence[Places]) -> dict[tuple[int, ...], np.ndarray]:
    together = _joined_places(mapped)
    keys = life_keys(together)
    return {key: together["tick"][(keys == key).all(axis=1)] for key in _keys(together)}


VITALS = ("health", "food", "water")
LEGAL = "legal"

Probabilities = Callable[[Records], Mapping[str, np.ndarray]]
"""Returns the probability of each option of some action heads, (B, options) by head."""
LifeStates = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Returns what is computed from the states of layers in a whole life, (n, U) each: arrays of n rows, by name."""


@dataclass(frozen=True, eq=False)
class PanelTicks:
    """T ticks of rollouts of one dump, rollout by rollout.

    Attributes:
        places: identity, (T,) each.
        material: of the tiles in view, (T, 225) uint8.
        corner: map row and column of the view's first tile, (T, 2) int64.
        entities: as `entity_tables`, with `entity.row`: which row of the tick's record each is.
        vitals: (T,) int64 each, by name.
        words: what the agent chose to do, (T,) str.
        value: of the critic, (T,) float32.
        reward: (T,) float32.
        chosen: probability of the chosen option of each head, (T, heads) float32.
        probabilities: of each option of some heads, (T, options) by head.
        states: what `LifeStates` returned, by name.
    """

    places: dict[str, np.ndarray]
    material: np.ndarray
    corner: np.ndarray
    entities: dict[str, np.ndarray]
    vitals: dict[str, np.ndarray]
    words: np.ndarray
    value: np.ndarray
    reward: np.ndarray
    chosen: np.ndarray
    probabilities: dict[str, np.ndarray]
    states: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.value)


def read_ticks(
    dump: Path, metadata: DumpMetadata, chosen: Chosen, layers: Sequence[str], states: LifeStates,
    probabilities: Probabilities | None, progress: Progress,
) -> PanelTicks:  # fmt: skip
    """Read the ticks of some rollouts, in their order; memory holds the records of one episode.

    Args:
        states: applied to the states of these layers in each life.
        probabilities: of options; None to leave them out.

    Raises:
        UserError: the dump cannot be read, or its views cannot be drawn.
    """
    needed = [*layers, *([LSTM_HIDDEN] if probabilities else [])]
    columns = [*own_truth_columns(metadata), *([LEGAL] if probabilities else [])]
    parts, order = [], []
    for number, own in enumerate(groups := list(_by_file(metadata, chosen))):
        lives = np.unique(chosen.life[own], axis=0).tolist()
        records = read_dump(
            dump, layers=list(dict.fromkeys(needed)), columns=columns, leave_out=["tables"], lives=lives,
            progress=lambda share, number=number: progress((number + share) / len(groups)),  # type: ignore[misc]
        )  # fmt: skip
        rows = _rows(records, chosen, own)
        parts.append(_ticks(records, metadata, rows, _states(records, layers, states), probabilities))
        order.append(own)
    return _arranged(parts, np.concatenate(order), chosen)


def _by_file(metadata: DumpMetadata, chosen: Chosen) -> Iterator[np.ndarray]:
    """Yield the rollouts of each episode; all at once where all episodes are in one file."""
    episode = chosen.life[:, LIFE_KEY.index("episode")]
    if metadata.format == "json":
        yield np.arange(len(chosen))
        return
    for number in np.unique(episode):
        yield np.flatnonzero(episode == number)


def _rows(records: Records, chosen: Chosen, own: np.ndarray) -> np.ndarray:
    """Return the records of some rollouts, rollout by rollout."""
    lives = lives_of(records)
    keys, _ = number_lives(places_of(records))
    number = {tuple(key): place for place, key in enumerate(keys.tolist())}
    parts = []
    for rollout in own.tolist():
        begin = lives.starts[number[tuple(chosen.life[rollout].tolist())]]
        parts.append(lives.order[begin + chosen.start[rollout] : begin + chosen.stop[rollout]])
    return np.concatenate(parts)


def _states(records: Records, layers: Sequence[str], states: LifeStates) -> dict[str, np.ndarray]:
    """Apply a function to each life, and return its results in the order of the records."""
    lives = lives_of(records)
    parts = [
        states({name: records.activations[name][lives.order[start : start + length]] for name in layers})
        for start, length in zip(lives.starts, lives.lengths, strict=True)
    ]
    columns = {}
    for name in parts[0]:
        together = np.concatenate([part[name] for part in parts])
        columns[name] = np.empty_like(together)
        columns[name][lives.order] = together
    return columns


def _ticks(
    records: Records, metadata: DumpMetadata, rows: np.ndarray, states: dict[str, np.ndarray],
    probabilities: Probabilities | None,
) -> PanelTicks:  # fmt: skip
    shown = records.take(rows)
    seen = Observed(shown, metadata)
    others = ~seen.is_self & (seen.distance <= 7)  # as in `entity_tables`
    row = np.arange(len(others)) - np.repeat(shown.entity.offsets[:-1], shown.entity.counts)
    return PanelTicks(
        places_of(shown), _material(shown), shown.tile[:, 0, :2].astype(np.int64),
        {**entity_tables(seen), "entity.row": row[others]},
        {name: seen.own(name).astype(np.int64) for name in VITALS}, np.array(action_words(seen)), shown.value,
        shown.reward, np.exp(shown.log_probability), dict(probabilities(shown)) if probabilities else {},
        {name: state[rows] for name, state in states.items()},
    )  # fmt: skip


def _material(records: Records) -> np.ndarray:
    material = records.tile[:, :, TILE_COLUMNS.index("material")]
    if not ((material >= 0) & (material < len(MATERIALS))).all():
        raise UserError(f"the dump's views hold other materials than the game's {len(MATERIALS)}: extract it again")
    return material.astype(np.uint8)


def _arranged(parts: list[PanelTicks], order: np.ndarray, chosen: Chosen) -> PanelTicks:
    """Put the ticks of all parts, whose rollouts are in this order, into the order of the rollouts."""
    lengths = (chosen.stop - chosen.start)[order]
    starts = np.cumsum(lengths) - lengths
    back = np.argsort(order, kind="stable")
    place = np.concatenate([np.arange(starts[tick], starts[tick] + lengths[tick]) for tick in back])
    counts = np.concatenate([part.entities["entity.count"] for part in parts])
    starts, taken = np.cumsum(counts) - counts, counts[place]
    entity = np.repeat(starts[place] - (np.cumsum(taken) - taken), taken) + np.arange(taken.sum())

    def arranged(name: str, tables: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(tables)[entity if name.startswith("entity.") and name != "entity.count" else place]

    return _joined(parts, arranged)


def joined_ticks(parts: list[PanelTicks]) -> PanelTicks:
    """Concatenate the ticks of several dumps; probabilities that one of them lacks are NaN there."""
    heads = {name: shares.shape[1] for part in parts for name, shares in part.probabilities.items()}

    def lacking(part: PanelTicks) -> dict[str, np.ndarray]:
        return {name: np.full((len(part), size), np.nan, np.float32) for name, size in heads.items()}

    whole = [replace(part, probabilities=lacking(part) | part.probabilities) for part in parts]
    return _joined(whole, lambda _, tables: np.concatenate(tables))


def _joined(parts: list[PanelTicks], join: Callable[[str, list[np.ndarray]], np.ndarray]) -> PanelTicks:
    """Join every table of several ticks, in the order of the first's."""
    joined: dict[str, Any] = {}
    for name, first in vars(parts[0]).items():
        tables = [getattr(part, name) for part in parts]
        if isinstance(first, dict):
            joined[name] = {key: join(key, [table[key] for table in tables]) for key in first}
        else:
            joined[name] = join(name, tables)
    return PanelTicks(**joined)
