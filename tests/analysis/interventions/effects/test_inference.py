"""Intervals and sign flips over episodes, a direction among others, planted options that follow and bent paths."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.inference import (
    FEWEST_FOR_RANK,
    OverEpisodes,
    excludes_zero,
    from_one_more,
    rank_threshold,
    ranks_among,
)
from analysis.interventions.effects.predicted import Bend
from analysis.interventions.effects.study import EffectsStudy, study_effects
from analysis.interventions.effects.text import summary_lines
from analysis.interventions.outputs import effects_table
from analysis.statistics.inference import Inference
from tests.planted_interventions import EDIT, NO_EDIT, RANDOM, SAME, UNTRAINED, Planted, joined, kind_of, plant

SHAPES: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda rng, count: rng.normal(size=count), 0.0),
    "heavy tails": (lambda rng, count: rng.standard_t(3, count), 0.0),
    "rare deaths among 16 lives": (
        lambda rng, count: (rng.binomial(16, 0.15, count) - rng.binomial(16, 0.05, count)) / 16,
        0.1,
    ),
    "very skewed": (lambda rng, count: rng.exponential(size=count), 1.0),
}


COVERED = [
    ("normal", 6, 500, 0.92), ("normal", 12, 500, 0.92),
    *(pytest.param(shape, episodes, 800, 0.87 if shape == "very skewed" else 0.91, marks=pytest.mark.slow)
      for shape in SHAPES for episodes in (6, 20)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "episodes", "times", "least"), COVERED)
def test_intervals_cover_with_few_episodes_of_any_shape(shape: str, episodes: int, times: int, least: float) -> None:
    """Of the mean of an exponential, Student's intervals cover 0.89 with 6 and 0.92 with 20."""
    draw, truth = SHAPES[shape]
    rng, over = np.random.default_rng(episodes), OverEpisodes(Inference(bootstraps=999))
    result = [over.estimate(draw(rng, episodes)) for _ in range(times)]
    covered = np.mean([item.low <= truth <= item.high for item in result])
    assert covered >= least and (shape != "normal" or covered <= 0.98)


def test_estimate_leaves_out_episodes_without_a_value_and_few_have_no_interval() -> None:
    over = OverEpisodes(Inference())
    values = np.array([1.0, 2.0, 4.0, 3.0])
    with_gaps = np.array([1.0, np.nan, 2.0, 4.0, np.nan, 3.0])
    assert over.estimate(with_gaps) == over.estimate(values)
    result = over.estimate(values)
    assert result.value == 2.5 and 0 < result.low < 2.5 < result.high < 5 and excludes_zero(result)
    for few in ([], [np.nan], [3.0], [2.0, 2.0, 2.0]):
        result = over.estimate(np.array(few))
        assert np.isnan([result.low, result.high]).all() and not excludes_zero(result)
        assert np.isnan(result.value) == (not np.isfinite(few).any())


def test_sign_flips_counted_by_hand() -> None:
    for values, p in (
        ([1.0, 2.0, 3.0, 4.0], 2 / 16),  # only all signs alike are as extreme
        ([1.0, 2.0, 3.0, -1.0], 6 / 16),  # 7 in one way, 5 in two, and their negatives
        ([5.0, np.nan, 5.0], 2 / 4), ([1.0, -1.0], 1.0), ([0.0, 0.0, 0.0], np.nan), ([1.0], np.nan),
    ):  # fmt: skip
        assert OverEpisodes(Inference()).sign_flip_p(np.array(values)) == pytest.approx(p, nan_ok=True)


def test_sign_flips_of_many_episodes_agree_with_student_also_where_p_is_smaller_than_flips_can_count() -> None:
    values = np.random.default_rng(0).normal(0.4, 1, 30)
    p = OverEpisodes(Inference(permutations=9999)).sign_flip_p(values)
    assert p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01) and p < 0.1
    values = np.random.default_rng(0).normal(5, 1, 9)
    over = OverEpisodes(Inference())
    assert over.sign_flip_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=5)
    assert over.sign_flip_p(values) < 2 / 2**9 / 100
    assert over.sign_flip_p(values[:6]) == 2 / 2**6  # too few flips for a tail


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [7, 20])
@pytest.mark.parametrize("shape", ["normal", "heavy tails"])
def test_sign_flips_hold_their_level(episodes: int, shape: str) -> None:
    over = OverEpisodes(Inference(permutations=999))
    rng = np.random.default_rng(3)
    p = np.array([over.sign_flip_p(SHAPES[shape][0](rng, episodes)) for _ in range(2_000)])
    for level in (0.05, 0.01, 0.001):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level / len(p))


