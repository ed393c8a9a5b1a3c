"""What an edit does at once, in the tick in which it is made: no twin is needed, and chance plays no part.

Changes are compared with what the agent would do if nobody had ever edited it (in total), and with what it would do
without the edit of this tick alone (in play).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.interventions.controls import Against, PerEpisode, compare, controls_of, edits
from analysis.interventions.over_episodes import OverEpisodes
from analysis.interventions.pairs import Pairs
from analysis.statistics.resampling import Estimate


@dataclass(frozen=True)
class AtOnce:
    """One outcome at once of one edit.

    Attributes:
        arm, dose, outcome: which.
        level: mean over episodes of the mean over edited lives.
        episodes: with a value.
        lives: edited lives with a value.
        left_out: edited lives without one.
        against: each kind of control. With K random directions, its rank among them is a test of its own:
            p = (1 + as_large) / (1 + K), exact if the direction is drawn like them (Phipson and Smyth 2010).
    """

    arm: str
    dose: float | None
    outcome: str
    level: Estimate
    episodes: int
    lives: int
    left_out: int
    against: tuple[Against, ...]


def outcomes_at_once(everything: Sequence[Pairs], outcomes: Sequence[str], over: OverEpisodes) -> list[AtOnce]:
    """Measure every edit of the trained policy in every outcome at once."""
    return [
        _at_once(edit, outcome, controls_of(edit, everything, at_once=outcome), over)
        for edit in edits(everything)
        for outcome in outcomes
    ]


def level_per_episode(outcome: str) -> PerEpisode:
    """Return the function that gives the mean over an arm's edited agents, for each episode."""
    return lambda pairs: pairs.episode_means(pairs.values[outcome], pairs.edited)


def _at_once(edit: Pairs, outcome: str, controls: dict[str, list[Pairs]], over: OverEpisodes) -> AtOnce:
    per_episode = level_per_episode(outcome)
    values, known = per_episode(edit), np.isfinite(edit.values[outcome][edit.edited])
    return AtOnce(
        arm=edit.arm.name,
        dose=edit.arm.dose,
        outcome=outcome,
        level=over.estimate(values),
        episodes=int(np.isfinite(values).sum()),
        lives=int(known.sum()),
        left_out=int((~known).sum()),
        against=compare(edit, controls, per_episode, over),
    )
