"""Controls: the same edit in random directions, along ones of the same variance, from any donor, or untrained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.interventions import AT_ONCE, ArmKind
from analysis.interventions.exchangeable import at_least_as_large, from_one_more
from analysis.interventions.over_episodes import OverEpisodes
from analysis.interventions.pairs import Pairs
from analysis.statistics.resampling import Estimate

RANDOM, SAME_VARIANCE, UNTRAINED = "random directions", "same variance", "untrained policy"
RANDOM_DONOR = "random donors"
CONTROLS = (RANDOM, SAME_VARIANCE, RANDOM_DONOR, UNTRAINED)
DRAWN_DIRECTIONS = (RANDOM, SAME_VARIANCE)
"""Kinds of which each arm is a draw from a distribution of directions. Arms with random donors draw anew in every tick,
so the episodes vary between them, not the arms; and there is one untrained policy, which says nothing of others."""

PerEpisode = Callable[[Pairs], np.ndarray]
"""Returns a number for each episode of an arm, (E,); NaN where there is none."""


@dataclass(frozen=True)
class Against:
    """An edit compared with one kind of control at the same dose, in one outcome.

    Attributes:
        control: one of `CONTROLS`.
        arms: names of the control arms; their mean is the control.
        effect: of the control itself, the mean of all arms.
        difference: effect of the edit minus that of the control. Of random directions its interval, and all below,
            hold the variance between directions (`from_one_more`); of others, and if all directions do the
            same, that over episodes.
        p: of no difference, two-sided, by Student's t; NaN if the variance is unknown, as with a single direction.
        error: standard error of the difference.
        freedom: its degrees of freedom.
        as_large: of random directions: how many have at least as large an effect, whatever its sign; else None.
    """

    control: str
    arms: tuple[str, ...]
    effect: Estimate
    difference: Estimate
    p: float
    error: float
    freedom: int
    as_large: int | None

    @property
    def drawn(self) -> bool:
        """Whether the arms are draws from a distribution of directions."""
        return self.control in DRAWN_DIRECTIONS


def edits(everything: Sequence[Pairs]) -> list[Pairs]:
    """Return the arms that are studied: edits of the trained policy."""
    return [pairs for pairs in everything if pairs.arm.kind == "edit" and pairs.arm.policy == "trained"]


def controls_of(edit: Pairs, everything: Sequence[Pairs], at_once: str | None = None) -> dict[str, list[Pairs]]:
    """Return the control arms of an edit by kind: those with the same dose and direction.

    A kind that was not played is empty; random donors, which only transplants can have, are then no kind at all.

    Args:
        edit: the edit.
        everything: all arms.
        at_once: name of an outcome, if controls that were measured only at once and have it are to take the place of
            those of their kind that were played: there are more of them, and they edit the states of the edit's arm.
    """
    matching = [pairs for pairs in everything if pairs.arm.matches(edit.arm)]
    trained = [pairs for pairs in matching if pairs.arm.policy == "trained"]

    def of_kind(kind: ArmKind) -> list[Pairs]:
        measured = [pairs for pairs in trained if at_once and pairs.arm.kind == kind + AT_ONCE]
        if at_once and any(np.isfinite(pairs.values[at_once]).any() for pairs in measured):
            return measured
        return [pairs for pairs in trained if pairs.arm.kind == kind]

    found = {
        RANDOM: of_kind("random direction"),
        SAME_VARIANCE: of_kind("same variance"),
        RANDOM_DONOR: of_kind("random donor"),
        UNTRAINED: [pairs for pairs in matching if pairs.arm.policy == "untrained" and pairs.arm.kind == "edit"],
    }
    return {kind: arms for kind, arms in found.items() if arms or kind != RANDOM_DONOR}


def compare(
    edit: Pairs, controls: dict[str, list[Pairs]], per_episode: PerEpisode, over: OverEpisodes
) -> tuple[Against, ...]:
    """Compare an edit with each kind of control; kinds without a number in any episode of the edit are left out."""
    effect = per_episode(edit)
    found = []
    for control, arms in controls.items():
        if not arms:
            continue
        theirs = np.stack([on_episodes_of(edit, arm, per_episode(arm)) for arm in arms])  # (arms, E)
        if np.isfinite(effect + theirs.sum(axis=0)).any():
            found.append(against(control, [arm.arm.name for arm in arms], effect, theirs, over))
    return tuple(found)


def against(control: str, names: Sequence[str], effect: np.ndarray, theirs: np.ndarray, over: OverEpisodes) -> Against:
    """Compare an edit with the arms of one kind of control.

    Args:
        control: the kind.
        names: of the arms.
        effect: of the edit in each episode, (E,).
        theirs: of the arms, (arms, E); episodes that are NaN anywhere are left out of the difference.
        over: estimates over episodes.
    """
    mean = theirs.mean(axis=0)
    known = np.isfinite(effect + mean)
    draws = theirs[:, known].mean(axis=1)  # (arms,)
    if control in DRAWN_DIRECTIONS:
        edit = float(effect[known].mean())
        difference = from_one_more(edit, draws, over.settings.confidence)
        if not difference.freedom and len(draws) > 1:  # all do the same, such as nothing: no spread but of episodes
            difference = over.difference(effect - mean)
        as_large = at_least_as_large(edit, draws)
    else:
        difference, as_large = over.difference(effect - mean), None
    return Against(
        control, tuple(names), over.estimate(mean), difference.estimate, difference.p, difference.error,
        difference.freedom, as_large,
    )  # fmt: skip


def on_episodes_of(edit: Pairs, arm: Pairs, values: np.ndarray) -> np.ndarray:
    """Return an arm's numbers, (its episodes,), in the episodes of an edit, (E,); NaN where it did not play one."""
    places = np.searchsorted(arm.episodes, edit.episodes).clip(max=len(arm.episodes) - 1)
    return np.where(arm.episodes[places] == edit.episodes, values[places], np.nan)
