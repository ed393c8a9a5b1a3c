"""Everything that an intervention run shows, computed from its lives."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.at_once import AtOnce, outcomes_at_once
from analysis.interventions.controls import CONTROLS, controls_of, edits
from analysis.interventions.dose_response import DoseResponse, dose_responses
from analysis.interventions.effects import Effect, Spillover, effects_of_edits, spillovers
from analysis.interventions.no_edit import broken_pairing
from analysis.interventions.outcomes import OFF_MANIFOLD, split_outcomes, title
from analysis.interventions.over_episodes import OverEpisodes
from analysis.interventions.pairs import Pairs, paired
from analysis.statistics.inference import LEVEL, Inference
from user_error import UserError

FEWEST_EPISODES = 5
"""Episodes below which a warning is given: intervals over fewer are very wide, or rest on few distinct resamples."""

FAR_OFF = 1.5
"""Times as far from recorded states as unedited ones: from here on, edited states are called unusual."""


@dataclass(frozen=True)
class Study:
    """What an intervention run shows.

    Attributes:
        arms: of the run.
        episodes: of the edits of the trained policy.
        lives: number of rows.
        edited: share of lives that were drawn to be edited, 0 to 1.
        settings: of all intervals and tests.
        effects: on edited agents' behaviour.
        at_once: in the edited state.
        spillovers: on unedited agents' behaviour.
        dose_responses: slopes over doses.
        broken: outcome in which each arm that edits nothing differs from its twin, by arm; empty if pairing works.
        checked: names of the arms that edit nothing.
        notes: what a reader must know beside the numbers.
    """

    arms: tuple[Arm, ...]
    episodes: int
    lives: int
    edited: float
    settings: Inference
    effects: tuple[Effect, ...]
    at_once: tuple[AtOnce, ...]
    spillovers: tuple[Spillover, ...]
    dose_responses: tuple[DoseResponse, ...]
    broken: dict[str, str]
    checked: tuple[str, ...]
    notes: tuple[str, ...]


def study_effects(table: LivesTable, arms: Sequence[Arm], settings: Inference) -> Study:
    """Measure the effects of all edits of the trained policy, against their twins and against controls.

    Raises:
        UserError: lives cannot be paired (see `paired`), or nothing was edited.
    """
    everything = paired(table, arms)
    if not edits(everything):
        raise UserError("there is no arm with an edit of the trained policy, so there is nothing to measure")
    in_behaviour, at_once = split_outcomes(table, arms)
    if not in_behaviour:
        raise UserError("no outcome has a value in an unedited arm, so there is nothing to compare with")
    over = OverEpisodes(settings)
    broken = broken_pairing(everything, in_behaviour, at_once)
    effects = effects_of_edits(everything, in_behaviour, over, not broken)
    spilled = spillovers(everything, in_behaviour, over)
    levels = outcomes_at_once(everything, at_once, over)
    return Study(
        arms=tuple(arms),
        episodes=len(edits(everything)[0].episodes),
        lives=len(table),
        edited=float(table.edited.mean()),
        settings=settings,
        effects=tuple(effects),
        at_once=tuple(levels),
        spillovers=tuple(spilled),
        dose_responses=tuple(dose_responses(everything, in_behaviour, at_once, over)),
        broken=broken,
        checked=tuple(pairs.arm.name for pairs in everything if pairs.arm.kind == "no edit"),
        notes=tuple(_notes(everything, effects, spilled, levels, over)),
    )


def _notes(
    everything: Sequence[Pairs],
    effects: Sequence[Effect],
    spilled: Sequence[Spillover],
    levels: Sequence[AtOnce],
    over: OverEpisodes,
) -> list[str]:
    return [
        *_on_episodes(everything, effects, spilled, over),
        *_on_controls(everything),
        *_on_missing_values(effects),
        *_on_unusual_states(levels),
    ]


def _on_episodes(
    everything: Sequence[Pairs], effects: Sequence[Effect], spilled: Sequence[Spillover], over: OverEpisodes
) -> list[str]:
    notes = []
    episodes = min(len(edit.episodes) for edit in edits(everything))
    if episodes < FEWEST_EPISODES:
        count = "1 episode" if episodes == 1 else f"{episodes} episodes"
        notes.append(
            f"Only {count}: intervals need at least 2, and are rough below {FEWEST_EPISODES}. Play more episodes before "
            "you rely on these results."
        )
    tests = sum(np.isfinite(each.p) for each in effects)
    if tests and tests / (1 + over.settings.permutations) > LEVEL:
        needed = ceil(tests / LEVEL)
        notes.append(
            f"{over.settings.permutations} permutations are too few for {tests} tests: a single effect cannot reach q "
            f"{LEVEL:g}. Use at least {needed}."
        )
    flipped = [each for each in effects if each.test == "sign flips over episodes"]
    if flipped:
        notes.append(
            "Some outcomes have no unedited lives to compare with, so they are tested by flipping the signs of episodes, "
            "which cannot tell the effect of an edit on an agent from that of its edited neighbours."
        )
    for family, what in ((flipped, "effects"), (spilled, "spillovers")):
        tests = sum(np.isfinite(each.p) for each in family)
        if tests and over.smallest_sign_flip_p(episodes) * tests > LEVEL:
            needed = ceil(1 + log2(tests / LEVEL))
            notes.append(
                f"{episodes} episodes are too few to find a single one of {tests} possible {what} by flipping the signs "
                f"of episodes; {needed} would do. Several at once can still be found."
            )
    return notes


def _on_controls(everything: Sequence[Pairs]) -> list[str]:
    played = {edit.arm.name: controls_of(edit, everything) for edit in edits(everything)}
    notes = []
    for kind in CONTROLS:
        without = [name for name, controls in played.items() if not controls[kind]]
        if len(without) == len(played):
            notes.append(f"No control: {kind}. Effects could not be compared with it.")
        elif without:
            notes.append(f"No control of the same dose: {kind} (for {', '.join(without)}).")
    if not any(pairs.arm.kind == "no edit" for pairs in everything):
        notes.append("No arm without an edit was played, so it was not checked that such an arm equals its twin.")
    return notes


def _on_missing_values(effects: Sequence[Effect]) -> list[str]:
    counted: dict[str, tuple[int, int]] = {}
    for each in effects:
        left_out, lives = counted.get(each.outcome, (0, 0))
        counted[each.outcome] = left_out + each.left_out, lives + each.left_out + each.pairs
    return [
        f"{title(outcome)}: {left_out:,} of {lives:,} pairs of lives were left out, for want of a value in one of them."
        for outcome, (left_out, lives) in counted.items()
        if left_out
    ]


def _on_unusual_states(levels: Sequence[AtOnce]) -> list[str]:
    unusual = [each for each in levels if each.outcome == OFF_MANIFOLD and each.level.value > FAR_OFF]
    return [
        f"{each.arm}: edited states lie {each.level.value:.1f} times as far from recorded states as unedited ones. The "
        "policy may never have been in such states, so its behaviour in them says little about how it works."
        for each in unusual
    ]
