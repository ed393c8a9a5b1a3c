"""How well erased variables can still be read: from the unedited states, from these erased, and in play."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from activation_store.interventions import Arm, Readability
from agent_zoo.erasure import fitted_eraser
from agent_zoo.linear_readings import Reading, held_out_r_squared
from agent_zoo.state_moments import StateMoments
from reinforcement_learning.interventions.experiment import Experiment
from reinforcement_learning.interventions.intervention_run import PlayedArms
from reinforcement_learning.play.contest import groups

_Moments = Mapping[str, StateMoments]


def readability(folder: Path, experiment: Experiment, seed: int, episodes: int) -> list[Readability]:
    """Measure it for each variable that a run has erased, in each arm that erases it; empty if it erases nothing."""
    arms, every = experiment.arms(), groups(seed, episodes)
    played = PlayedArms(folder, arms)
    twins = {arm.name: arm for arm in arms if arm.kind == "unedited"}
    found: list[Readability] = []
    for arm in arms:
        if arm.kind == "edit" and experiment.readings:
            unedited, edited = (
                [played.moments_of_group(each, group) for group in every] for each in (twins[arm.twin], arm)
            )
            total = played.moments(twins[arm.twin], every)
            for reading in experiment.readings:
                found += _of_reading(reading, arm, total, unedited, edited)
    return found


def _of_reading(
    reading: Reading, arm: Arm, total: _Moments, unedited: Sequence[_Moments], edited: Sequence[_Moments]
) -> Iterator[Readability]:
    moments = reading.of(total[reading.name])
    before = moments.r_squared()
    after = moments.r_squared(fitted_eraser(reading, moments, arm.policy).kept)
    elsewhere, in_play = (
        held_out_r_squared([reading.of(each[reading.name]) for each in played]) for played in (unedited, edited)
    )
    for place, name in enumerate(reading.variables):
        yield Readability(
            arm.name, reading.layer, name, moments.sums.count, float(before[place]), float(after[place]),
            _number(elsewhere, place), _number(in_play, place),
        )  # fmt: skip


def _number(values: np.ndarray | None, place: int) -> float | None:
    return None if values is None or np.isnan(values[place]) else float(values[place])
