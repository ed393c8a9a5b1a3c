"""Rollouts: short stretches of lives that the panel plays, and which ones it shows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.lives import Places, life_keys, number_lives

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
    for place, places in reversed(list(enumerate([_joined(mapped), *first]))):
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


def _joined(places: Sequence[Places]) -> Places:
    names = ("env_id", "agent_id", "episode", "tick")
    return {name: np.concatenate([[], *(part[name] for part in places)]).astype(np.int64) for name in names}


def _ticks_by_life(mapped: Sequence[Places]) -> dict[tuple[int, ...], np.ndarray]:
    together = _joined(mapped)
    keys = life_keys(together)
    return {key: together["tick"][(keys == key).all(axis=1)] for key in _keys(together)}
