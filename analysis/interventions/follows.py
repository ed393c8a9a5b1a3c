"""Interchange accuracy: how often the probability of an option moves to the side on which a donor's value lies."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.interventions import LivesTable
from analysis.interventions.controls import (
    Judged,
    PerEpisode,
    compare,
    controls_of,
    edits,
    judged,
    verdict,
)
from analysis.interventions.outcomes import FOLLOWS_SIDES
from analysis.interventions.over_episodes import OverEpisodes
from analysis.interventions.pairs import Pairs
from analysis.statistics.resampling import Estimate

_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Follows(Judged):
    """How often one option of one edit follows the variable by which donors are drawn.

    Attributes:
        arm, dose: which edit.
        feature: the variable.
        option: head and option, separated by a slash.
        effect: mean over episodes of the share of edited ticks in which the option follows, minus 0.5, which is
            expected if the variable does not matter. Ticks with higher and with lower donors count half each.
        episodes: with a value; it takes lives with higher and lives with lower donors.
        lives: edited lives with a share.
        p: two-sided, of no effect, by flipping the signs of episodes.
        q: corrected for all options, variables and edits of the run (Benjamini and Hochberg 1995).
        against: each kind of control.
        verdict: see `controls.verdict`.
    """

    arm: str
    dose: float | None
    feature: str
    option: str
    effect: Estimate
    episodes: int
    lives: int


def options_that_follow(
    table: LivesTable, everything: Sequence[Pairs], over: OverEpisodes, pairing_works: bool
) -> list[Follows]:
    """Measure and test every option that has shares on both sides, of every edit of the trained policy."""
    low, high = (
        {name.removeprefix(side) for name in table.outcomes if name.startswith(side)} for side in FOLLOWS_SIDES
    )
    found = [_follows(edit, everything, name, over) for edit in edits(everything) for name in sorted(low & high)]
    found = [each for each in found if each.episodes]
    return judged(found, lambda each: verdict(each.q, each.effect, each.against), pairing_works)


def _follows(edit: Pairs, everything: Sequence[Pairs], name: str, over: OverEpisodes) -> Follows:
    per_episode = _above_half(name)
    values = per_episode(edit)
    controls = controls_of(edit, everything)
    feature, _, option = name.partition("/")
    with_share = np.any([np.isfinite(edit.values[side + name]) for side in FOLLOWS_SIDES], axis=0)
    return Follows(
        arm=edit.arm.name,
        dose=edit.arm.dose,
        feature=feature,
        option=option,
        effect=over.estimate(values),
        episodes=int(np.isfinite(values).sum()),
        lives=int((with_share & edit.edited).sum()),
        p=over.sign_flip_p(values),
        q=np.nan,
        against=compare(edit, controls, per_episode, over),
        verdict="not found",
    )


def _above_half(name: str) -> PerEpisode:
    """Return the function that gives an arm's share above one half in each episode."""

    def per_episode(pairs: Pairs) -> np.ndarray:
        sides = [pairs.episode_means(pairs.values[side + name], pairs.edited) for side in FOLLOWS_SIDES]
        return np.mean(sides, axis=0) - _HALF

    return per_episode
