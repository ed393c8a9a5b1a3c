"""What a run will be able to find, said before it is played."""

from collections.abc import Sequence

import numpy as np

from activation_store.interventions import Arm, ArmKind
from analysis.interventions.effects.inference import COUNTED_UP_TO, Condition, detectable
from analysis.statistics.inference import LEVEL

PAIRED_SPREAD = 240.0
"""Ticks lived by which lives of edited agents differ from the same in the twin, as a standard deviation: from how
effects of 66 edits of shipped policies vary over episodes (quartiles 170 to 320)."""

LIFE = 240.0
"""Ticks that agents of shipped policies live (220 to 245 on average): no edit can take more."""

OUTCOMES = 16
"""Outcomes in behaviour whose tests are corrected together, for each edit."""

_WANTED = (50, 25)
_MOST_EPISODES = 100_000


def planned_lines(arms: Sequence[Arm], episodes: int, drawn: int, agents: int) -> list[str]:
    """Say how large an effect on the ticks lived a run would find, and how many episodes would find a smaller one.

    It is the best case: random directions are taken not to differ in what they do.
    """
    edits = [arm for arm in arms if arm.is_studied]
    if not edits:
        return []
    draws = [draw for draw in _draws(arms, edits[0]) if draw]
    if not draws or 1 in draws:
        played = "one random arm is no control" if draws else "no random arm is played to compare with"
        return [f"CAN ONLY BE UNDECIDED: {played}; give --controls 5 or more"]
    tests = OUTCOMES * len(edits)
    lines = [
        f"what this can find: effects on the ticks lived from {_ticks(_size(episodes, drawn, draws, tests))} on, "
        f"in 80% of such runs, as lives of shipped policies vary; {_needed(drawn, draws, tests)}"
    ]
    if drawn == agents and episodes <= COUNTED_UP_TO and 2.0 ** (1 - episodes) * tests > LEVEL:
        lines.append(
            f"CAN ONLY BE UNDECIDED: with every agent edited, {episodes} episodes can be flipped in too few ways for "
            f"{tests} tests; {COUNTED_UP_TO + 1} are enough"
        )
    elif _size(episodes, drawn, draws, tests) > LIFE:
        lines.append(f"CAN ONLY BE UNDECIDED on the ticks lived: that is more than the {LIFE:.0f} ticks of a life")
    return lines


def episodes_needed(ticks: float, drawn: int, draws: Sequence[int], tests: int) -> int:
    """Return the fewest episodes that find an effect on the ticks lived in 80% of runs; arguments as in `_size`.

    A number above 100,000 says that it takes more than these.
    """
    high = 2
    while high < _MOST_EPISODES and _size(high, drawn, draws, tests) > ticks:
        high *= 2
    low = high // 2  # is too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _size(middle, drawn, draws, tests) <= ticks else (middle, high)
    return high


def _size(episodes: int, drawn: int, draws: Sequence[int], tests: int) -> float:
    """Return the detectable effect in ticks, given the number of arms of each kind of random directions."""
    error = PAIRED_SPREAD / np.sqrt(drawn * episodes)
    directions = [Condition(error * np.sqrt(1 + 1 / count), count - 1) for count in draws if count > 1]
    return detectable([Condition(error, episodes - 1), *directions], tests)


def _draws(arms: Sequence[Arm], edit: Arm) -> list[int]:
    """Return how many arms of each kind of random directions an edit is compared with."""
    kinds: tuple[ArmKind, ...] = ("random direction", "same variance")
    return [sum(arm.kind == kind and arm.matches(edit) for arm in arms) for kind in kinds]


def _needed(drawn: int, draws: Sequence[int], tests: int) -> str:
    counts = [(ticks, episodes_needed(ticks, drawn, draws, tests)) for ticks in _WANTED]
    return " and ".join(f"{ticks} ticks take {_episodes(needed)} episodes" for ticks, needed in counts)


def _episodes(needed: int) -> str:
    return f"about {needed:,}" if needed <= _MOST_EPISODES else f"more than {_MOST_EPISODES:,}"


def _ticks(size: float) -> str:
    return f"about {size:.0f}" if size < 1000 else "more than 1,000"
