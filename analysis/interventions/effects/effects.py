"""Effects of edits: on how edited agents live, on their unedited neighbours, and at once in the edited state."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from activation_store.interventions import Outcome
from analysis.interventions.effects.controls import Against, Judged, PerEpisode, compare, controls_of, edits, judged
from analysis.interventions.effects.inference import Condition, OverEpisodes, detectable, excludes_zero
from analysis.interventions.effects.outcomes import Margins
from analysis.interventions.effects.pairs import Pairs, Test, randomisation_test
from analysis.statistics.inference import LEVEL, false_discovery
from analysis.statistics.resampling import Estimate


@dataclass(frozen=True, kw_only=True)
class Effect(Judged):
    """The effect of one edit on one outcome in behaviour.

    All others are as in `Judged`: the error is the larger one of those of `effect` and of `contrast`, and p is NaN if
    nothing differs from the twin.
    """

    outcome: str
    effect: Estimate  # mean over episodes of the mean difference of edited agents from themselves in the twin
    twin: float  # mean over episodes of the edited agents' outcome in the twin
    spread: float  # standard deviation over lives in the twin; NaN if it is 0
    contrast: float  # mean over episodes of the edited agents' mean difference minus that of the unedited
    episodes: int
    pairs: int  # edited lives with a value in both arms
    left_out: int  # edited lives without a value in one of them
    test: Test  # how `p` was found
    without: tuple[str, ...]  # kinds of control that were not played at this dose, or have no value

    @property
    def measured(self) -> Estimate:
        """See `Judged.measured`."""
        return self.effect

    @property
    def opposed(self) -> bool:
        """Whether unedited agents changed so much that the contrast points the other way."""
        return bool(np.isfinite(self.contrast)) and np.sign(self.contrast) != np.sign(self.effect.value)


@dataclass(frozen=True)
class Spillover:
    """The effect of editing others on one outcome of agents that were not edited."""

    arm: str
    dose: float | None
    outcome: str
    effect: Estimate  # mean over episodes of the mean difference of unedited agents from themselves in the twin
    episodes: int
    pairs: int  # unedited lives with a value in both arms
    left_out: int  # unedited lives without a value in one of them
    p: float  # two-sided, by flipping the signs of episodes
    condition: Condition  # standard error of the effect over episodes
    smallest_p: float  # that the test could have
    q: float = np.nan  # corrected for all edits and outcomes of the run
    detectable: float = np.nan  # size of effect that would be found in 80% of runs like this; infinite if none could be

    @property
    def is_found(self) -> bool:
        """Whether the effect survives correction, and its interval excludes 0."""
        return self.q <= LEVEL and excludes_zero(self.effect)


def effects_of_edits(
    everything: Sequence[Pairs], outcomes: Sequence[str], over: OverEpisodes, margins: Margins, pairing_works: bool
) -> list[Effect]:
    """Measure, test and judge every edit of the trained policy in every outcome in behaviour."""
    effects: list[Effect] = []
    for edit in edits(everything):
        controls = controls_of(edit, everything)
        contrasts, p_values = randomisation_test(edit, edit.differences(outcomes), over.settings)
        effects += [
            _effect(edit, outcome, float(contrast), float(p), controls, over, margins)
            for outcome, contrast, p in zip(outcomes, contrasts, p_values, strict=True)
        ]
    return judged(effects, pairing_works)


def spillovers(everything: Sequence[Pairs], outcomes: Sequence[str], over: OverEpisodes) -> list[Spillover]:
    """Measure and test what every edit of the trained policy does to unedited agents; empty if there are none."""
    effects = [
        _spillover(edit, outcome, over)
        for edit in edits(everything)
        if not edit.edited.all()  # else no life is left to compare with
        for outcome in outcomes
    ]
    p_values = np.array([effect.p for effect in effects])
    tests = int(np.isfinite(p_values).sum())
    return [
        replace(effect, q=float(q), detectable=detectable([effect.condition], tests, effect.smallest_p))
        for effect, q in zip(effects, false_discovery(p_values), strict=True)
    ]


def effect_per_episode(outcome: str) -> PerEpisode:
    """Return the function that gives an arm's mean difference of edited agents from the twin, for each episode."""
    return lambda pairs: pairs.episode_means(pairs.difference(outcome), pairs.edited)


