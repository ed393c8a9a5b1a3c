"""Directions that were edited one by one, ranked by how far each edit moves the distribution over actions at once.

The ranking is by the change in total. In play, an edit of a state that the memory keeps moves it little, since it finds
it where it put it a tick ago.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from activation_store.interventions import Arm
from analysis.interventions.at_once import AtOnce
from analysis.interventions.effects import Effect
from analysis.interventions.outcomes import KL

if TYPE_CHECKING:
    from analysis.interventions.study import Study


@dataclass(frozen=True)
class Ranked:
    """What the edit of one direction did.

    Attributes:
        direction: its name.
        arm: name of the arm in which it was edited.
        at_once: outcomes in the edited state, by name.
        effects: on behaviour, by outcome.
    """

    direction: str
    arm: str
    at_once: dict[str, AtOnce]
    effects: dict[str, Effect]


def ranking(study: "Study") -> list[Ranked]:
    """Return the directions of a run that edited them one by one, the largest KL in total first; empty for other runs.

    Those without a KL come last, in their order, as do all of runs that were played before totals were measured.
    """
    found = [_ranked(arm, study) for arm in _edits(study.arms)]
    return sorted(found, key=lambda each: -np.nan_to_num(_kl(each), nan=-np.inf))


def _kl(each: Ranked) -> float:
    return each.at_once[KL].level.value if KL in each.at_once else np.nan


def edited_one_by_one(arms: Sequence[Arm]) -> bool:
    """Tell whether a run edited directions one by one."""
    return bool(_edits(arms))


def _edits(arms: Sequence[Arm]) -> list[Arm]:
    return [arm for arm in arms if arm.direction and arm.kind == "edit" and arm.policy == "trained"]


def _ranked(arm: Arm, study: "Study") -> Ranked:
    return Ranked(
        str(arm.direction),
        arm.name,
        {each.outcome: each for each in study.at_once if each.arm == arm.name},
        {each.outcome: each for each in study.effects if each.arm == arm.name},
    )
