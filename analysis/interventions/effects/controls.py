"""Controls, and what is said of a result beside them: an effect, no more than controls, equivalent, or undecided."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from activation_store.interventions import AT_ONCE, ArmKind
from analysis.interventions.effects.inference import (
    SAME,
    Condition,
    OverEpisodes,
    detectable,
    excludes_zero,
    from_one_more,
)
from analysis.interventions.effects.outcomes import KL_IN_PLAY, equivalence_p
from analysis.interventions.effects.pairs import Pairs
from analysis.statistics.inference import LEVEL, false_discovery
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
    """An edit compared with one kind of control at the same dose, in one outcome."""

    control: str  # one of `CONTROLS`
    arms: tuple[str, ...]  # names of the control arms; their mean is the control
    effect: Estimate  # of the control itself, the mean of all arms
    difference: Estimate
    """Effect of the edit minus that of the control. Of random directions its interval, and all below, hold the variance
    between directions (`from_one_more`); of others, and if all directions do the same, that over episodes."""
    p: float  # of no difference, two-sided, by Student's t; NaN if the variance is unknown, as with a single direction
    error: float  # standard error of the difference
    freedom: int
    as_large: int | None
    """Of random directions: how many have at least as large an effect, whatever its sign; else None."""

    @property
    def drawn(self) -> bool:
        """Whether the arms are draws from a distribution of directions."""
        return self.control in DRAWN_DIRECTIONS


def edits(everything: Sequence[Pairs]) -> list[Pairs]:
    """Return the arms that are studied: edits of the trained policy."""
    return [pairs for pairs in everything if pairs.arm.is_studied]


def controls_of(edit: Pairs, everything: Sequence[Pairs], at_once: str | None = None) -> dict[str, list[Pairs]]:
    """Return the control arms of an edit by kind: those with the same dose and direction.

    A kind that was not played is empty; random donors and directions of the same variance, which not all edits can
    have, are then no kind at all.
    Arms that do exactly the same are one draw, and count once.

    Args:
        at_once: name of an outcome, if controls that were measured only at once and have it are to take the place of
            those of their kind that were played: there are more of them, and they edit the states of the edit's arm.
    """
    matching = [pairs for pairs in everything if pairs.arm.matches(edit.arm)]
    trained = [pairs for pairs in matching if pairs.arm.policy == "trained"]

    def of_kind(kind: ArmKind) -> list[Pairs]:
        measured = [pairs for pairs in trained if at_once and pairs.arm.kind == AT_ONCE.get(kind)]
        if at_once and any(np.isfinite(pairs.values[at_once]).any() for pairs in measured):
            return _different(measured)
        return _different([pairs for pairs in trained if pairs.arm.kind == kind])

    controls = {
        RANDOM: of_kind("random direction"),
        SAME_VARIANCE: of_kind("same variance"),
        RANDOM_DONOR: of_kind("random donor"),
        UNTRAINED: [pairs for pairs in matching if pairs.arm.policy == "untrained" and pairs.arm.kind == "edit"],
    }
    return {kind: arms for kind, arms in controls.items() if arms or kind not in (RANDOM_DONOR, SAME_VARIANCE)}


def _different(arms: list[Pairs]) -> list[Pairs]:
    """Leave out arms whose edit changes all distributions over actions exactly as that of an earlier one.

    Versions before 26 November 2026 drew all controls of the same variance alike where states vary more along the
    edited direction than along all that are uncorrelated with it.
    """
    kept: dict[bytes | int, Pairs] = {}
    for place, arm in enumerate(arms):
        changes = arm.values.get(KL_IN_PLAY, np.zeros(0))
        kept.setdefault(changes.tobytes() if np.nansum(np.abs(changes)) > 0 else place, arm)
    return list(kept.values())


def compare(
    edit: Pairs, controls: dict[str, list[Pairs]], per_episode: PerEpisode, over: OverEpisodes
) -> tuple[Against, ...]:
    """Compare an edit with each kind of control; kinds without a number in any episode of the edit are left out."""
    effect = per_episode(edit)
    compared = []
    for control, of_kind in controls.items():
        if not of_kind:
            continue
        theirs = np.stack([on_episodes_of(edit, arm, per_episode(arm)) for arm in of_kind])  # (arms, E)
        if np.isfinite(effect + theirs.sum(axis=0)).any():
            compared.append(against(control, [arm.arm.name for arm in of_kind], effect, theirs, over))
    return tuple(compared)


def against(control: str, names: Sequence[str], effect: np.ndarray, theirs: np.ndarray, over: OverEpisodes) -> Against:
    """Compare an edit with the arms of one kind of control.

    Args:
        effect: of the edit in each episode, (E,).
        theirs: of the arms, (arms, E); episodes that are NaN anywhere are left out of the difference.
    """
    mean = theirs.mean(axis=0)
    known = np.isfinite(effect + mean)
    draws = theirs[:, known].mean(axis=1)  # (arms,)
    if control in DRAWN_DIRECTIONS:
        edit = float(effect[known].mean())
        difference, p, error = from_one_more(edit, draws, over.settings.confidence)
        if not error.known and len(draws) > 1:  # all do the same, such as nothing: no spread but of episodes
            difference, p, error = over.difference(effect - mean)
        as_large = int((np.abs(draws) >= abs(edit) * (1 - SAME)).sum())
    else:
        (difference, p, error), as_large = over.difference(effect - mean), None
    return Against(control, tuple(names), over.estimate(mean), difference, p, error.error, error.freedom, as_large)


def on_episodes_of(edit: Pairs, arm: Pairs, values: np.ndarray) -> np.ndarray:
    """Return an arm's numbers, (its episodes,), in the episodes of an edit, (E,); NaN where it did not play one."""
    places = np.searchsorted(arm.episodes, edit.episodes).clip(max=len(arm.episodes) - 1)
    return np.where(arm.episodes[places] == edit.episodes, values[places], np.nan)


