"""How long an edit lasts: what is left of it in the memory and in the actions, tick by tick."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.interventions import Outcome
from analysis.interventions.effects.inference import OverEpisodes
from analysis.interventions.effects.pairs import Pairs
from analysis.statistics.resampling import Estimate

TITLES = {"cell": "cell state", "hidden": "hidden state", "actions": "actions"}
"""What is followed, by the name in the outcome."""
_HALF = 0.5
_ROUNDING = 1e-5  # nats: smaller divergences of distributions over actions cannot be told from rounding


@dataclass(frozen=True)
class Persistence:
    """What is left of edits that were each made in a single tick.

    Attributes:
        what: a key of `TITLES`: the distance of a state from that of a copy without the edit, or the Kullback-Leibler
            divergence of the distributions over actions.
        left: after 0, 1, ... ticks, as a share of that in the tick of the edit, as long as in every episode a followed
            agent lives.
        first: in the tick of the edit: 1 for states, nats for actions.
        half_life: ticks until half is left, between ticks by linear interpolation; infinite if more than half is left
            in the last tick.
    """

    policy: str
    what: str
    left: tuple[Estimate, ...]
    first: Estimate
    half_life: Estimate
    episodes: int


def persistence_of_edits(everything: Sequence[Pairs], over: OverEpisodes) -> list[Persistence]:
    """Measure what is left in every arm whose edits were followed; empty if there is none.

    Actions are left out if the edit itself moves them by no more than rounding.
    """
    followed = [pairs for pairs in everything if pairs.arm.kind == "edited once"]
    return [_persistence(pairs, what, over) for pairs in followed for what in TITLES if _moves(pairs, what)]


def half_life(left: np.ndarray) -> np.ndarray:
    """Return after how many ticks half of the first value is left, (R, ticks) -> (R,); infinite if never.

    Args:
        left: after 0, 1, ... ticks.
    """
    share = left / left[:, :1]
    below = share <= _HALF
    place = below.argmax(axis=1)
    rows = np.arange(len(left))
    before, after = share[rows, place - 1], share[rows, place]
    between = place - 1 + (before - _HALF) / np.where(before > after, before - after, 1)
    return np.where(below.any(axis=1), between, np.inf)


def _moves(pairs: Pairs, what: str) -> bool:
    values = pairs.values.get(_left(what, 0), np.zeros(len(pairs.edited)))
    known = values[pairs.edited & np.isfinite(values)]
    return len(known) > 0 and bool(known.mean() > _ROUNDING)


def _left(what: str, lag: int) -> str:
    """Return the name of the outcome that says what is left after so many ticks."""
    return Outcome("lasting", f"{what}/{lag}").name


def _persistence(pairs: Pairs, what: str, over: OverEpisodes) -> Persistence:
    columns: list[np.ndarray] = []
    for name in itertools.takewhile(pairs.values.__contains__, (_left(what, lag) for lag in itertools.count())):
        column = pairs.episode_means(pairs.values[name], pairs.edited)  # (E,)
        if columns and not np.isfinite(column[np.isfinite(columns[0])]).all():
            break  # in some episode, no followed agent lives so long
        columns.append(column)
    values = np.stack(columns, axis=1)[np.isfinite(columns[0])]  # (E, ticks)
    resampled = over.resampled_means(values)  # (R, ticks)
    mean = values.mean(axis=0)
    shares = mean / mean[0]
    low, high = over.percentiles(resampled / resampled[:, :1])
    ends = over.percentiles(half_life(resampled))
    return Persistence(
        policy=pairs.arm.policy,
        what=what,
        left=tuple(Estimate(*map(float, interval)) for interval in zip(shares, low, high, strict=True)),
        first=over.estimate(values[:, 0]),
        half_life=Estimate(float(half_life(mean[None])[0]), float(ends[0]), float(ends[1])),
        episodes=len(values),
    )
