"""How effects depend on the dose: slopes over doses, beside those of random directions at the same doses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from analysis.interventions.at_once import level_per_episode
from analysis.interventions.controls import RANDOM, PerEpisode, controls_of, edits, mean_over_arms, on_episodes_of
from analysis.interventions.effects import effect_per_episode
from analysis.interventions.over_episodes import OverEpisodes, excludes_zero
from analysis.interventions.pairs import Pairs
from analysis.interventions.randomisation import Test, randomisation_test
from analysis.statistics.inference import LEVEL, false_discovery
from analysis.statistics.resampling import Estimate

Shape = Literal["rises with every dose", "falls with every dose", "rises and falls", "no clear shape"]
_FEWEST_DOSES = 2


@dataclass(frozen=True)
class DoseResponse:
    """One outcome as a function of the dose.

    Attributes:
        outcome: which.
        at_once: whether it is an outcome at once; otherwise it is an effect on behaviour.
        doses: ascending.
        effects: at each dose.
        random: the same of random directions at the doses at which they were played, NaN elsewhere; empty without any.
        slope: mean over episodes of the least squares slope, per unit of dose.
        test: how `p` was found.
        p: two-sided, of no slope; NaN if nothing changes with the dose.
        q: corrected for all slopes of the run, separately at once and in behaviour.
        random_slope: the same slope of random directions, over the same doses; NaN unless they were played at all.
        slope_difference: slope of the edit minus that of random directions, paired by episode.
        shape: whether the effects are monotone in the dose; see `_shape`.
    """

    outcome: str
    at_once: bool
    doses: tuple[float, ...]
    effects: tuple[Estimate, ...]
    random: tuple[Estimate, ...]
    slope: Estimate
    test: Test
    p: float
    q: float
    random_slope: Estimate
    slope_difference: Estimate
    shape: Shape

    @property
    def found(self) -> bool:
        """Whether the slope survives correction, and its interval excludes 0."""
        return self.q <= LEVEL and excludes_zero(self.slope)

    @property
    def beyond_random(self) -> bool:
        """Whether the slope exceeds that of random directions for sure; True if they were not played."""
        same_way = np.sign(self.slope_difference.value) == np.sign(self.slope.value)
        return not self.random or bool(excludes_zero(self.slope_difference) and same_way)


def dose_responses(
    everything: Sequence[Pairs], in_behaviour: Sequence[str], at_once: Sequence[str], over: OverEpisodes
) -> list[DoseResponse]:
    """Measure how each outcome depends on the dose; empty with fewer than two doses."""
    series = sorted(
        (edit for edit in edits(everything) if edit.arm.dose is not None), key=lambda edit: edit.arm.dose or 0.0
    )
    if len(series) < _FEWEST_DOSES:
        return []
    found = []
    for names, per_episode, flag in ((in_behaviour, effect_per_episode, False), (at_once, level_per_episode, True)):
        p_values = np.full(len(names), np.nan) if flag else _randomisation_p(series, names, over)
        family = [
            _response(series, everything, name, per_episode(name), flag, float(p), over)
            for name, p in zip(names, p_values, strict=True)
        ]
        corrected = false_discovery(np.array([each.p for each in family]))
        found += [replace(each, q=float(q)) for each, q in zip(family, corrected, strict=True)]
    return found


def _response(
    series: Sequence[Pairs],
    everything: Sequence[Pairs],
    outcome: str,
    per_episode: PerEpisode,
    at_once: bool,
    p: float,
    over: OverEpisodes,
) -> DoseResponse:
    doses = np.array([edit.arm.dose for edit in series], dtype=np.float64)  # (D,)
    values = np.stack([on_episodes_of(series[0], edit, per_episode(edit)) for edit in series], axis=1)  # (E, D)
    random = np.full(values.shape, np.nan)
    for place, edit in enumerate(series):
        arms = controls_of(edit, everything)[RANDOM]
        theirs = mean_over_arms([on_episodes_of(series[0], arm, per_episode(arm)) for arm in arms])
        if theirs is not None:
            random[:, place] = theirs
    slopes, random_slopes = _slopes(doses, values), _slopes(doses, random)
    test: Test = "randomisation over who was edited"
    if not np.isfinite(p):
        test, p = "sign flips over episodes", over.sign_flip_p(slopes)
    return DoseResponse(
        outcome=outcome,
        at_once=at_once,
        doses=tuple(doses.tolist()),
        effects=tuple(over.estimate(column) for column in values.T),
        random=tuple(over.estimate(column) for column in random.T) if np.isfinite(random).any() else (),
        slope=over.estimate(slopes),
        test=test if np.isfinite(p) else "none",
        p=p,
        q=np.nan,
        random_slope=over.estimate(random_slopes),
        slope_difference=over.estimate(slopes - random_slopes),
        shape=_shape(values, over),
    )


def _randomisation_p(series: Sequence[Pairs], outcomes: Sequence[str], over: OverEpisodes) -> np.ndarray:
    """Return p-values of slopes over doses by redrawing who was edited, (O,); NaN where everyone was, or no one varies.

    Each life has a slope of its own, since the same agents of the same episodes live at every dose.
    """
    first = series[0]
    if any(edit.arm.twin != first.arm.twin for edit in series):
        return np.full(len(outcomes), np.nan)
    doses = np.array([edit.arm.dose for edit in series], dtype=np.float64)
    differences = np.stack([edit.differences(outcomes) for edit in series], axis=2)  # (L, O, D)
    return randomisation_test(first, _slopes(doses, differences), over.settings)[1]


def _slopes(doses: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the least squares slope over doses, (D,) and (..., D) -> (...); NaN where a value is missing."""
    centred = doses - doses.mean()
    return values @ centred / (centred @ centred)


def _shape(values: np.ndarray, over: OverEpisodes) -> Shape:
    """Say whether mean effects rise or fall with every dose, (E, D).

    They rise and fall if the interval of one step between neighbouring doses lies above 0 and that of another below 0.
    """
    steps = [over.estimate(step) for step in np.diff(values, axis=1).T]
    if all(step.value > 0 for step in steps):
        return "rises with every dose"
    if all(step.value < 0 for step in steps):
        return "falls with every dose"
    sure = {np.sign(step.value) for step in steps if excludes_zero(step)}
    return "rises and falls" if sure == {-1.0, 1.0} else "no clear shape"
