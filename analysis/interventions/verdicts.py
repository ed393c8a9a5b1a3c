"""What is said of a result: an effect, no more than controls, equivalent to none, or undecided."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from analysis.interventions.controls import Against
from analysis.interventions.detectable import Condition, detectable
from analysis.interventions.equivalence import equivalence_p
from analysis.interventions.over_episodes import excludes_zero
from analysis.statistics.inference import LEVEL, false_discovery
from analysis.statistics.resampling import Estimate

Verdict = Literal[
    "effect", "no more than controls", "equivalent to none", "undecided", "no controls", "pairing is broken"
]
"""effect: beyond chance, and beyond every kind of control that was played. no more than controls: beyond chance, but
not shown to be beyond some kind of control. equivalent to none: shown to be smaller than the margin that was given.
undecided: none of these; an effect as large as the detectable one would probably have been found. no controls: beyond
chance, but no random directions were played to compare it with, or a single one."""


@dataclass(frozen=True, kw_only=True)
class Judged(ABC):
    """What every result that is tested and judged beside its controls has; subclasses say of what.

    Attributes:
        p: two-sided, of no effect.
        error: standard error over episodes; NaN if it is unknown.
        freedom: its degrees of freedom.
        smallest_p: that the test could have.
        against: each kind of control.
        margin: effects smaller than this do not matter; NaN if none was given.
        q: of no effect, corrected for all results of this kind in the run (Benjamini and Hochberg 1995).
        beyond_q: of no effect, or no more than that of some kind of control: the largest p of all these tests, which
            an effect must pass (Berger 1982, Technometrics 24, 295-300), corrected likewise; NaN without controls.
        equivalence_q: of an effect at least as large as the margin, corrected likewise.
        detectable: size of effect that would be called one in 80% of runs like this; infinite if none could be.
        verdict: see `Verdict`.
    """

    p: float
    error: float
    freedom: int
    smallest_p: float
    against: tuple[Against, ...]
    margin: float = np.nan
    q: float = np.nan
    beyond_q: float = np.nan
    equivalence_q: float = np.nan
    detectable: float = np.nan
    verdict: Verdict = "undecided"

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
        return any(each.drawn for each in self.against) and all(np.isfinite(each.p) for each in self.against)

    @property
    def beyond_p(self) -> float:
        """The largest p of no effect and of no difference to each kind of control; NaN if that is unknown."""
        return float(np.max([self.p, *(each.p for each in self.against)])) if self.can_be_compared else np.nan


Result = TypeVar("Result", bound=Judged)


def judged(found: Sequence[Result], pairing_works: bool) -> list[Result]:
    """Correct the p-values of all results of a kind together, and judge each.

    Args:
        found: the results, whose q-values, detectable effect and verdict are replaced.
        pairing_works: whether arms that edit nothing equal their twins; otherwise no result can be trusted.
    """
    q, beyond = (false_discovery(np.array(p)) for p in ([each.p for each in found], [each.beyond_p for each in found]))
    return concluded(found, q, beyond, [detectable_effect(each, tests_of(found)) for each in found], pairing_works)


def concluded(
    found: Sequence[Result], q: np.ndarray, beyond_q: np.ndarray, sizes: Sequence[float], pairing_works: bool
) -> list[Result]:
    """Judge results whose q-values, (N,) each, and detectable effects are known, infinite without controls."""
    p_equivalent = [equivalence_p(each.measured.value, each.error, each.freedom, each.margin) for each in found]
    equivalent = false_discovery(np.array(p_equivalent))
    done = [
        replace(
            each,
            q=float(one),
            beyond_q=float(beyond),
            equivalence_q=float(same),
            detectable=float(size) if each.can_be_compared or np.isnan(size) else np.inf,
        )
        for each, one, beyond, same, size in zip(found, q, beyond_q, equivalent, sizes, strict=True)
    ]
    return [replace(each, verdict=_verdict(each) if pairing_works else "pairing is broken") for each in done]


def tests_of(found: Sequence[Judged]) -> int:
    """Return how many of the results were tested, and are corrected together."""
    return int(np.isfinite([each.p for each in found]).sum())


def detectable_effect(each: Judged, tests: int) -> float:
    """Return the effect that would be found beyond chance and beyond controls in 80% of runs like this one."""
    conditions = [Condition(each.error, each.freedom), *(Condition(of.error, of.freedom) for of in each.against)]
    return detectable(conditions, tests, each.smallest_p) if conditions[0].known else np.nan


def _verdict(each: Judged) -> Verdict:
    sign = np.sign(each.measured.value)
    beyond_chance = each.q <= LEVEL and excludes_zero(each.measured) and not each.opposed
    same_way = all(np.sign(control.difference.value) == sign for control in each.against)
    if beyond_chance and same_way and each.beyond_q <= LEVEL:
        return "effect"
    if each.equivalence_q <= LEVEL:
        return "equivalent to none"
    if beyond_chance:
        return "no more than controls" if each.can_be_compared else "no controls"
    return "undecided"