def _effect(
    edit: Pairs, outcome: str, contrast: float, p: float, controls: dict[str, list[Pairs]], over: OverEpisodes,
    margins: Margins,
) -> Effect:  # fmt: skip
    per_episode = effect_per_episode(outcome)
    difference = edit.difference(outcome)
    values, lives = per_episode(edit), np.isfinite(difference[edit.edited])
    test: Test = "randomisation over who was edited"
    smallest_p = 1 / (1 + over.settings.permutations)
    errors = [over.error(values)]
    if np.isfinite(contrast):
        errors.append(over.error(values - edit.episode_means(difference, ~edit.edited)))
    else:
        test, p, smallest_p = "sign flips over episodes", over.sign_flip_p(values), over.smallest_p(values)
    error, freedom = max((pair for pair in errors if pair[1]), default=(np.nan, 0))
    against = compare(edit, controls, per_episode, over)
    known = edit.twin[outcome][np.isfinite(edit.twin[outcome])]
    spread = float(known.std(ddof=1)) if len(known) > 1 and np.ptp(known) > 0 else np.nan
    return Effect(
        arm=edit.arm.name, dose=edit.arm.dose, outcome=outcome, effect=over.estimate(values),
        twin=over.estimate(edit.episode_means(edit.twin[outcome], edit.edited)).value, spread=spread, contrast=contrast,
        episodes=int(np.isfinite(values).sum()), pairs=int(lives.sum()), left_out=int((~lives).sum()),
        test=test if np.isfinite(p) else "none", p=p, error=error, freedom=freedom, smallest_p=smallest_p,
        against=against,
        without=tuple(kind for kind in controls if kind not in {comparison.control for comparison in against}),
        margin=margins.of(outcome, spread),
    )  # fmt: skip


def _spillover(edit: Pairs, outcome: str, over: OverEpisodes) -> Spillover:
    difference = edit.difference(outcome)
    values, lives = edit.episode_means(difference, ~edit.edited), np.isfinite(difference[~edit.edited])
    return Spillover(
        arm=edit.arm.name, dose=edit.arm.dose, outcome=outcome, effect=over.estimate(values),
        episodes=int(np.isfinite(values).sum()), pairs=int(lives.sum()), left_out=int((~lives).sum()),
        p=over.sign_flip_p(values), condition=Condition(*over.error(values)), smallest_p=over.smallest_p(values),
    )  # fmt: skip


@dataclass(frozen=True)
class AtOnce:
    """One outcome at once of one edit."""

    arm: str
    dose: float | None
    outcome: str
    level: Estimate  # mean over episodes of the mean over edited lives
    episodes: int
    lives: int  # edited lives with a value
    left_out: int  # edited lives without one
    against: tuple[Against, ...]
    """Each kind of control. With K random directions, its rank among them is a test of its own: p = (1 + as_large) / (1
    + K), exact if the direction is drawn like them (Phipson and Smyth 2010)."""


def outcomes_at_once(everything: Sequence[Pairs], outcomes: Sequence[str], over: OverEpisodes) -> list[AtOnce]:
    """Measure every edit of the trained policy in every outcome at once."""
    levels = []
    for edit, outcome in itertools.product(edits(everything), outcomes):
        per_episode, known = level_per_episode(outcome), np.isfinite(edit.values[outcome][edit.edited])
        values = per_episode(edit)
        against = compare(edit, controls_of(edit, everything, at_once=outcome), per_episode, over)
        level = AtOnce(
            arm=edit.arm.name, dose=edit.arm.dose, outcome=outcome, level=over.estimate(values),
            episodes=int(np.isfinite(values).sum()), lives=int(known.sum()), left_out=int((~known).sum()),
            against=against,
        )  # fmt: skip
        levels.append(level)
    return levels


def changes_of(measure: str, levels: Iterable[AtOnce]) -> list[tuple[str, AtOnce]]:
    """Return the changes at once of a measure in total that are of something, such as a head, with what they are of."""
    named = ((Outcome.parse(level.outcome), level) for level in levels)
    return [
        (name.of, change) for name, change in named if name.measure == measure and name.against == "total" and name.of
    ]


def level_per_episode(outcome: str) -> PerEpisode:
    """Return the function that gives the mean over an arm's edited agents, for each episode."""
    return lambda pairs: pairs.episode_means(pairs.values[outcome], pairs.edited)
