"""What a reader must know beside the effects of an intervention run."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from analysis.interventions.effects.controls import (
    DRAWN_DIRECTIONS,
    RANDOM,
    SAME_VARIANCE,
    UNTRAINED,
    controls_of,
    edits,
)
from analysis.interventions.effects.dose_response import DoseResponse
from analysis.interventions.effects.effects import AtOnce, Effect, Spillover
from analysis.interventions.effects.follows import Follows
from analysis.interventions.effects.inference import COUNTED_UP_TO, FEWEST_FOR_RANK, OverEpisodes
from analysis.interventions.effects.outcomes import EDITED_TICKS, KL, KL_IN_PLAY, OFF_MANIFOLD, WITHIN_DATA, title
from analysis.interventions.effects.pairs import Pairs
from analysis.statistics.inference import LEVEL

FEWEST_EPISODES = 5
"""Episodes below which a warning is given: intervals over fewer are very wide, or rest on few distinct resamples."""

FAR_OFF = 1.5
"""Times as far from recorded states as unedited ones: from here on, edited states are called unusual."""

MOSTLY = 0.5
"""Share of a change within the span of recorded states, below which a note is given."""


def notes_on(
    everything: Sequence[Pairs], effects: Sequence[Effect], spilled: Sequence[Spillover], levels: Sequence[AtOnce],
    followed: Sequence[Follows], responses: Sequence[DoseResponse], over: OverEpisodes,
) -> list[str]:  # fmt: skip
    """Return notes on episodes, tests, controls, missing values and unusual states; empty if all is well."""
    return [
        *_on_episodes(everything, effects, over),
        *_on_sign_flips(everything, effects, spilled, followed, responses),
        *_on_controls(everything),
        *_on_ranks(everything, followed),
        *_on_edits_never_made(everything),
        *_on_missing_totals(levels),
        *_on_missing_values(effects),
        *_on_unusual_states(levels),
        *_on_changes_outside_data(levels),
    ]


def _on_episodes(everything: Sequence[Pairs], effects: Sequence[Effect], over: OverEpisodes) -> list[str]:
    notes = []
    episodes = min(len(edit.episodes) for edit in edits(everything))
    if episodes < FEWEST_EPISODES:
        count = "1 episode" if episodes == 1 else f"{episodes} episodes"
        notes.append(
            f"Only {count}: intervals need at least 2, and are rough below {FEWEST_EPISODES}. Play more episodes "
            "before you rely on these results."
        )
    tests = sum(np.isfinite(effect.p) for effect in effects)
    if tests and tests / (1 + over.settings.permutations) > LEVEL:
        needed = ceil(tests / LEVEL)
        notes.append(
            f"{over.settings.permutations} permutations are too few for {tests} tests: a single effect cannot reach q "
            f"{LEVEL:g}. Use at least {needed}."
        )
    return notes


def _on_sign_flips(
    everything: Sequence[Pairs], effects: Sequence[Effect], spilled: Sequence[Spillover], followed: Sequence[Follows],
    responses: Sequence[DoseResponse],
) -> list[str]:  # fmt: skip
    notes = []
    episodes = min(len(edit.episodes) for edit in edits(everything))
    flipped = [effect for effect in effects if effect.test == "sign flips over episodes"]
    if flipped:
        notes.append(
            "Some outcomes have no unedited lives to compare with, so they are tested by flipping the signs of "
            "episodes, which cannot tell the effect of an edit on an agent from that of its edited neighbours."
        )
    slopes = [
        response for response in responses if response.test == "sign flips over episodes" and not response.at_once
    ]
    for what, p_values in (
        ("effects", [effect.p for effect in flipped]),
        ("effects on neighbours", [spillover.p for spillover in spilled]),
        ("actions that follow a variable", [follow.p for follow in followed]),
        ("slopes", [slope.p for slope in slopes]),
    ):
        tests = int(np.isfinite(p_values).sum())
        if tests and episodes <= COUNTED_UP_TO and 2.0 ** (1 - episodes) * tests > LEVEL:
            notes.append(
                f"With {episodes} episodes, one of {tests} possible {what} alone cannot survive correction, since it "
                f"is tested by flipping the signs of episodes; with {COUNTED_UP_TO + 1} it could."
            )
    return notes


def _on_controls(everything: Sequence[Pairs]) -> list[str]:
    played = {edit.arm.name: controls_of(edit, everything) for edit in edits(everything)}
    notes = []
    if not all(controls.get(RANDOM) or controls.get(SAME_VARIANCE) for controls in played.values()):
        notes.append(
            "Without random directions, nothing can count as an effect, since other edits may do as much. Play "
            "several, with --controls."
        )
    for kind in dict.fromkeys(kind for controls in played.values() for kind in controls):
        without = [name for name, controls in played.items() if not controls.get(kind)]
        if len(without) == len(played):
            notes.append(f"No control: {kind}. Effects could not be compared with it.")
        elif without:
            notes.append(f"No control of the same dose: {kind} (for {', '.join(without)}).")
        fewest = min((len(controls[kind]) for controls in played.values() if controls.get(kind)), default=0)
        if kind in DRAWN_DIRECTIONS and fewest == 1:
            notes.append(
                f"One draw is no control: of {kind} a single arm was played, which does not tell how they differ, so "
                "nothing can count as an effect. Play several, with --controls."
            )
    if any(UNTRAINED in controls and controls[UNTRAINED] for controls in played.values()):
        notes.append("The untrained policy is one network: it does not tell how others would differ from it.")
    if not any(pairs.arm.kind == "no edit" for pairs in everything):
        notes.append("No arm without an edit was played, so it was not checked that such an arm equals its twin.")
    return notes


def _on_ranks(everything: Sequence[Pairs], followed: Sequence[Follows]) -> list[str]:
    drawn = [len(of.arms) for follow in followed for of in follow.against if of.drawn]
    directions = len({edit.arm.direction for edit in edits(everything)})
    needed = directions * (1 + FEWEST_FOR_RANK) - 1
    if not drawn or min(drawn) >= needed:
        return []
    again = " Play the one that you want without --one-by-one, in other episodes." if directions > 1 else ""
    return [
        f"No action that follows a variable can count as an effect: with {directions} "
        f"direction{'s' if directions > 1 else ''}, its rank takes {needed} random directions, and here are "
        f"{min(drawn)}.{again}"
    ]


def _on_edits_never_made(everything: Sequence[Pairs]) -> list[str]:
    never = [
        edit.arm.name
        for edit in edits(everything)
        if not np.isfinite(edit.values.get(EDITED_TICKS, np.array(np.nan))).any()
    ]
    return [
        f"Nobody was edited in any tick ({name}): no agent lived to the first edited tick, --while never held, or no "
        "donor had another value."
        for name in never
    ]


def _on_missing_totals(levels: Sequence[AtOnce]) -> list[str]:
    outcomes = {level.outcome for level in levels}
    if KL in outcomes or KL_IN_PLAY not in outcomes:
        return []
    return [
        "This run was played before changes at once were measured in total. Those in play, from a memory that was "
        "edited before, can rank edits in another order: play the run again to compare edits with each other. Bends of "
        "paths and kl_by_head.png take changes in total, so they are left out."
    ]


def _on_missing_values(effects: Sequence[Effect]) -> list[str]:
    counted: dict[str, tuple[int, int]] = {}
    for effect in effects:
        left_out, lives = counted.get(effect.outcome, (0, 0))
        counted[effect.outcome] = left_out + effect.left_out, lives + effect.left_out + effect.pairs
    return [
        f"{title(outcome)}: {left_out:,} of {lives:,} pairs of lives were left out, for want of a value in one of them."
        for outcome, (left_out, lives) in counted.items()
        if left_out
    ]


def _on_unusual_states(levels: Sequence[AtOnce]) -> list[str]:
    unusual = [level for level in levels if level.outcome == OFF_MANIFOLD and level.level.value > FAR_OFF]
    if not unusual:
        return []
    far = "; ".join(f"{level.level.value:.1f} times, {level.arm}" for level in unusual)
    return [
        f"Edited states lie further from recorded states than unedited ones: {far}. The policy may never have been in "
        "such states, so its behaviour in them says little about how it works."
    ]


def _on_changes_outside_data(levels: Sequence[AtOnce]) -> list[str]:
    outside = [level for level in levels if level.outcome == WITHIN_DATA and level.level.value < MOSTLY]
    if not outside:
        return []
    shares = "; ".join(f"{level.level.value:.0%}, {level.arm}" for level in outside)
    return [
        f"Only part of the squared change lies where recorded states vary: {shares}. The rest may act through parts of "
        "the network that are never active otherwise."
    ]
