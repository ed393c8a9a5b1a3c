"""How effects depend on the dose, and how long an edit lasts in the memory and in the actions."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from activation_store.interventions import Outcome
from analysis.interventions.effects.controls import (
    RANDOM,
    Against,
    PerEpisode,
    against,
    controls_of,
    edits,
    on_episodes_of,
)
from analysis.interventions.effects.effects import effect_per_episode, level_per_episode
from analysis.interventions.effects.inference import Condition, OverEpisodes, detectable, excludes_zero
from analysis.interventions.effects.pairs import Pairs, Test, randomisation_test
from analysis.statistics.inference import LEVEL, false_discovery
from analysis.statistics.resampling import Estimate, half_life

Shape = Literal["rises with every dose", "falls with every dose", "rises and falls", "no clear shape"]
_FEWEST_DOSES = 2


@dataclass(frozen=True)
class DoseResponse:
    """One outcome as a function of the dose."""

    outcome: str
    at_once: bool  # whether it is an outcome at once; otherwise it is an effect on behaviour
    doses: tuple[float, ...]  # ascending
    effects: tuple[Estimate, ...]  # at each dose
    random: tuple[Estimate, ...]
    """The same of random directions at the doses at which they were played, NaN elsewhere; empty without any."""
    slope: Estimate  # mean over episodes of the least squares slope, per unit of dose
    test: Test  # how `p` was found
    p: float  # two-sided, of no slope; NaN if nothing changes with the dose
    against: Against | None
    """The same slope of random directions, over the same doses; None unless they were played at all."""
    error: float  # of the slope; this and the next two as in `Judged`
    freedom: int
    smallest_p: float
    shape: Shape  # whether the effects are monotone in the dose; see `_shape`
    q: float = np.nan  # corrected for all slopes of the run, separately at once and in behaviour
    beyond_q: float = np.nan
    """Of no slope, or no more than that of random directions, corrected likewise; NaN without them."""
    detectable: float = np.nan
    """Size of slope that would be found in 80% of runs like this; infinite if none could be, as without random
    directions."""

    @property
    def is_found(self) -> bool:
        """Whether the slope survives correction, and its interval excludes 0."""
        return self.q <= LEVEL and excludes_zero(self.slope)

    @property
    def beyond_random(self) -> bool:
        """Whether the slope exceeds that of random directions; False if they were not played."""
        if self.against is None:
            return False
        same_way = np.sign(self.against.difference.value) == np.sign(self.slope.value)
        return self.beyond_q <= LEVEL and bool(same_way)


def dose_responses(
    everything: Sequence[Pairs], in_behaviour: Sequence[str], at_once: Sequence[str], over: OverEpisodes
) -> list[DoseResponse]:
    """Measure how each outcome depends on the dose; empty with fewer than two doses."""
    series = sorted(
        (edit for edit in edits(everything) if edit.arm.dose is not None), key=lambda edit: edit.arm.dose or 0.0
    )
    if len(series) < _FEWEST_DOSES:
        return []
    responses = []
    for names, per_episode, flag in ((in_behaviour, effect_per_episode, False), (at_once, level_per_episode, True)):
        p_values = np.full(len(names), np.nan) if flag else _randomisation_p(series, names, over)
        family = [
            _response(series, everything, name, per_episode(name), flag, float(p), over)
            for name, p in zip(names, p_values, strict=True)
        ]
        responses += _corrected(family)
    return responses


def _corrected(family: Sequence[DoseResponse]) -> list[DoseResponse]:
    p_values = np.array([response.p for response in family])
    beyond = np.array(
        [np.maximum(response.p, response.against.p) if response.against else np.nan for response in family]
    )
    tests = int(np.isfinite(p_values).sum())
    done = []
    for response, q, beyond_q in zip(family, false_discovery(p_values), false_discovery(beyond), strict=True):
        conditions = [Condition(of.error, of.freedom) for of in (response, response.against) if of]
        size = np.nan
        if conditions[0].known:
            comparable = conditions[-1].known and response.against is not None
            size = detectable(conditions, tests, response.smallest_p) if comparable else np.inf
        done.append(replace(response, q=float(q), beyond_q=float(beyond_q), detectable=size))
    return done


def _response(
    series: Sequence[Pairs], everything: Sequence[Pairs], outcome: str, per_episode: PerEpisode, at_once: bool,
    p: float, over: OverEpisodes,
) -> DoseResponse:  # fmt: skip
    doses = np.array([edit.arm.dose for edit in series], dtype=np.float64)  # (D,)
    values = np.stack([on_episodes_of(series[0], edit, per_episode(edit)) for edit in series], axis=1)  # (E, D)
    arms = [controls_of(edit, everything, outcome if at_once else None)[RANDOM] for edit in series]
    random = np.full((max(map(len, arms)), *values.shape), np.nan)  # of K directions, the arms of each dose, (K, E, D)
    for dose, of_dose in enumerate(arms):
        for place, arm in enumerate(of_dose):
            random[place, :, dose] = on_episodes_of(series[0], arm, per_episode(arm))
    slopes = _slopes(doses, values)
    test: Test = "randomisation over who was edited"
    smallest_p = 1 / (1 + over.settings.permutations)
    if not np.isfinite(p):
        test, p, smallest_p = "sign flips over episodes", over.sign_flip_p(slopes), over.smallest_p(slopes)
    error, freedom = over.error(slopes)
    theirs = _slopes(doses, random)  # (K, E)
    names = [f"{RANDOM} {place + 1}" for place in range(len(random))]
    compared = np.isfinite(slopes + theirs.sum(axis=0)).any() and len(random)
    return DoseResponse(
        outcome=outcome,
        at_once=at_once,
        doses=tuple(doses.tolist()),
        effects=tuple(over.estimate(column) for column in values.T),
        random=tuple(over.estimate(column) for column in random.mean(axis=0).T) if np.isfinite(random).any() else (),
        slope=over.estimate(slopes),
        test=test if np.isfinite(p) else "none",
        p=p,
        against=against(RANDOM, names, slopes, theirs, over) if compared else None,
        error=error,
        freedom=freedom,
        smallest_p=smallest_p,
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


TITLES = {"cell": "cell state", "hidden": "hidden state", "actions": "actions"}
"""What is followed, by the name in the outcome."""
_ROUNDING = 1e-5  # nats: smaller divergences of distributions over actions cannot be told from rounding


@dataclass(frozen=True)
class Persistence:
    """What is left of edits that were each made in a single tick."""

    policy: str
    what: str
    """A key of `TITLES`: the distance of a state from that of a copy without the edit, or the Kullback-Leibler
    divergence of the distributions over actions."""
    left: tuple[Estimate, ...]
    """After 0, 1, ... ticks, as a share of that in the tick of the edit, as long as in every episode a followed agent
    lives."""
    first: Estimate  # in the tick of the edit: 1 for states, nats for actions
    half_life: Estimate
    """Ticks until half is left, between ticks by linear interpolation; infinite if more than half is left in the last
    tick."""
    episodes: int


def persistence_of_edits(everything: Sequence[Pairs], over: OverEpisodes) -> list[Persistence]:
    """Measure what is left in every arm whose edits were followed; empty if there is none.

    Actions are left out if the edit itself moves them by no more than rounding.
    """
    followed = [pairs for pairs in everything if pairs.arm.kind == "edited once"]
    persistences = []
    for pairs, what in itertools.product(followed, TITLES):
        values = pairs.values.get(_left(what, 0), np.zeros(len(pairs.edited)))
        known = values[pairs.edited & np.isfinite(values)]
        if len(known) and known.mean() > _ROUNDING:
            persistences.append(_persistence(pairs, what, over))
    return persistences


def _left(what: str, lag: int) -> str:
    """Return the name of the outcome that says what is left after so many ticks."""
    return Outcome("lasting", f"{what}/{lag}").name


def _persistence(pairs: Pairs, what: str, over: OverEpisodes) -> Persistence:
    columns: list[np.ndarray] = []
    for name in itertools.takewhile(pairs.values.__contains__, (_left(what, lag) for lag in itertools.count())):
        column = pairs.episode_means(pairs.values[name], pairs.edited)  # (E,)
        if columns and not np.isfinite(column[np.isfinite(columns[0])]).all():
            break  # in some episode, no followed agent lives so long
        columns.append(column)
    values = np.stack(columns, axis=1)[np.isfinite(columns[0])]  # (E, ticks)
    resampled = over.resampled_means(values)  # (R, ticks)
    mean = values.mean(axis=0)
    shares = mean / mean[0]
    low, high = over.interval(shares, resampled / resampled[:, :1], len(values)).clip(min=0)
    # Of curves that lie lower and higher: resampled half-lives can be infinite, which nothing can stretch.
    ends = np.where(np.isnan(low[0]), np.nan, half_life(np.stack([low, high])))
    return Persistence(
        policy=pairs.arm.policy,
        what=what,
        left=tuple(Estimate(*map(float, interval)) for interval in zip(shares, low, high, strict=True)),
        first=over.estimate(values[:, 0]),
        half_life=Estimate(float(half_life(mean[None])[0]), float(ends[0]), float(ends[1])),
        episodes=len(values),
    )
