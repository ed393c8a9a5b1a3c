"""Everything that an intervention run shows, computed from its lives."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.bends import Bend, bends_of_edits
from analysis.interventions.effects.controls import edits
from analysis.interventions.effects.dose_response import DoseResponse, dose_responses
from analysis.interventions.effects.effects import (
    AtOnce,
    Effect,
    Spillover,
    effects_of_edits,
    outcomes_at_once,
    spillovers,
)
from analysis.interventions.effects.equivalence import BEND, FOLLOWS, Margins
from analysis.interventions.effects.follows import Follows, options_that_follow
from analysis.interventions.effects.inference import OverEpisodes
from analysis.interventions.effects.notes import notes_on
from analysis.interventions.effects.outcomes import KL, split_outcomes
from analysis.interventions.effects.pairs import broken_pairing, paired
from analysis.interventions.effects.persistence import Persistence, persistence_of_edits
from analysis.statistics.inference import Inference
from common.user_error import UserError


@dataclass(frozen=True)
class Study:
    """What an intervention run shows.

    Attributes:
        episodes: of the edits of the trained policy.
        lives: that were played in all arms.
        edited: share of them that were drawn to be edited, 0 to 1.
        settings: of all intervals and tests.
        follows: how often options follow the variable by which donors are drawn; empty without donors.
        bends: whether paths bend as edits of planned displacements predict; empty if no such direction was edited.
        dose_responses: slopes over doses.
        persistences: how long edits last, if they were followed.
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
    follows: tuple[Follows, ...]
    bends: tuple[Bend, ...]
    spillovers: tuple[Spillover, ...]
    dose_responses: tuple[DoseResponse, ...]
    persistences: tuple[Persistence, ...]
    broken: dict[str, str]
    checked: tuple[str, ...]
    notes: tuple[str, ...]


def study_effects(table: LivesTable, arms: Sequence[Arm], settings: Inference, margins: Margins | None = None) -> Study:
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
    return Study(
        arms=tuple(arms),
        episodes=len(edits(everything)[0].episodes),
        lives=int(played.sum()),
        edited=float(table.edited[played].mean()),
        settings=settings,
        effects=tuple(effects),
        at_once=tuple(levels),
        follows=tuple(followed),
        bends=tuple(bends),
        spillovers=tuple(spilled),
        dose_responses=tuple(responses),
        persistences=tuple(persistence_of_edits(everything, over)),
        broken=broken,
        checked=tuple(pairs.arm.name for pairs in everything if pairs.arm.kind == "no edit"),
        notes=tuple(notes_on(everything, effects, spilled, levels, followed, responses, over)),
    )


@dataclass(frozen=True)
class Ranked:
    """What the edit of one direction did.

    Attributes:
        arm: name of the arm in which it was edited.
        at_once: outcomes in the edited state, by name.
        effects: on behaviour, by outcome.
    """

    direction: str
    arm: str
    at_once: dict[str, AtOnce]
    effects: dict[str, Effect]


def ranking(study: Study) -> list[Ranked]:
    """Return the directions of a run that edited them one by one, the largest KL in total first; empty for other runs.

    In play, an edit of a state that the memory keeps moves it little, since it finds it where it put it a tick ago.
    Those without a KL come last, in their order, as do all of runs that were played before totals were measured.
    """
    ranked = [_ranked(arm, study) for arm in _edits_one_by_one(study.arms)]
    return sorted(ranked, key=lambda entry: -np.nan_to_num(_kl(entry), nan=-np.inf))


def _kl(ranked: Ranked) -> float:
    return ranked.at_once[KL].level.value if KL in ranked.at_once else np.nan


def edited_one_by_one(arms: Sequence[Arm]) -> bool:
    """Tell whether a run edited directions one by one."""
    return bool(_edits_one_by_one(arms))


def _edits_one_by_one(arms: Sequence[Arm]) -> list[Arm]:
    return [arm for arm in arms if arm.direction and arm.is_studied]


def _ranked(arm: Arm, study: Study) -> Ranked:
    return Ranked(
        str(arm.direction),
        arm.name,
        {level.outcome: level for level in study.at_once if level.arm == arm.name},
        {effect.outcome: effect for effect in study.effects if effect.arm == arm.name},
    )
