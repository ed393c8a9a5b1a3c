"""Planted effects are found where they were planted and nowhere else, and only where controls do not show them too."""

from dataclasses import replace

import numpy as np
import pytest

from activation_store.interventions import LivesTable
from analysis.interventions.effects.figures import persistence_figure
from analysis.interventions.effects.inference import OverEpisodes
from analysis.interventions.effects.study import EffectsStudy, ranking, study_effects
from analysis.interventions.effects.text import summary_lines
from analysis.statistics.inference import Inference
from analysis.statistics.resampling import half_life
from tests.command import assert_refuses
from tests.planted_interventions import (
    EDIT,
    FOLLOWED_TICKS,
    NO_EDIT,
    RANDOM,
    SAME,
    TWIN,
    UNTRAINED,
    Planted,
    plant,
    with_followed,
)

SETTINGS = Inference(permutations=999, bootstraps=199)
LARGE = Planted(agents=32, edited=16)
STARVING = {"ticks": -25.0, "meals": -0.6}


def study(planted: Planted, seed: int = 0, settings: Inference = SETTINGS) -> EffectsStudy:
    return study_effects(*plant(planted, seed), settings)


def verdicts(result: EffectsStudy) -> dict[str, str]:
    return {effect.outcome: effect.verdict for effect in result.effects}


def test_planted_effects_are_found_and_no_others() -> None:
    result = study(replace(LARGE, per_dose={EDIT: STARVING}))
    assert {name for name, verdict in verdicts(result).items() if verdict == "effect"} == set(STARVING)
    assert set(verdicts(result).values()) == {"effect", "undecided"}
    ticks = next(item for item in result.effects if item.outcome == "ticks")
    assert ticks.effect.low < -25 < ticks.effect.high < 0
    assert ticks.q <= 0.05 and ticks.test == "randomisation over who was edited"
    assert (ticks.episodes, ticks.pairs, ticks.left_out) == (8, 128, 0)
    assert {item.control: len(item.arms) for item in ticks.against} == {
        "random directions": 5, "same variance": 5, "untrained policy": 1,
    }  # fmt: skip
    for control in ticks.against:
        assert abs(control.effect.value) < 8 and control.difference.low < -25 < control.difference.high < 0
    assert not any(item.is_found for item in result.spillovers) and not result.broken
    assert not any("not checked" in note for note in result.notes)


@pytest.mark.parametrize(("control", "ticks"), [(RANDOM, -25.0), (SAME, -25.0), (UNTRAINED, -25.0), (RANDOM, -60.0)])
def test_a_control_that_does_as_much_or_more_takes_the_verdict(control: str, ticks: float) -> None:
    result = study(replace(LARGE, per_dose={EDIT: STARVING, control: {"ticks": ticks}}))
    assert verdicts(result)["ticks"] == "no more than controls"
    assert ticks < -25 or verdicts(result)["meals"] == "effect"


def test_missing_controls_and_those_of_another_dose_are_said_to_be_missing() -> None:
    result = study(replace(LARGE, per_dose={EDIT: STARVING}, kinds=(RANDOM,)))
    assert verdicts(result)["ticks"] == "effect"
    assert any("No control: untrained policy" in note for note in result.notes)
    assert any("not checked" in note for note in result.notes)
    alone = study(replace(LARGE, per_dose={EDIT: STARVING}, kinds=()))
    assert verdicts(alone)["ticks"] == "no controls" and verdicts(alone)["reward"] == "undecided"
    table, arms = plant(replace(LARGE, per_dose={EDIT: STARVING}, kinds=(RANDOM,)))
    arms = [replace(arm, dose=2.0) if arm.kind == "random direction" else arm for arm in arms]
    result = study_effects(table, arms, SETTINGS)
    assert all(effect.against == () for effect in result.effects) and verdicts(result)["ticks"] == "no controls"