def test_one_more_draw_by_hand() -> None:
    estimate, p, error = from_one_more(10.0, np.array([1.0, 2.0, 3.0]), 0.95)
    assert estimate.value == pytest.approx(8) and error.freedom == 2
    assert error.error == pytest.approx(np.sqrt(4 / 3))
    assert estimate.low == pytest.approx(8 - 4.302653 * np.sqrt(4 / 3), abs=1e-4)
    assert p == pytest.approx(0.0202, abs=1e-3)
    for draws in ([1.0], [2.0, 2.0]):  # without a spread they tell nothing
        estimate, p, error = from_one_more(10.0, np.array(draws), 0.95)
        assert np.isnan(p) and np.isnan(estimate.low) and error.freedom == 0


@pytest.mark.parametrize("count", [2, 3, 8, 20])
def test_one_more_draw_is_called_different_in_one_case_of_twenty(count: int) -> None:
    drawn = np.random.default_rng(count).normal(30, 7, (2000, 1 + count))
    rate = np.mean([from_one_more(float(row[0]), row[1:], 0.95)[1] <= 0.05 for row in drawn])
    assert rate == pytest.approx(0.05, abs=0.015)


def test_ranks_hold_over_many_effects_of_any_distribution() -> None:
    random = np.random.default_rng(0)
    result = [ranks_among(random.beta(0.3, 0.3, (21, 30)) - 0.5).min() <= 0.05 for _ in range(1000)]
    assert 0.02 < np.mean(result) <= 0.065


def test_a_rank_needs_nineteen_others_and_a_size_beyond_all_of_them() -> None:
    random = np.random.default_rng(1)
    effects = random.normal(0, 0.05, (1 + FEWEST_FOR_RANK, 6))
    effects[0, 2] = 0.4
    p = ranks_among(effects)
    assert p[2] == pytest.approx(0.05) and (np.delete(p, 2) > 0.05).all()
    assert ranks_among(effects[:-1])[2] > 0.05 and np.isinf(rank_threshold(effects[:-1])).all()
    threshold = rank_threshold(effects)
    assert ((np.abs(effects[0]) > threshold) == (np.arange(6) == 2)).all()


QUICK = Inference(permutations=499, bootstraps=499)
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


def test_planted_options_follow_beyond_controls_but_not_moves_to_one_side() -> None:
    """Even if most donors are on that side. Only transplants are expected to have random donors."""
    study = study_effects(*planted(), QUICK)
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
    assert abs(result["Move/East"].effect.value) < 0.05
    assert not any("follows" in case.outcome for case in [*study.at_once, *study.effects])
    lines = [line for line in summary_lines(study) if "follows self_food" in line]
    assert len(lines) == 2
    assert "most: Move North, share of ticks above one half +0." in lines[0] and lines[0].endswith("; effect)")
    assert "least: Move South" in lines[1]
    table = effects_table(study)
    named = [dict(zip(table.heads, row, strict=True)) for row in table.rows if row[0] == "follows"]
    assert [item["outcome"] for item in named][:2] == ["follows/self_food/Move/East", "follows/self_food/Move/North"]
    assert named[1]["verdict"] == "effect" and named[1]["random_donors_difference"] > 0.2
    assert not any("random donors" in note for note in study.notes)
    assert not any("same variance" in note for note in study.notes)
    other = study_effects(*plant(Planted(kinds=(SAME,))), QUICK)
    assert not any("random donors" in note for note in other.notes)


def test_broken_pairing_takes_their_verdicts_and_donors_on_one_side_only_leave_no_share() -> None:
    table, arms = planted()
    broken = replace(table, outcomes={**table.outcomes, "ticks": table.outcomes["ticks"] + (table.arm == "no edit")})
    assert {follow.verdict for follow in study_effects(broken, arms, QUICK).follows} == {"pairing is broken"}
    kept = {name: values for name, values in table.outcomes.items() if "follows_higher" not in name}
    assert study_effects(replace(table, outcomes=kept), arms, QUICK).follows == ()


def test_too_few_random_directions_for_a_rank_are_noted() -> None:
    def notes(randoms: int, directions: tuple[str | None, ...]) -> list[str]:
        given = dict.fromkeys(directions, 1.0)
        table, arms = plant(replace(PLANTED, kinds=(RANDOM,), randoms=randoms, directions=given))
        table = shares(table, "North", {arm.name: (0.8, 0.8) for arm in arms if arm.kind != "unedited"})
        result = study_effects(table, arms, QUICK)
        assert {follow.verdict for follow in result.follows} <= {"no more than controls", "undecided"}
        return [note for note in result.notes if note.startswith("No action that follows a variable can count")]

    assert notes(20, (None,)) == []
    assert "with 1 direction, its rank takes 19 random directions, and here are 5." in notes(5, (None,))[0]
    (note,) = notes(20, ("a", "b"))
    assert "2 directions, its rank takes 39 random directions, and here are 20. Play the one" in note


