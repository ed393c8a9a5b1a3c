"""How much decisions depend on the memory: in every behaviour, and early and late in life."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from representation.dynamics.memory_length import MemoryLength

WHOLE = "whole memory"
OBSERVATION = "observation"
PHASES = ("first third", "second third", "last third")
_FEWEST_LIVES = 5
_RESAMPLES = 500
_ENDS = (0.025, 0.975)


@dataclass(frozen=True)
class MemoryUse:
    """How much a group of decisions changes once something in the memory is another life's.

    Attributes:
        group: of decisions: all, a behaviour, or a third of them by the agent's age.
        decisions, lives: how many there are.
        first_tick, last_tick: of the ages of the group, in ticks of life from 0.
        replaced: the whole memory, or one observation.
        ticks_ago: of the observation; 0 for the whole memory.
        outcome: kl, of the distribution over actions, all heads, in nats; or value, the size of its change.
        value: mean over decisions.
        low, high: 95% interval over resampled lives; NaN with fewer than five lives.
    """

    group: str
    decisions: int
    lives: int
    first_tick: int
    last_tick: int
    replaced: str
    ticks_ago: int
    outcome: str
    value: float
    low: float
    high: float


def memory_use(length: MemoryLength, behaviour: np.ndarray, age: np.ndarray) -> list[MemoryUse]:
    """Average over all decisions, over those of each behaviour, and over thirds of them by age.

    Args:
        length: effects on n decisions.
        behaviour: of each decision, (n,).
        age: ticks that the agent has lived by then, (n,).
    """
    found = []
    for name, own in _groups(behaviour, age):
        lives = len(np.unique(length.life[own]))
        start = (name, int(own.sum()), lives, int(age[own].min()), int(age[own].max()))
        for number, outcome in enumerate(("kl", "value")):
            effects = length.divergence if outcome == "kl" else length.value
            columns = np.column_stack([length.whole[own, number], effects[own]])  # (n, 1 + L)
            low, high = _interval(columns, length.life[own])
            for place, ticks in enumerate([0, *length.ticks.tolist()]):
                replaced = OBSERVATION if ticks else WHOLE
                mean = float(columns[:, place].mean())
                found.append(MemoryUse(*start, replaced, ticks, outcome, mean, float(low[place]), float(high[place])))
    return found


def means_over_lives(values: np.ndarray, life: np.ndarray, resamples: int = _RESAMPLES) -> np.ndarray:
    """Return means of resampled lives, (resamples, columns), of values (n, columns)."""
    _, number = np.unique(life, return_inverse=True)
    count = np.bincount(number)
    sums = np.stack([np.bincount(number, column) for column in values.T], axis=1)  # (lives, columns)
    draws = np.random.default_rng(0).multinomial(len(count), np.full(len(count), 1 / len(count)), resamples)
    return (draws @ sums) / (draws @ count)[:, None]


def _groups(behaviour: np.ndarray, age: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and members, (n,) bool, of groups that have any."""
    yield "all", np.ones(len(age), bool)
    for number in np.unique(behaviour):
        yield f"behaviour {number}", behaviour == number
    third = np.searchsorted(np.quantile(age, [1 / 3, 2 / 3]), age)
    for number, name in enumerate(PHASES):
        if (third == number).any():
            yield name, third == number


def _interval(values: np.ndarray, life: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(np.unique(life)) < _FEWEST_LIVES:
        nothing = np.full(values.shape[1], np.nan)
        return nothing, nothing
    low, high = np.quantile(means_over_lives(values, life), _ENDS, axis=0)
    return low, high
