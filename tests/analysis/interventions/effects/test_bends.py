"""Paths that bend as an edit of a planned displacement predicts: planted ones are found, others are not."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.bends import Bend
from analysis.interventions.effects.study import EffectsStudy, study_effects
from analysis.interventions.effects.tables import effects_table
from analysis.interventions.effects.text import summary_lines
from analysis.statistics.inference import Inference
from tests.planted_interventions import EDIT, NO_EDIT, RANDOM, UNTRAINED, Planted, kind_of, plant

SETTINGS = Inference(permutations=499, bootstraps=499)
PLANTED = Planted(doses=(-2.0, 2.0), kinds=(RANDOM, UNTRAINED, NO_EDIT), episodes=10)
SOUTH_EAST = np.array([1.0, 1.0]) / np.sqrt(2)


def with_paths(
    table: LivesTable, arms: list[Arm], way: np.ndarray, kinds: tuple[str, ...] = (EDIT,), noise: float = 1.0
) -> LivesTable:
    """Plan two tiles in ten ticks, south-east or north-west by dose, and bend paths by `way`, tiles in 100 ticks."""
    random = np.random.default_rng(0)
    dose = {arm.name: arm.dose or 0.0 for arm in arms}
    kind = {arm.name: kind_of(arm) for arm in arms}
    doses = np.array([dose[name] for name in table.arm.tolist()])
    edited = np.array([kind[name] != "unedited" for name in table.arm.tolist()]) & table.edited
    bends = np.array([kind[name] in kinds for name in table.arm.tolist()]) & table.edited
    more = {}
    for axis, side, place in (("row", "south", 0), ("col", "east", 1)):
        planned = doses * SOUTH_EAST[place] + 0.05 * random.normal(size=len(table))
        more[f"planned_total/p/lstm_cell/{axis}s_in_10_ticks"] = np.where(edited, planned, np.nan)
        moves = np.where(edited & (doses != 0), noise * random.normal(size=len(table)), 0.0)
        more[side] = 3.0 + moves + np.where(bends, np.sign(doses) * way[place], 0.0)
    return replace(table, outcomes={**table.outcomes, **more})


def bending(way: np.ndarray, kinds: tuple[str, ...] = (EDIT,)) -> EffectsStudy:
    table, arms = plant(PLANTED)
    return study_effects(with_paths(table, arms, way, kinds), arms, SETTINGS)


def bends(way: np.ndarray, kinds: tuple[str, ...] = (EDIT,)) -> dict[float | None, Bend]:
    return {bend.dose: bend for bend in bending(way, kinds).bends}


@pytest.fixture(scope="module")
def study() -> EffectsStudy:
    return bending(8 * SOUTH_EAST)


def test_path_that_bends_as_planned_is_an_effect(study: EffectsStudy) -> None:
    assert [bend.dose for bend in study.bends] == [-2.0, 2.0]
    for bend in study.bends:
        assert (bend.plan, bend.ticks, bend.episodes, bend.lives) == ("p/lstm_cell", 10, 10, 80)
        assert bend.predicted == pytest.approx(2.0, abs=0.05)
        assert bend.along.low < 0.8 < bend.along.high and bend.along.low > 0.7
        assert bend.across.low < 0 < bend.across.high
        assert bend.angle.low < 0 < bend.angle.high and abs(bend.angle.value) < 10
        assert bend.verdict == "effect"
        assert {control.control for control in bend.against} == {"random directions", "untrained policy"}


def test_angle_says_to_which_side_a_path_bends() -> None:
    south = bends(8 * np.array([1.0, 0.0]))[2.0]  # a right turn from south-east, seen from above
    assert south.angle.value == pytest.approx(45, abs=8) and south.across.low > 0
    back = bends(-8 * SOUTH_EAST)[2.0]
    assert abs(back.angle.value) > 170 and back.angle.low < back.angle.value < back.angle.high
    assert back.along.high < 0 and back.verdict == "effect"  # beyond controls, though not as predicted


def test_path_that_bends_in_controls_too_is_no_effect_and_a_straight_one_is_undecided() -> None:
    assert {bend.verdict for bend in bends(8 * SOUTH_EAST, (EDIT, RANDOM)).values()} == {"no more than controls"}
    assert {bend.verdict for bend in bends(np.zeros(2)).values()} == {"undecided"}


def test_plan_along_one_axis_alone_is_no_plan() -> None:
    table, arms = plant(PLANTED)
    table = with_paths(table, arms, 8 * SOUTH_EAST)
    table = replace(table, outcomes={name: item for name, item in table.outcomes.items() if "/cols_in" not in name})
    assert study_effects(table, arms, SETTINGS).bends == ()


def test_bends_are_told_and_tabled(study: EffectsStudy) -> None:
    lines = [line for line in summary_lines(study) if "path" in line]
    assert sum("predicted by p/lstm_cell" in line and "effect" in line for line in lines) == 2
    rows = effects_table(study).rows
    assert [row[3] for row in rows if row[0] == "bend"] == ["bend/p/lstm_cell/10"] * 2
    assert not any("planned" in case.outcome for case in [*study.at_once, *study.effects])