def test_an_option_that_no_random_direction_moves_leaves_others_their_rank() -> None:
    table, arms = plant(replace(PLANTED, kinds=(RANDOM,), randoms=2))
    edit = next(arm for arm in arms if arm.kind == "edit")
    more = [replace(edit, name=f"at once {number}", kind="random direction at once") for number in range(20)]
    lives = table.of_arm(edit.name)
    lives = lives.rows(lives.edited)
    nothing = {name: np.full(len(lives), np.nan) for name in lives.outcomes}
    table = joined([table, *(replace(lives, arm=np.full(len(lives), arm.name), outcomes=nothing) for arm in more)])
    random = {arm.name: (0.5, 0.5) for arm in more}
    north = shares(table, "North", {edit.name: (0.8, 0.8), **random})
    both = shares(north, "South", {edit.name: (0.7, 0.7)})
    alone, beside = ({one.option: one for one in study_effects(of, [*arms, *more], QUICK).follows}
                     for of in (north, both))  # fmt: skip
    assert alone["Move/North"].verdict == beside["Move/North"].verdict == "effect"
    assert beside["Move/South"].verdict == "no controls" and np.isfinite(beside["Move/North"].detectable)


def test_changes_outside_the_data_and_too_few_episodes_are_noted() -> None:
    table, arms = plant(PLANTED)
    part = np.where(table.edited & np.isfinite(table.outcomes["kl_total"]), 0.2, np.nan)
    result = study_effects(replace(table, outcomes={**table.outcomes, "within_data": part}), arms, QUICK)
    assert any(note.startswith("Only part of the squared change lies where") for note in result.notes)
    assert any("change within the span of recorded states (share) 0.2" in line for line in summary_lines(result))
    table, arms = plant(replace(PLANTED, episodes=3))
    table = shares(table, "North", dict.fromkeys([arm.name for arm in arms if arm.kind == "edit"], (0.8, 0.8)))
    notes = study_effects(table, arms, QUICK).notes
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
    return study_effects(with_paths(table, arms, way, kinds), arms, QUICK)


def bends(way: np.ndarray, kinds: tuple[str, ...] = (EDIT,)) -> dict[float | None, Bend]:
    return {bend.dose: bend for bend in bending(way, kinds).bends}


def test_path_that_bends_as_planned_is_an_effect_and_told_and_tabled() -> None:
    bent = bending(8 * SOUTH_EAST)
    assert [bend.dose for bend in bent.bends] == [-2.0, 2.0]
    for bend in bent.bends:
        assert (bend.plan, bend.ticks, bend.episodes, bend.lives) == ("p/lstm_cell", 10, 10, 80)
        assert bend.predicted == pytest.approx(2.0, abs=0.05)
        assert bend.along.low < 0.8 < bend.along.high and bend.along.low > 0.7
        assert bend.across.low < 0 < bend.across.high
        assert bend.angle.low < 0 < bend.angle.high and abs(bend.angle.value) < 10
        assert bend.verdict == "effect"
        assert {control.control for control in bend.against} == {"random directions", "untrained policy"}
    lines = [line for line in summary_lines(bent) if "path" in line]
    assert sum("predicted by p/lstm_cell" in line and "effect" in line for line in lines) == 2
    rows = effects_table(bent).rows
    assert [row[3] for row in rows if row[0] == "bend"] == ["bend/p/lstm_cell/10"] * 2
    assert not any("planned" in case.outcome for case in [*bent.at_once, *bent.effects])


def test_angles_say_to_which_side_and_controls_take_the_verdict() -> None:
    south = bends(8 * np.array([1.0, 0.0]))[2.0]  # a right turn from south-east, seen from above
    assert south.angle.value == pytest.approx(45, abs=8) and south.across.low > 0
    straight = bends(8 * SOUTH_EAST)[2.0]
    wide = np.degrees(straight.across.high - straight.across.low) / straight.along.value
    assert straight.angle.high - straight.angle.low == pytest.approx(wide, rel=0.1), "stretched as other intervals"
    back = bends(-8 * SOUTH_EAST)[2.0]
    assert abs(back.angle.value) > 170 and back.angle.low < back.angle.value < back.angle.high
    assert back.along.high < 0 and back.verdict == "effect"  # beyond controls, though not as predicted
    assert {bend.verdict for bend in bends(8 * SOUTH_EAST, (EDIT, RANDOM)).values()} == {"no more than controls"}
    assert {bend.verdict for bend in bends(np.zeros(2)).values()} == {"undecided"}
    table, arms = plant(WITH_PATHS)
    table = with_paths(table, arms, 8 * SOUTH_EAST)
    table = replace(table, outcomes={name: item for name, item in table.outcomes.items() if "/cols_in" not in name})
    assert study_effects(table, arms, QUICK).bends == ()
