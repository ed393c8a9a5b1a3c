"""Controls: the same edit in random directions, along ones of the same variance, from any donor, or untrained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from analysis.interventions.over_episodes import OverEpisodes, excludes_zero
from analysis.interventions.pairs import Pairs
from analysis.statistics.inference import LEVEL, false_discovery
from analysis.statistics.resampling import Estimate

RANDOM, SAME_VARIANCE, UNTRAINED = "random directions", "same variance", "untrained policy"
RANDOM_DONOR = "random donors"
CONTROLS = (RANDOM, SAME_VARIANCE, RANDOM_DONOR, UNTRAINED)

Verdict = Literal["effect", "no more than controls", "no controls", "not found", "pairing is broken"]
PerEpisode = Callable[[Pairs], np.ndarray]
"""Returns a number for each episode of an arm, (E,); NaN where there is none."""


@dataclass(frozen=True)
class Against:
    """An edit compared with one kind of control at the same dose, in one outcome.

    Attributes:
        control: one of `CONTROLS`.
        arms: names of the control arms; their mean is the control.
        effect: of the control itself.
        difference: effect of the edit minus that of the control, paired by episode.
        p: of that difference, by flipping the signs of episodes.
    """

    control: str
    arms: tuple[str, ...]
    effect: Estimate
    difference: Estimate
    p: float

    def agrees(self, sign: float) -> bool:
        """Return whether the edit differs from the control for sure, in the direction of `sign`."""
        return excludes_zero(self.difference) and np.sign(self.difference.value) == sign


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What every result that is tested and judged beside its controls has; subclasses say of what.

    Attributes:
        p: two-sided, of no effect.
        q: corrected for all results of this kind in the run (Benjamini and Hochberg 1995).
        against: each kind of control.
        verdict: see `verdict`.
    """

    p: float
    q: float
    against: tuple[Against, ...]
    verdict: Verdict


Result = TypeVar("Result", bound=Judged)


def judged(found: Sequence[Result], judge: Callable[[Result], Verdict], pairing_works: bool) -> list[Result]:
    """Correct the p-values of all results of a kind together, and judge each.

    Args:
        found: the results, whose q and verdict are replaced.
        judge: gives the verdict of one whose q is known.
        pairing_works: whether arms that edit nothing equal their twins; otherwise no result can be trusted.
    """
    corrected = false_discovery(np.array([each.p for each in found]))
    with_q = [replace(each, q=float(q)) for each, q in zip(found, corrected, strict=True)]
    return [replace(each, verdict=judge(each) if pairing_works else "pairing is broken") for each in with_q]


def edits(everything: Sequence[Pairs]) -> list[Pairs]:
    """Return the arms that are studied: edits of the trained policy."""
    return [pairs for pairs in everything if pairs.arm.kind == "edit" and pairs.arm.policy == "trained"]


def controls_of(edit: Pairs, everything: Sequence[Pairs]) -> dict[str, list[Pairs]]:
    """Return the control arms of an edit by kind: those with the same dose and direction.

    A kind that was not played is empty; random donors, which only transplants can have, are then no kind at all.
    """
    matching = [pairs for pairs in everything if pairs.arm.matches(edit.arm)]
    trained = [pairs for pairs in matching if pairs.arm.policy == "trained"]
    found = {
        RANDOM: [pairs for pairs in trained if pairs.arm.kind == "random direction"],
        SAME_VARIANCE: [pairs for pairs in trained if pairs.arm.kind == "same variance"],
        RANDOM_DONOR: [pairs for pairs in trained if pairs.arm.kind == "random donor"],
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
        theirs = mean_over_arms([on_episodes_of(edit, arm, per_episode(arm)) for arm in arms])
        if theirs is None or not np.isfinite(effect - theirs).any():
            continue
        difference = effect - theirs
        names = tuple(arm.arm.name for arm in arms)
        found.append(
            Against(control, names, over.estimate(theirs), over.estimate(difference), over.sign_flip_p(difference))
        )
    return tuple(found)


def verdict(q: float, effect: Estimate, against: Sequence[Against]) -> Verdict:
    """Judge an effect: it counts only beyond chance, and only beyond every kind of control that was played.

    not found: q is above `LEVEL`, or the interval of the effect includes 0. no controls: it would be found, but nothing
    was played to compare it with. no more than controls: the interval of the difference to some kind of control
    includes 0 or lies on the other side of it.
    """
    if not q <= LEVEL or not excludes_zero(effect):
        return "not found"
    if not against:
        return "no controls"
    return "effect" if all(each.agrees(np.sign(effect.value)) for each in against) else "no more than controls"


def on_episodes_of(edit: Pairs, arm: Pairs, values: np.ndarray) -> np.ndarray:
    """Return an arm's numbers, (its episodes,), in the episodes of an edit, (E,); NaN where it did not play one."""
    places = np.searchsorted(arm.episodes, edit.episodes).clip(max=len(arm.episodes) - 1)
    return np.where(arm.episodes[places] == edit.episodes, values[places], np.nan)


def mean_over_arms(values: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the mean over control arms in each episode, (E,) each; NaN where one has no number. None without arms."""
    return np.mean(values, axis=0) if values else None
