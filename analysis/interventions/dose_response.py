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
        p: of that slope, by flipping the signs of episodes.
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
    p: float
    q: float
    random_slope: Estimate
    slope_difference: Estimate
    shape: Shape

    @property
    def found(self) -> bool:
        """Whether the slope survives correction, and its interval excludes 0."""
        return self.q <= LEVEL and excludes_zero(self.slope)


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
        family = [_response(series, everything, name, per_episode(name), flag, over) for name in names]
        corrected = false_discovery(np.array([each.p for each in family]))
        found += [replace(each, q=float(q)) for each, q in zip(family, corrected, strict=True)]
    return found


def _response(
    series: Sequence[Pairs],
    everything: Sequence[Pairs],
    outcome: str,
    per_episode: PerEpisode,
    at_once: bool,
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
    return DoseResponse(
        outcome=outcome,
        at_once=at_once,
        doses=tuple(doses.tolist()),
        effects=tuple(over.estimate(column) for column in values.T),
        random=tuple(over.estimate(column) for column in random.T) if np.isfinite(random).any() else (),
        slope=over.estimate(slopes),
        p=over.sign_flip_p(slopes),
        q=np.nan,
        random_slope=over.estimate(random_slopes),
        slope_difference=over.estimate(slopes - random_slopes),
        shape=_shape(values, over),
    )


def _slopes(doses: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the least squares slope of each episode that has a value at every dose, (D,) and (E, D) -> (E,)."""
    centred = doses - doses.mean()
    return values @ centred / (centred @ centred)  # NaN where a dose is missing


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