def test_directions_edited_one_by_one_are_ranked_and_compared_with_their_own_controls() -> None:
    planted = Planted(
        {EDIT: {"ticks": -25.0}, RANDOM: {"ticks": -20.0}}, doses=(None,), agents=32, edited=16,
        directions={"weak": 0.0, "strong": 2.0, "middle": 0.5},
    )  # fmt: skip
    result = study(planted)
    ranked = ranking(result)
    assert [arm.direction for arm in ranked] == ["strong", "middle", "weak"]
    strong, _, weak = (result.effects_of(arm.name)["ticks"] for arm in ranked)
    assert strong.q < 0.05 < weak.q, "the effects are the planted ones, not one of all directions together"
    random = {arm.direction: result.effects_of(arm.name)["ticks"].against[0] for arm in ranked}
    assert random["strong"].arms == tuple(f"random direction {number}, strong" for number in range(1, 6))
    assert random["strong"].effect.value < -25 < -10 < random["weak"].effect.value
    assert [effect.outcome for effect in result.effects].count("ticks") == 3, "q is corrected over all of them"
    assert ranking(study(Planted(agents=4, edited=2))) == []
    planted = Planted(doses=(None,), agents=4, edited=2, directions={"b": 1.0, "a": 1.0, "c": 2.0})
    table, arms = plant(planted)
    kl = np.where(table.arm == "steer is_starving, b", np.nan, table.outcomes["kl_total"])
    result = study_effects(changed(table, "kl_total", kl), arms, SETTINGS)
    assert [item.direction for item in ranking(result)] == ["c", "a", "b"]


def test_spillover_is_found_in_neighbours_and_what_changes_all_is_no_effect() -> None:
    result = study(replace(LARGE, episodes=12, spilled={"drinks": -1.0}))
    (drinks,) = (spillover for spillover in result.spillovers if spillover.is_found)
    assert drinks.outcome == "drinks"
    assert drinks.effect.low < -1.0 < drinks.effect.high and drinks.pairs == 12 * 16
    assert verdicts(result)["drinks"] == "undecided"  # unedited agents changed, edited ones did not
    result = study(replace(LARGE, per_dose={EDIT: {"ticks": -25.0}}, spilled={"ticks": -25.0}))
    assert verdicts(result)["ticks"] == "undecided"
    result = study(Planted({EDIT: STARVING}, episodes=14, edited=16))
    assert {effect.test for effect in result.effects} == {"sign flips over episodes"}
    assert verdicts(result)["ticks"] == "effect" and verdicts(result)["reward"] == "undecided"
    assert result.spillovers == () and any("no unedited lives" in note for note in result.notes)


NULL = Planted(doses=(1.0, 2.0), kinds=(RANDOM,), randoms=1)


NULLS = {
    "edited of an episode alike": replace(NULL, shared=0.7), "no controls": replace(NULL, kinds=()),
    "few edited": replace(NULL, edited=3, disturbed=(1.0, 0.0)), "plain": NULL,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "seeds"), [("plain", 6), *(pytest.param(name, 40, marks=pytest.mark.slow) for name in NULLS)]
)
def test_at_most_one_run_in_twenty_finds_something_where_nothing_is_planted(name: str, seeds: int) -> None:
    """Beyond chance; without controls even if compared with nothing."""
    settings = Inference(permutations=799, bootstraps=199)
    runs = [study(NULLS[name], seed, settings) for seed in range(seeds)]
    found = [any(effect.verdict in ("effect", "no controls") for effect in run.effects) for run in runs]
    assert np.mean(found) <= 0.05


def test_broken_pairing_takes_all_verdicts() -> None:
    table, arms = plant(replace(LARGE, per_dose={EDIT: STARVING}))
    for outcome, difference in (("meals", 1e-6), ("kl_total", 1e-3), ("value_change_in_play", 1e-3)):
        values = table.outcomes[outcome].copy()
        values[np.flatnonzero((table.arm == "no edit") & table.edited)[5]] += difference
        result = study_effects(changed(table, outcome, values), arms, SETTINGS)
        assert result.broken == {"no edit": outcome}
        assert set(verdicts(result).values()) == {"pairing is broken"}


def test_pairs_without_a_value_are_left_out_and_counted() -> None:
    table, arms = plant(replace(LARGE, per_dose={EDIT: STARVING}))
    values = table.outcomes["ticks"].copy()
    edit = next(arm for arm in arms if arm.kind == "edit")
    gone = (table.arm == edit.name) & (table.episode == 3) & table.edited
    values[gone] = np.nan
    values[np.flatnonzero((table.arm == TWIN.name) & (table.episode == 0) & table.edited)[:2]] = np.nan
    # The arm that edits nothing must lack the same lives as the twin.
    values[np.flatnonzero((table.arm == "no edit") & (table.episode == 0) & table.edited)[:2]] = np.nan
    result = study_effects(changed(table, "ticks", values), arms, SETTINGS)
    ticks = next(effect for effect in result.effects if effect.outcome == "ticks")
    assert (ticks.episodes, ticks.pairs, ticks.left_out) == (7, 128 - 18, 18)
    assert ticks.effect.low < -25 < ticks.effect.high and not result.broken
    assert any(note.startswith("ticks lived: 18 of 128 pairs") for note in result.notes)