Verdict = Literal[
    "effect", "no more than controls", "equivalent to none", "undecided", "no controls", "pairing is broken"
]
"""effect: beyond chance, and beyond every kind of control that was played. no more than controls: beyond chance, but
not shown to be beyond some kind of control. equivalent to none: shown to be smaller than the margin that was given.
undecided: none of these; an effect as large as the detectable one would probably have been found. no controls: beyond
chance, but no random directions were played to compare it with, or a single one."""


@dataclass(frozen=True, kw_only=True)
class Judged(ABC):
    """What every result of an edit that is tested and judged beside its controls has; subclasses say of what."""

    p: float  # two-sided, of no effect
    error: float  # standard error over episodes; NaN if it is unknown
    freedom: int
    smallest_p: float  # that the test could have
    against: tuple[Against, ...]
    margin: float = np.nan  # effects smaller than this do not matter; NaN if none was given
    q: float = np.nan  # of no effect, corrected for all results of this kind in the run (Benjamini and Hochberg 1995)
    beyond_q: float = np.nan
    """Of no effect, or no more than that of some kind of control: the largest p of all these tests, which an effect
    must pass (Berger 1982, Technometrics 24, 295-300), corrected likewise; NaN without controls."""
    equivalence_q: float = np.nan  # of an effect at least as large as the margin, corrected likewise
    detectable: float = np.nan
    """Size of effect that would be called one in 80% of runs like this; infinite if none could be."""
    verdict: Verdict = "undecided"
    arm: str
    dose: float | None

    @property
    @abstractmethod
    def measured(self) -> Estimate:
        """What is tested against 0."""

    @property
    def opposed(self) -> bool:
        """Whether something else about the result contradicts an effect of this sign."""
        return False

    @property
    def words(self) -> str:
        """The verdict in words, with the margin where it is about one."""
        return f"{self.verdict} within {self.margin:g}" if self.verdict == "equivalent to none" else self.verdict

    @property
    def can_be_compared(self) -> bool:
        """Whether random directions were played, and the spread of every kind of control is known."""
        return any(control.drawn for control in self.against) and all(
            np.isfinite(control.p) for control in self.against
        )


Result = TypeVar("Result", bound=Judged)


def judged(results: Sequence[Result], pairing_works: bool) -> list[Result]:
    """Correct the p-values of all results of a kind together, and judge each; without pairing none can be trusted."""
    q = false_discovery(np.array([result.p for result in results]))
    largest = [np.max([result.p, *(control.p for control in result.against)]) for result in results]
    comparable = [result.can_be_compared for result in results]
    beyond = false_discovery(np.where(comparable, largest, np.nan))
    sizes = [detectable_effect(result, tests_of(results)) for result in results]
    return concluded(results, q, beyond, sizes, pairing_works)


def concluded(
    results: Sequence[Result], q: np.ndarray, beyond_q: np.ndarray, sizes: Sequence[float], pairing_works: bool
) -> list[Result]:
    """Judge results whose q-values, (N,) each, and detectable effects are known, infinite without controls."""
    p_equivalent = [
        equivalence_p(result.measured.value, result.error, result.freedom, result.margin) for result in results
    ]
    equivalent = false_discovery(np.array(p_equivalent))
    done = [
        replace(
            result,
            q=float(one),
            beyond_q=float(beyond),
            equivalence_q=float(same),
            detectable=float(size) if result.can_be_compared or np.isnan(size) else np.inf,
        )
        for result, one, beyond, same, size in zip(results, q, beyond_q, equivalent, sizes, strict=True)
    ]
    return [replace(result, verdict=_verdict(result) if pairing_works else "pairing is broken") for result in done]


def tests_of(results: Sequence[Judged]) -> int:
    """Return how many of the results were tested, and are corrected together."""
    return int(np.isfinite([result.p for result in results]).sum())


def detectable_effect(result: Judged, tests: int) -> float:
    """Return the effect that would be found beyond chance and beyond controls in 80% of runs like this one."""
    conditions = [Condition(result.error, result.freedom), *(Condition(of.error, of.freedom) for of in result.against)]
    return detectable(conditions, tests, result.smallest_p) if conditions[0].known else np.nan


def _verdict(result: Judged) -> Verdict:
    sign = np.sign(result.measured.value)
    beyond_chance = result.q <= LEVEL and excludes_zero(result.measured) and not result.opposed
    same_way = all(np.sign(control.difference.value) == sign for control in result.against)
    if beyond_chance and same_way and result.beyond_q <= LEVEL:
        return "effect"
    if result.equivalence_q <= LEVEL:
        return "equivalent to none"
    if beyond_chance:
        return "no more than controls" if result.can_be_compared else "no controls"
    return "undecided"
