"""Choose the stretches of lives that a code's film is made of."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.codes.content import CodedDump

SHORTEST, LONGEST = 5, 20
"""Ticks of a stretch; of a longer one the first are shown."""
FRAMES, BLACK = 480, 4
"""Frames of a film, and black frames between stretches."""
BEST_SHARE = 0.2

From = Literal["best", "all"]


@dataclass(frozen=True)
class Stretch:
    """Consecutive records of one life with one code.

    Attributes:
        label: the code.
        life: number of the life.
        records: of the dump, in order of ticks, `SHORTEST` to `LONGEST`.
    """

    label: int
    life: int
    records: np.ndarray


def stretches_of(coded: CodedDump, chosen: From, seed: int) -> dict[int, list[Stretch]]:
    """Draw stretches for each code, from different lives as far as possible, up to the frames of a film.

    Args:
        coded: the run and every record of its dump.
        chosen: "best" for the fifth of the lives with the highest sum of rewards, or the longest if rewards were not
            recorded; "all" for all.
        seed: of the draw.

    Returns:
        Code -> stretches; a code without any has none.
    """
    lives, random = coded.lives, np.random.default_rng(seed)
    allowed = np.isin(np.arange(len(lives)), best_lives(coded)) if chosen == "best" else np.ones(len(lives), bool)
    order = lives.order[allowed[lives.index_in_order]]
    label, life, tick = coded.label[order], lives.index[order], coded.records.tick[order]
    begins = np.flatnonzero(
        (np.diff(label, prepend=-2) != 0) | (np.diff(life, prepend=-1) != 0) | (np.diff(tick, prepend=-2) != 1)
    )
    lengths = np.diff(begins, append=len(order))
    found: dict[int, list[Stretch]] = {}
    for code in coded.labels:
        own = random.permutation(np.flatnonzero((label[begins] == code) & (lengths >= SHORTEST)))
        turn = _turns(life[begins[own]])
        own = own[np.argsort(turn, kind="stable")]  # a second stretch of a life only after one of each life
        found[code], frames = [], 0
        for visit in own.tolist():
            length = min(int(lengths[visit]), LONGEST, FRAMES - frames)
            if length < SHORTEST:
                break
            first = begins[visit]
            found[code].append(Stretch(code, int(life[first]), order[first : first + length]))
            frames += length + BLACK
    return found


def best_lives(coded: CodedDump) -> np.ndarray:
    """Return the numbers of the best fifth of the lives, at least one."""
    lives, reward = coded.lives, coded.records.reward
    score = np.bincount(lives.index, weights=reward) if np.isfinite(reward).all() else lives.lengths
    return np.argsort(-score, kind="stable")[: max(1, round(BEST_SHARE * len(lives)))]


def _turns(life: np.ndarray) -> np.ndarray:
    """Count how often each life has come before, (n,)."""
    turns, seen = np.zeros(len(life), np.int64), dict[int, int]()
    for place, each in enumerate(life.tolist()):
        turns[place] = seen.get(each, 0)
        seen[each] = turns[place] + 1
    return turns
