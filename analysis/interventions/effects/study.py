"""Everything that an intervention run shows, computed from its lives, and what a reader must know beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.controls import (
    DRAWN_DIRECTIONS,
    RANDOM,
    SAME_VARIANCE,
    UNTRAINED,
    controls_of,
    edits,
)
from analysis.interventions.effects.courses import DoseResponse, Persistence, dose_responses, persistence_of_edits
from analysis.interventions.effects.effects import (
    AtOnce,
    Effect,
    Spillover,
    effects_of_edits,
    outcomes_at_once,
    spillovers,
)
from analysis.interventions.effects.inference import COUNTED_UP_TO, FEWEST_FOR_RANK, OverEpisodes
from analysis.interventions.effects.outcomes import (
    BEND,
    EDITED_TICKS,
    FOLLOWS,
    KL,
    KL_IN_PLAY,
    OFF_MANIFOLD,
    WITHIN_DATA,
    Margins,
    split_outcomes,
    title,
)
from analysis.interventions.effects.pairs import FLIPS, Pairs, broken_pairing, paired
from analysis.interventions.effects.predicted import Bend, Follows, bends_of_edits, options_that_follow
from analysis.statistics.inference import LEVEL, Inference
from common.number_text import plural
from common.user_error import UserError

FEWEST_EPISODES = 5
"""Episodes below which a warning is given: intervals over fewer are very wide, or rest on few distinct resamples."""

FAR_OFF = 1.5
"""Times as far from recorded states as unedited ones: from here on, edited states are called unusual."""

MOSTLY = 0.5
"""Share of a change within the span of recorded states, below which a note is given."""


def _on_tests(
    everything: Sequence[Pairs], effects: Sequence[Effect], spilled: Sequence[Spillover], followed: Sequence[Follows],
    responses: Sequence[DoseResponse], over: OverEpisodes,
) -> Iterator[str]:  # fmt: skip
    """Yield notes on episodes and permutations that are too few, and on tests by sign flips."""
    episodes = min(len(edit.episodes) for edit in edits(everything))
    if episodes < FEWEST_EPISODES:
        yield (
            f"Only {plural(episodes, 'episode')}: intervals need at least 2, and are rough below {FEWEST_EPISODES}. "
            "Play more episodes before you rely on these results."
        )
    tests = sum(np.isfinite(effect.p) for effect in effects)
    if tests and tests / (1 + over.settings.permutations) > LEVEL:
        yield (
            f"{over.settings.permutations} permutations are too few for {tests} tests: a single effect cannot reach q "
            f"{LEVEL:g}. Use at least {ceil(tests / LEVEL)}."
        )
    flipped = [effect for effect in effects if effect.test == FLIPS]
    if flipped:
        yield (
            "Some outcomes have no unedited lives to compare with, so they are tested by flipping the signs of "
            "episodes, which cannot tell the effect of an edit on an agent from that of its edited neighbours."
        )
    for what, p_values in (
        ("effects", [effect.p for effect in flipped]),
        ("effects on neighbours", [spillover.p for spillover in spilled]),
        ("actions that follow a variable", [follow.p for follow in followed]),
        ("slopes", [slope.p for slope in responses if slope.test == FLIPS and not slope.at_once]),
    ):
        tests = int(np.isfinite(p_values).sum())
        if tests and episodes <= COUNTED_UP_TO and 2.0 ** (1 - episodes) * tests > LEVEL:
            yield (
                f"With {episodes} episodes, one of {tests} possible {what} alone cannot survive correction, since it "
                f"is tested by flipping the signs of episodes; with {COUNTED_UP_TO + 1} it could."
            )


def _on_controls(everything: Sequence[Pairs], followed: Sequence[Follows]) -> Iterator[str]:
    """Yield notes on controls that were not played, or are too few."""
    played = {edit.arm.name: controls_of(edit, everything) for edit in edits(everything)}
    if not all(controls.get(RANDOM) or controls.get(SAME_VARIANCE) for controls in played.values()):
        yield (
            "Without random directions nothing can count as an effect, since other edits may do as much: play several "
            "with --controls."
        )
    for kind in dict.fromkeys(kind for controls in played.values() for kind in controls):
        without = [name for name, controls in played.items() if not controls.get(kind)]
        if len(without) == len(played):
            yield f"No control: {kind}. Effects could not be compared with it."
        elif without:
            yield f"No control of the same dose: {kind} (for {', '.join(without)})."
        fewest = min((len(controls[kind]) for controls in played.values() if controls.get(kind)), default=0)
        if kind in DRAWN_DIRECTIONS and fewest == 1:
            yield (
                f"Only one control of the kind {kind!r} was played, or all of them did exactly the same. It is unknown "
                "how such controls vary, so nothing can count as an effect: play several in a new run, with --controls."
            )
    if any(UNTRAINED in controls and controls[UNTRAINED] for controls in played.values()):
        yield "The untrained policy is a single network, which does not show how such networks vary."
    if not any(pairs.arm.kind == "no edit" for pairs in everything):
        yield ("No arm that edits nothing was played, so it was not checked that such an arm is identical to its twin.")
    drawn = [len(of.arms) for follow in followed for of in follow.against if of.drawn]
    directions = len({edit.arm.direction for edit in edits(everything)})
    needed = directions * (1 + FEWEST_FOR_RANK) - 1
    if drawn and min(drawn) < needed:
        again = " Play the one that you want without --one-by-one, in other episodes." if directions > 1 else ""
        yield (
            f"No action that follows a variable can count as an effect: with {plural(directions, 'direction')}, its "
            f"rank takes {needed} random directions, and here are {min(drawn)}.{again}"
        )


def _on_results(everything: Sequence[Pairs], effects: Sequence[Effect], levels: Sequence[AtOnce]) -> Iterator[str]:
    """Yield notes on edits that were never made, missing values, and unusual states."""
    for edit in edits(everything):
        if not np.isfinite(edit.values.get(EDITED_TICKS, np.array(np.nan))).any():
            yield (
                f"Nobody was edited in any tick ({edit.arm.name}): no agent lived to the first edited tick, --while "
                "never held, or no donor had another value."
            )
    outcomes = {level.outcome for level in levels}
    if KL not in outcomes and KL_IN_PLAY in outcomes:
        yield (
            "This run was played before changes at once were measured in total. Those in play, from a memory that was "
            "edited before, can rank edits in another order: play the run again to compare edits with each other. "
            "Bends of paths and kl_by_head.png take changes in total, so they are left out."
        )
    for outcome in dict.fromkeys(effect.outcome for effect in effects):
        own = [effect for effect in effects if effect.outcome == outcome]
        left_out = sum(effect.left_out for effect in own)
        if left_out:
            yield (
                f"{title(outcome)}: {left_out:,} of {left_out + sum(effect.pairs for effect in own):,} pairs of lives "
                "were left out, for want of a value in one of them."
            )
    unusual = [level for level in levels if level.outcome == OFF_MANIFOLD and level.level.value > FAR_OFF]
    if unusual:
        far = "; ".join(f"{level.level.value:.1f} times, {level.arm}" for level in unusual)
        yield (
            f"Edited states lie further from recorded states than unedited ones: {far}. The policy may never have been "
            "in such states, so its behaviour in them says little about how it works."
        )
    outside = [level for level in levels if level.outcome == WITHIN_DATA and level.level.value < MOSTLY]
    if outside:
        shares = "; ".join(f"{level.level.value:.0%}, {level.arm}" for level in outside)
        yield (
            f"Only part of the squared change lies where recorded states vary: {shares}. The rest may act through "
            "parts of the network that are never active otherwise."
        )


@dataclass(frozen=True)
class EffectsStudy:
    """What an intervention run shows."""

    arms: tuple[Arm, ...]
    episodes: int
    lives: int  # that were played in all arms
    edited: float  # share of them that were drawn to be edited, 0 to 1
    settings: Inference
    effects: tuple[Effect, ...]
    at_once: tuple[AtOnce, ...]
    follows: tuple[Follows, ...]
    """How often options follow the variable by which donors are drawn; empty without donors."""
    bends: tuple[Bend, ...]
    """Whether paths bend as edits of planned displacements predict; empty if no such direction was edited."""
    spillovers: tuple[Spillover, ...]
    dose_responses: tuple[DoseResponse, ...]
    persistences: tuple[Persistence, ...]  # how long edits last, if they were followed
    broken: dict[str, str]
    """Outcome in which each arm that edits nothing differs from its twin, by arm; empty if pairing works."""
    notes: tuple[str, ...]  # what a reader must know beside the numbers

    def effects_of(self, arm: str) -> dict[str, Effect]:
        """Return the effects of an edit on behaviour, by outcome."""
        return {effect.outcome: effect for effect in self.effects if effect.arm == arm}

    def at_once_of(self, arm: str) -> dict[str, AtOnce]:
        """Return the outcomes of an edit at once, by name."""
        return {level.outcome: level for level in self.at_once if level.arm == arm}


def study_effects(
    table: LivesTable, arms: Sequence[Arm], settings: Inference, margins: Margins | None = None
) -> EffectsStudy:
    """Measure the effects of all edits of the trained policy, against their twins and against controls.

    Args:
        margins: effects smaller than these do not matter; None for none.

    Raises:
        UserError: lives cannot be paired (see `paired`), nothing was edited, or a margin is of an outcome that
            the run does not have.
    """
    everything = paired(table, arms)
    if not edits(everything):
        raise UserError("there is no arm with an edit of the trained policy, so there is nothing to measure")
    in_behaviour, at_once = split_outcomes(table, arms)
    if not in_behaviour:
        raise UserError("no outcome has a value in an unedited arm, so there is nothing to compare with")
    played = np.isin(table.arm, [arm.name for arm in arms if not arm.is_at_once])
    over, margins = OverEpisodes(settings), margins or Margins()
    broken = broken_pairing(everything, in_behaviour, at_once)
    effects = effects_of_edits(everything, in_behaviour, over, margins, not broken)
    spilled = spillovers(everything, in_behaviour, over)
    levels = outcomes_at_once(everything, at_once, over)
    followed = options_that_follow(table, everything, over, margins, not broken)
    bends = bends_of_edits(table, everything, over, margins, not broken)
    margins.check_outcomes([*in_behaviour, *([FOLLOWS] if followed else []), *([BEND] if bends else [])])
    responses = dose_responses(everything, in_behaviour, at_once, over)
    return EffectsStudy(
        arms=tuple(arms), episodes=len(edits(everything)[0].episodes), lives=int(played.sum()),
        edited=float(table.edited[played].mean()), settings=settings, effects=tuple(effects), at_once=tuple(levels),
        follows=tuple(followed), bends=tuple(bends), spillovers=tuple(spilled), dose_responses=tuple(responses),
        persistences=tuple(persistence_of_edits(everything, over)), broken=broken,
        notes=(
            *_on_tests(everything, effects, spilled, followed, responses, over), *_on_controls(everything, followed),
            *_on_results(everything, effects, levels),
        ),
    )  # fmt: skip


def ranking(study: EffectsStudy) -> list[Arm]:
    """Return the edits of a run that edited directions one by one, the largest KL in total first; empty for other runs.

    In play, an edit of a state that the memory keeps moves it little, since it finds it where it put it a tick ago.
    Those without a KL come last, in their order, as do all of runs that were played before totals were measured.
    """
    kl = {level.arm: np.nan_to_num(level.level.value, nan=-np.inf) for level in study.at_once if level.outcome == KL}
    return sorted(edits_one_by_one(study.arms), key=lambda arm: -kl.get(arm.name, -np.inf))


def edits_one_by_one(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms that edit one direction each, if a run edited directions one by one; empty for others."""
    return [arm for arm in arms if arm.direction and arm.is_studied]