def test_outcomes_at_once_are_levels_beside_those_of_controls() -> None:
    result = study(LARGE)
    assert persistence_figure(result) is None, "nothing was followed"
    at_once = {level.outcome: level for level in result.at_once}
    assert {
        "kl_total", "kl_in_play", "kl_total/Move", "value_change_total", "gain_total/Move/North", "off_manifold",
        "edited_ticks",
    } <= set(at_once)  # fmt: skip
    assert set(at_once).isdisjoint(effect.outcome for effect in result.effects)
    value = at_once["value_change_total"]
    assert value.level.value == pytest.approx(-0.4, abs=0.03) and value.lives == 128
    random = next(control for control in value.against if control.control == "random directions")
    assert random.effect.value == pytest.approx(-0.06, abs=0.02) and random.difference.high < -0.3
    assert at_once["edited_ticks"].level.value == 50


def test_unknown_outcomes_are_studied_too() -> None:
    table, arms = plant(replace(LARGE, per_dose={EDIT: STARVING}))
    more = {**table.outcomes, "gold_held": table.outcomes["ticks"] * 2, "entropy_change": table.outcomes["kl_total"]}
    result = study_effects(replace(table, outcomes={**more, "never": np.full(len(table), np.nan)}), arms, SETTINGS)
    assert verdicts(result)["gold_held"] == "effect"
    assert "entropy_change" in {item.outcome for item in result.at_once}
    assert "never" not in {*verdicts(result), *(item.outcome for item in result.at_once)}


def test_few_episodes_draws_and_far_states_are_noted() -> None:
    few = study(Planted(episodes=3), settings=Inference(permutations=99, bootstraps=99))
    assert any(note.startswith("Only 3 episodes") for note in few.notes)
    assert any("99 permutations are too few for 11 tests" in note for note in few.notes)
    one = study(Planted(episodes=1))
    assert all(np.isnan(effect.effect.low) and effect.verdict == "undecided" for effect in one.effects)
    (note,) = [note for note in study(Planted(doses=(1.0, 3.0))).notes if note.startswith("Edited states lie further")]
    assert "ones: 1.9 times, steer is_starving, dose +3. The" in note
    assert not any(note.startswith(("Edited states", "Nobody was edited")) for note in study(Planted()).notes)
    table, arms = plant(Planted(agents=4, edited=2))
    waiting = np.where(table.arm == "steer is_starving, dose +1", np.nan, table.outcomes["edited_ticks"])
    never = changed(table, "edited_ticks", waiting)
    (note,) = [item for item in study_effects(never, arms, SETTINGS).notes if item.startswith("Nobody was edited")]
    assert note.startswith("Nobody was edited in any tick (steer is_starving, dose +1): ")
    table, arms = plant(Planted())
    kept = [arm for arm in arms if arm.kind != "edit"]
    fewer = table.rows(np.isin(table.arm, [arm.name for arm in kept]))
    assert_refuses("no arm with an edit of the trained policy", study_effects, fewer, kept, SETTINGS)


def test_dose_response_has_the_planted_slope_and_shape() -> None:
    planted = replace(LARGE, per_dose={EDIT: {"ticks": -10.0}}, doses=(-1.0, 1.0, 2.0, 4.0), kinds=(RANDOM, NO_EDIT))
    result = study(planted)
    slopes = {response.outcome: response for response in result.dose_responses}
    ticks = slopes["ticks"]
    assert ticks.doses == (-1.0, 1.0, 2.0, 4.0)
    assert ticks.slope.low < -10 < ticks.slope.high < 0 and ticks.is_found and ticks.shape == "falls with every dose"
    assert ticks.against is not None and ticks.against.difference.low < -10 < ticks.against.difference.high < 0
    assert abs(ticks.against.effect.value) < 2 and len(ticks.random) == 4
    assert [name for name, response in slopes.items() if response.is_found and not response.at_once] == ["ticks"]
    assert slopes["value_change_total"].slope.value == pytest.approx(-0.4, abs=0.03)
    kl = slopes["kl_total"]
    assert kl.shape == "rises with every dose" or kl.effects[0].value > kl.effects[1].value
    table, arms = plant(Planted(doses=(1.0, 3.0), kinds=()))
    responses = study_effects(table, arms, SETTINGS).dose_responses
    result = next(response for response in responses if response.outcome == "ticks")
    assert result.slope.value == pytest.approx((result.effects[1].value - result.effects[0].value) / 2)
    assert study(Planted(kinds=())).dose_responses == () and study(Planted(doses=(None,))).dose_responses == ()
    result = study(replace(LARGE, doses=(-3.0, -1.0, 1.0, 3.0), kinds=()))
    kl = next(response for response in result.dose_responses if response.outcome == "kl_total")
    assert kl.shape == "rises and falls" and kl.random == () and kl.against is None


