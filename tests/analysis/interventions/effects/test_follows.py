"""Options that follow the donor's variable and paths that bend as predicted: planted ones are found, others are not."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.predicted import Bend
from analysis.interventions.effects.study import EffectsStudy, study_effects
from analysis.interventions.effects.text import summary_lines
from analysis.interventions.outputs import effects_table
from analysis.statistics.inference import Inference
from tests.planted_interventions import EDIT, NO_EDIT, RANDOM, SAME, UNTRAINED, Planted, joined, kind_of, plant

SETTINGS = Inference(permutations=499, bootstraps=499)
PLANTED = Planted(doses=(None,), kinds=(RANDOM, UNTRAINED, NO_EDIT), randoms=20, episodes=10)


def shares(table: LivesTable, option: str, mean: dict[str, tuple[float, float]], both: float = 1.0) -> LivesTable:
    """Add shares of an option: means with lower and with higher donors by arm; `both`: share of lives with higher."""
    random, more = np.random.default_rng(0), {}
    for place, side in enumerate(("lower", "higher")):
        about = np.array([mean.get(arm, (np.nan, np.nan))[place] for arm in table.arm.tolist()])
        values = np.clip(about + 0.05 * random.normal(size=len(table)), 0, 1)
        has = table.edited & (random.random(len(table)) < (both if side == "higher" else 1))
        more[f"follows_{side}/self_food/Move/{option}"] = np.where(has, values, np.nan)
    return replace(table, outcomes={**table.outcomes, **more})


def planted() -> tuple[LivesTable, list[Arm]]:
    table, arms = plant(PLANTED)
    arms = [*arms, replace(arms[-1], name="random donor 1", kind="random donor", policy="trained", twin="unedited")]
    copied = replace(table.of_arm("random direction 1"), arm=np.full(10 * 16, "random donor 1"))
    table = joined([table, copied])
    edited = [arm.name for arm in arms if arm.kind not in ("unedited", "no edit")]
    edit = next(arm.name for arm in arms if kind_of(arm) == "edit")
    none = dict.fromkeys(edited, (0.5, 0.5))
    table = shares(table, "North", {**none, edit: (0.8, 0.8)})
    table = shares(table, "South", {**none, edit: (0.2, 0.3)})
    table = shares(table, "East", {**none, edit: (0.9, 0.1)}, both=0.2)  # falls whoever the donor is
    return shares(table, "West", {**none, edit: (0.7, 0.7), "random donor 1": (0.7, 0.7)}), arms


@pytest.fixture(scope="module")
def study() -> EffectsStudy:
    return study_effects(*planted(), SETTINGS)


def test_planted_options_follow_beyond_controls(study: EffectsStudy) -> None:
    result = {follow.option: follow for follow in study.follows}
    verdicts = {name: follow.verdict for name, follow in result.items()}
    assert verdicts == {
        "Move/North": "effect", "Move/South": "effect", "Move/East": "undecided", "Move/West": "no more than controls",
    }  # fmt: skip
    north = result["Move/North"]
    assert north.effect.low < 0.3 < north.effect.high and north.effect.low > 0.2
    assert (north.feature, north.episodes, north.lives) == ("self_food", 10, 80)
    assert [control.control for control in north.against] == ["random directions", "random donors", "untrained policy"]
    assert all(abs(control.effect.value) < 0.05 for control in north.against)
    assert result["Move/South"].effect.value == pytest.approx(-0.25, abs=0.03)


def test_moves_to_one_side_are_no_following_even_if_most_donors_are_on_the_other(study: EffectsStudy) -> None:
    """Shares of one side are no outcomes of their own, either."""
    east = next(follow for follow in study.follows if follow.option == "Move/East")
    assert abs(east.effect.value) < 0.05
    assert not any("follows" in case.outcome for case in [*study.at_once, *study.effects])


def test_summary_names_the_options_that_follow_most_and_least(study: EffectsStudy) -> None:
    lines = [line for line in summary_lines(study) if "follows self_food" in line]
    assert len(lines) == 2
    assert "most: Move North, share of ticks above one half +0." in lines[0] and lines[0].endswith("; effect)")
    assert "least: Move South" in lines[1]


def test_the_table_has_them(study: EffectsStudy) -> None:
    table = effects_table(study)
    named = [dict(zip(table.heads, row, strict=True)) for row in table.rows if row[0] == "follows"]
    assert [item["outcome"] for item in named][:2] == ["follows/self_food/Move/East", "follows/self_food/Move/North"]
    assert named[1]["verdict"] == "effect" and named[1]["random_donors_difference"] > 0.2


def test_broken_pairing_takes_their_verdicts_and_donors_on_one_side_only_leave_no_share() -> None:
    table, arms = planted()
    broken = replace(table, outcomes={**table.outcomes, "ticks": table.outcomes["ticks"] + (table.arm == "no edit")})
    assert {follow.verdict for follow in study_effects(broken, arms, SETTINGS).follows} == {"pairing is broken"}
    kept = {name: values for name, values in table.outcomes.items() if "follows_higher" not in name}
    assert study_effects(replace(table, outcomes=kept), arms, SETTINGS).follows == ()


def test_only_transplants_are_expected_to_have_random_donors(study: EffectsStudy) -> None:
    assert not any("random donors" in note for note in study.notes)
    assert not any("same variance" in note for note in study.notes)
    other = study_effects(*plant(Planted(kinds=(SAME,))), SETTINGS)
    assert not any("random donors" in note for note in other.notes)


def test_too_few_random_directions_for_a_rank_are_noted() -> None:
    def notes(randoms: int, directions: tuple[str | None, ...]) -> list[str]:
        given = dict.fromkeys(directions, 1.0)
        table, arms = plant(replace(PLANTED, kinds=(RANDOM,), randoms=randoms, directions=given))
        table = shares(table, "North", {arm.name: (0.8, 0.8) for arm in arms if arm.kind != "unedited"})
        result = study_effects(table, arms, SETTINGS)
        assert {follow.verdict for follow in result.follows} <= {"no more than controls", "undecided"}
        return [note for note in result.notes if note.startswith("No action that follows a variable can count")]

    assert notes(20, (None,)) == []
    assert "with 1 direction, its rank takes 19 random directions, and here are 5." in notes(5, (None,))[0]
    (note,) = notes(20, ("a", "b"))
    assert "2 directions, its rank takes 39 random directions, and here are 20. Play the one" in note


def test_changes_outside_the_data_are_noted() -> None:
    table, arms = plant(PLANTED)
    part = np.where(table.edited & np.isfinite(table.outcomes["kl_total"]), 0.2, np.nan)
    result = study_effects(replace(table, outcomes={**table.outcomes, "within_data": part}), arms, SETTINGS)
    assert any(note.startswith("Only part of the squared change lies where") for note in result.notes)
    assert any("change within the span of recorded states (share) 0.2" in line for line in summary_lines(result))


def test_too_few_episodes_for_any_option_are_noted() -> None:
    table, arms = plant(replace(PLANTED, episodes=3))
    table = shares(table, "North", dict.fromkeys([arm.name for arm in arms if arm.kind == "edit"], (0.8, 0.8)))
    notes = study_effects(table, arms, SETTINGS).notes
    assert any("one of 1 possible actions that follow a variable alone cannot survive" in note for note in notes)


WITH_PATHS = Planted(doses=(-2.0, 2.0), kinds=(RANDOM, UNTRAINED, NO_EDIT), episodes=10)
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
    table, arms = plant(WITH_PATHS)
    return study_effects(with_paths(table, arms, way, kinds), arms, SETTINGS)


def bends(way: np.ndarray, kinds: tuple[str, ...] = (EDIT,)) -> dict[float | None, Bend]:
    return {bend.dose: bend for bend in bending(way, kinds).bends}


@pytest.fixture(scope="module")
def bent() -> EffectsStudy:
    return bending(8 * SOUTH_EAST)


def test_path_that_bends_as_planned_is_an_effect(bent: EffectsStudy) -> None:
    assert [bend.dose for bend in bent.bends] == [-2.0, 2.0]
    for bend in bent.bends:
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
    table, arms = plant(WITH_PATHS)
    table = with_paths(table, arms, 8 * SOUTH_EAST)
    table = replace(table, outcomes={name: item for name, item in table.outcomes.items() if "/cols_in" not in name})
    assert study_effects(table, arms, SETTINGS).bends == ()


def test_bends_are_told_and_tabled(bent: EffectsStudy) -> None:
    lines = [line for line in summary_lines(bent) if "path" in line]
    assert sum("predicted by p/lstm_cell" in line and "effect" in line for line in lines) == 2
    rows = effects_table(bent).rows
    assert [row[3] for row in rows if row[0] == "bend"] == ["bend/p/lstm_cell/10"] * 2
    assert not any("planned" in case.outcome for case in [*bent.at_once, *bent.effects])