def test_a_slope_that_random_directions_have_too_is_said_to_be_no_more() -> None:
    slopes = {EDIT: {"ticks": -10.0, "meals": -0.4}, RANDOM: {"ticks": -10.0}}
    result = study(replace(LARGE, per_dose=slopes, doses=(-2.0, 1.0, 2.0), kinds=(RANDOM,)))
    ticks, meals = (response for response in result.dose_responses if response.outcome in ("ticks", "meals"))
    assert ticks.is_found and not ticks.beyond_random and meals.is_found and meals.beyond_random
    assert any(line.startswith("  no more than random directions: ticks lived") for line in summary_lines(result))


def changed(table: LivesTable, outcome: str, values: np.ndarray) -> LivesTable:
    return replace(table, outcomes={**table.outcomes, outcome: values})


def study_with(rate: float) -> EffectsStudy:
    return study_effects(*with_followed(*plant(Planted()), rate), Inference(permutations=199, bootstraps=199))


def test_the_planted_half_life_is_within_its_interval_if_there_is_one() -> None:
    study = study_with(0.5**0.5)  # half is left after two ticks
    figure = persistence_figure(study)
    assert figure is not None and [axes.get_title() for axes in figure.axes] == ["cell state"]
    (result,) = study.persistences
    assert result.what == "cell" and result.episodes == 8 and len(result.left) == FOLLOWED_TICKS + 1
    assert result.half_life.low <= 2 <= result.half_life.high
    assert result.half_life.high - result.half_life.low < 0.5
    assert not any("lasting" in case.outcome for case in (*study.effects, *study.at_once, *study.spillovers))
    assert any("cell state: 2.0 ticks" in line or "cell state: 1.9 ticks" in line for line in summary_lines(study))
    study = study_with(1.0)
    assert study.persistences[0].half_life.value == np.inf
    assert any(f"more than {FOLLOWED_TICKS} ticks" in line for line in summary_lines(study))


def test_what_is_left_is_followed_while_agents_live_and_beyond_rounding() -> None:
    table, arms = with_followed(*plant(Planted()), 0.5**0.5)
    for lag in range(5, FOLLOWED_TICKS + 1):
        table.outcomes[f"lasting/cell/{lag}"][table.episode == table.episode[0]] = np.nan  # type: ignore[index]
    (result,) = study_effects(table, arms, Inference(permutations=99, bootstraps=99)).persistences
    assert result.episodes == 8 and len(result.left) == 5 and result.half_life.value == pytest.approx(2, abs=0.1)
    third = table.outcomes["lasting/cell/3"]
    there = np.array([np.nanmean(third[table.episode == number]) for number in range(8)])
    mean = OverEpisodes(Inference(permutations=99, bootstraps=99)).estimate(there)
    assert (result.left[3].low, result.left[3].high) == pytest.approx((mean.low, mean.high)), "as wide as of any mean"
    for values in (table.outcomes[f"lasting/cell/{lag}"] for lag in range(FOLLOWED_TICKS + 1)):
        values[table.episode > 0] = np.nan  # type: ignore[index]
    study = study_effects(table, arms, Inference(permutations=99, bootstraps=99))
    (result,) = study.persistences
    assert result.episodes == 1 and np.isnan([result.half_life.low, result.left[3].high]).all()
    assert any("ticks (no interval)" in line for line in summary_lines(study))
    table, arms = with_followed(*plant(Planted()), 0.5)
    for lag in range(FOLLOWED_TICKS + 1):
        table.outcomes[f"lasting/actions/{lag}"] = table.outcomes[f"lasting/cell/{lag}"] * 1e-7  # type: ignore[index]
    study = study_effects(table, arms, Inference(permutations=99, bootstraps=99))
    assert [persistence.what for persistence in study.persistences] == ["cell"]


def test_half_lives_by_hand() -> None:
    left = ([1, 0.75, 0.5, 0.1], [4, 3, 1, 0], [1, 0], [1, 0.9, 0.8], [1, 0.6, 0.4, 0.6])
    assert [half_life(np.array([one], dtype=float)).item() for one in left] == pytest.approx([2, 1.5, 0.5, np.inf, 1.5])
