"""Lives are paired or refused, tests on pairs hold their level, and directions that all do something are no effect."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from activation_store.interventions import Arm, LivesTable
from analysis.interventions.effects.controls import against, edits
from analysis.interventions.effects.effects import Effect
from analysis.interventions.effects.inference import Condition, OverEpisodes, detectable, episodes_needed, planned_lines
from analysis.interventions.effects.outcomes import equivalence_p, margins
from analysis.interventions.effects.pairs import Pairs, check_arms, paired, randomisation_test
from analysis.interventions.effects.study import EffectsStudy, study_effects
from analysis.interventions.effects.text import summary_lines
from analysis.interventions.outputs import effects_table
from analysis.statistics.inference import Inference
from benchmarks.null_rates_controls import all_random, shares_at_random
from tests.command import assert_refuses
from tests.planted_interventions import EDIT, NO_EDIT, RANDOM, TWIN, UNTRAINED, UNTRAINED_TWIN, Planted, joined, plant

SETTINGS = Inference(permutations=999, bootstraps=199)
LARGE = Planted({EDIT: {"ticks": -25.0}}, kinds=(RANDOM,), randoms=8, agents=32, edited=16)


def study(planted: Planted, within: str = "", seed: int = 0) -> EffectsStudy:
    return study_effects(*plant(planted, seed), SETTINGS, margins(within))


def named(result: EffectsStudy) -> dict[str, Effect]:
    return {effect.outcome: effect for effect in result.effects}


def test_directions_that_all_do_something_are_no_effect() -> None:
    """Each is as large as an effect would be; the difference to their mean leaves 0 out in two runs of three."""
    runs = [all_random(np.random.default_rng(run), replace(SETTINGS, seed=run), 3, 1) for run in range(20)]
    assert sum(item["effect"] for item in runs) <= 3  # more than 3 of 20 at 5% in 1.6% of such tests
    runs = [shares_at_random(np.random.default_rng(run), SETTINGS) for run in range(8)]
    assert sum(item["effect"] for item in runs) <= 2


def test_a_single_random_direction_is_no_control() -> None:
    one = study(replace(LARGE, randoms=1))
    ticks = named(one)["ticks"]
    assert ticks.verdict == "no controls" and np.isnan(ticks.against[0].difference.low)
    assert any(note.startswith("Only one control of the kind 'random directions' was played") for note in one.notes)
    several = study(LARGE)
    assert named(several)["ticks"].verdict == "effect" and not any("One draw" in note for note in several.notes)
    assert named(several)["ticks"].against[0].as_large == 0


@pytest.mark.parametrize("randoms", [0, 1])
def test_without_a_distribution_of_random_directions_nothing_could_be_found(randoms: int) -> None:
    result = study(replace(LARGE, randoms=randoms, kinds=(RANDOM, UNTRAINED), doses=(1.0, 2.0)))
    assert {item.verdict for item in result.effects} == {"undecided", "no controls"}
    assert all(np.isinf(item.detectable) for item in result.effects)
    slopes = [item for item in result.dose_responses if not item.at_once]
    assert all(np.isinf(item.detectable) for item in slopes) and any(item.is_found for item in slopes)
    assert not any(item.beyond_random for item in slopes)
    assert any(line.startswith("  no controls: ticks lived, per unit of dose -") for line in summary_lines(result))
    assert any(note.startswith("Without random directions nothing can") for note in result.notes) == (randoms == 0)


def test_random_directions_that_all_do_nothing_are_controls() -> None:
    rng = np.random.default_rng(0)
    effect, theirs = rng.normal(2, 0.5, 8), np.zeros((8, 8))
    over = OverEpisodes(SETTINGS)
    same = against("random directions", ["a"] * 8, effect, theirs, over)
    assert same.p == over.difference(effect)[1] < 0.001 and same.freedom == 7 and same.as_large == 0
    assert np.isnan(against("random directions", ["a"], effect, theirs[:1], over).p)


def test_broken_pairing_leaves_no_slope_and_no_spillover() -> None:
    table, arms = plant(replace(LARGE, kinds=(RANDOM, NO_EDIT), doses=(1.0, 2.0), spilled={"meals": -1.0}))
    ticks = table.outcomes["ticks"] + (table.arm == "no edit")
    result = study_effects(replace(table, outcomes={**table.outcomes, "ticks": ticks}), arms, SETTINGS)
    lines = summary_lines(result)
    assert any(line.startswith("PAIRING IS BROKEN: the arm 'no edit'") for line in lines)
    assert any(line.startswith("  pairing is broken: ticks lived; ") for line in lines)
    assert not any("per unit of dose" in line or "unedited neighbours: " in line for line in lines)
    assert {row[18] for row in effects_table(result).rows if row[0] in ("slope", "spillover")} == {"pairing is broken"}


def test_a_negative_says_what_could_have_been_found() -> None:
    result = study(LARGE)
    reward = named(result)["reward"]
    assert reward.verdict == "undecided" and 0 < reward.detectable < 3
    text = "\n".join(summary_lines(result))
    assert f"undecided: reward (detectable: {reward.detectable:.3f})" in text
    assert "not found" not in text and "unedited neighbours, undecided: ticks lived (" in text
    fewer = named(study(replace(LARGE, episodes=3)))["reward"]
    assert fewer.detectable > 2 * reward.detectable
    lines = summary_lines(study(replace(LARGE, episodes=1)))
    (line,) = (line for line in lines if line.startswith("  undecided: "))
    assert "reward (detectable effect unknown)" in line and "no difference" not in line
    two = study(replace(LARGE, randoms=2))  # whose spread is hardly known: it takes more than all of the task
    assert 1 < named(two)["task_progress"].detectable < np.inf
    assert "task progress (no effect is detectable)" in "\n".join(summary_lines(two))


def test_a_smaller_effect_than_the_margin_is_equivalent_to_none() -> None:
    result = study(LARGE, "0.5,ticks=10")
    of = named(result)
    assert of["ticks"].verdict == "effect" and of["ticks"].margin == 10
    assert of["meals"].verdict == "equivalent to none" and of["meals"].margin == pytest.approx(0.5 * of["meals"].spread)
    assert of["meals"].words.startswith("equivalent to none within 0.4")
    assert any(line.startswith("  equivalent to none: reward (total) ") for line in summary_lines(result))
    narrow = named(study(LARGE, "meals=0.0001"))
    assert narrow["meals"].verdict == "undecided" and np.isnan(narrow["reward"].margin)
    assert equivalence_p(-2.0, 1.0, 10, 5.0) == pytest.approx(0.00667, abs=1e-4)  # t = 3
    assert equivalence_p(5.0, 1.0, 10, 5.0) == 0.5
    assert np.isnan(equivalence_p(1.0, np.nan, 0, 5.0)) and np.isnan(equivalence_p(1.0, 1.0, 9, np.nan))


def test_margins_are_read_and_wrong_ones_refused() -> None:
    read = margins("0.1, ticks=10,died_of/starved=0.05")
    assert read.of("ticks", 200) == 10 and read.of("meals", 8) == pytest.approx(0.8)
    assert np.isnan(margins("").of("ticks", 200)) and np.isnan(margins("ticks=3").of("meals", 8))
    for case in ("0", "ticks", "ticks=-1", "tics=3", "ticks=nan", "0.1,0.2", "ticks=1,ticks=2", "=3"):
        assert_refuses("--equivalent-within", margins, case)
    for case in ("level=1", "follows=0.1", "bend=1"):
        assert_refuses("this run has no '" + case.partition("=")[0], study, LARGE, case)


def test_detectable_effect_is_found_in_four_of_five() -> None:
    size = detectable([Condition(1.0, 23)], tests=1)
    assert size == pytest.approx(2.93, abs=0.05)  # (2.07 + 0.86) standard errors
    random = np.random.default_rng(0)
    samples = random.normal(size / 1.0 / np.sqrt(24), 1.0, (4000, 24))
    t = samples.mean(axis=1) / samples.std(axis=1, ddof=1) * np.sqrt(24)
    assert np.mean(np.abs(t) > 2.0687) == pytest.approx(0.8, abs=0.03)
    assert detectable([Condition(1.0, 23), Condition(1.0, 2)], 1) > 1.5 * size
    assert detectable([Condition(1.0, 23)], 16) > size
    assert np.isinf(detectable([Condition(1.0, 3)], 16, smallest_p=0.125))
    assert np.isnan(detectable([Condition(np.nan, 0)], 1))


def test_what_a_run_can_find_is_said_before_it_is_played() -> None:
    def lines(episodes: int, drawn: int = 64, randoms: int = 8, horizon: int = 1024) -> str:
        arms = Planted(kinds=(RANDOM,), randoms=randoms).arms()
        return "\n".join(planned_lines(arms, episodes, drawn, 128, horizon))

    assert "CAN ONLY BE UNDECIDED" not in lines(24)
    assert "CAN ONLY BE UNDECIDED on the ticks lived" in lines(4, drawn=8)
    assert lines(4, drawn=8, horizon=32).endswith("not known in advance: episodes of 32 ticks end before most lives do")
    assert "CAN ONLY BE UNDECIDED: with every agent edited, 4 episodes" in lines(4, drawn=128)
    assert "CAN ONLY BE UNDECIDED: a single random arm is not a control" in lines(24, randoms=1)
    assert lines(24, randoms=0).startswith("CAN ONLY BE UNDECIDED: no random arm")
    assert "50 ticks take more than 100,000 episodes and 25 ticks take more than" in lines(4, drawn=1, randoms=2)
    needed = episodes_needed(50, 64, [8], 16)
    assert f"50 ticks take about {needed} episodes" in lines(4) and 5 < needed < 30
    assert episodes_needed(25, 64, [8], 16) > 3 * needed


def test_controls_at_once_are_compared_with_at_once_alone() -> None:
    table, arms = plant(replace(LARGE, randoms=2, doses=(None,)))
    edit = next(arm for arm in arms if arm.kind == "edit")
    more = [replace(edit, name=f"random {n} at once", kind="random direction at once") for n in range(20)]
    lives = table.of_arm(edit.name)
    lives = lives.rows(lives.edited)
    rows = []
    for place, arm in enumerate(more):
        outcomes = {name: np.full(len(lives), np.nan) for name in lives.outcomes}
        outcomes["kl_in_play"] = 0.01 * (1 + place) + 1e-4 * lives.episode
        rows.append(replace(lives, arm=np.full(len(lives), arm.name), outcomes=outcomes))
    result = study_effects(joined([table, *rows]), [*arms, *more], SETTINGS)
    kl = next(item for item in result.at_once if item.outcome == "kl_in_play")
    larger = sum(0.01 * (1 + place) >= kl.level.value for place in range(20))
    assert len(kl.against[0].arms) == 20 and kl.against[0].as_large == larger
    assert len(named(result)["ticks"].against[0].arms) == 2
    off = next(item for item in result.at_once if item.outcome == "off_manifold")
    assert len(off.against[0].arms) == 2, "what was not measured at once is compared with arms that were played"
    assert result.lives == len(table) and "4 arms, " in summary_lines(result)[0]


EDITED = Arm("edit", "edit", "trained", 1.0, TWIN.name)


def test_means_over_the_lives_of_each_episode_whatever_the_order_of_rows() -> None:
    table, arms = plant(Planted(episodes=3, kinds=()))
    (pairs,) = paired(table, arms)
    lives = np.arange(48.0)
    lives[[*range(16), 20]] = np.nan
    chosen = np.arange(48) % 2 == 0
    expected = [np.nan, np.mean([16, 18, *range(22, 32, 2)]), np.mean(np.arange(32, 48, 2))]
    assert pairs.episode_means(lives, chosen) == pytest.approx(expected, nan_ok=True)
    table, arms = plant(Planted(episodes=3))
    shuffled = table.rows(np.random.default_rng(1).permutation(len(table)))
    for one, other in zip(paired(table, arms), paired(shuffled, arms), strict=True):
        assert one.arm == other.arm
        np.testing.assert_array_equal(one.difference("ticks"), other.difference("ticks"))


def test_lives_that_cannot_be_paired_and_other_arms_are_refused() -> None:
    table, planted_arms = plant(Planted(episodes=3, kinds=()))
    number = np.arange(len(table))
    last, first_of_edit = number == number[-1], number == (table.arm != TWIN.name).argmax()
    nobody = np.zeros(len(table), bool)
    for broken, message in (
        (table.rows(~last), "agent 16 of episode 2 has no life in the arm 'steer is_starving"),
        (table.rows(number != 0), "agent 1 of episode 0 has no life in the arm 'unedited'"),
        (table.rows(np.r_[0, number]), "agent 1 of episode 0 has two lives"),
        (table.rows(table.arm == TWIN.name), "no lives of the arm 'steer is_starving"),
        (
            replace(table, arm=np.where(last, "somewhere", table.arm)),
            "lives of an arm 'somewhere' that the run does not",
        ),
        (replace(table, edited=table.edited ^ first_of_edit), "agent 1 of episode 0 is drawn to be edited in only one"),
        (replace(table, edited=nobody), "nobody is edited in the arm 'steer is_starving"),
    ):
        assert_refuses(message, paired, broken, planted_arms)
    for arms, message in (
        ([TWIN, EDITED, EDITED], "two arms are called 'edit'"),
        ([EDITED], "'edit' needs an unedited arm of the trained policy"),
        ([TWIN, UNTRAINED_TWIN, replace(EDITED, twin=UNTRAINED_TWIN.name)], "needs an unedited arm of the trained"),
        ([TWIN, EDITED, replace(EDITED, name="again", twin="edit")], "'again' needs an unedited arm"),
        ([TWIN, EDITED, replace(EDITED, name="again")], "both edits of the trained policy with dose 1.0"),
    ):
        assert_refuses(message, check_arms, arms)


OUTCOMES = ("ticks", "reward", "task_progress", "meals", "drinks", "damage_dealt", "damage_taken")
NULLS = {
    "half edited": Planted(kinds=()),
    "few edited, whom the edit unsettles": Planted(kinds=(), edited=2, disturbed=(1.0, 0.0)),
    "all edited of an episode alike": Planted(kinds=(), shared=1.0),
}


def p_values(planted: Planted, seeds: int) -> np.ndarray:
    """Return the p-values of planted tests, (seeds, outcomes)."""
    tests = []
    for seed in range(seeds):
        (pairs,) = edits(paired(*plant(planted, seed)))
        settings = Inference(permutations=199, seed=seed)
        tests.append(randomisation_test(pairs, pairs.differences(OUTCOMES), settings)[1])
    return np.array(tests)


@pytest.mark.parametrize("name", NULLS)
@pytest.mark.parametrize(
    ("seeds", "most", "at_one_percent"), [(25, 0.12, 1), pytest.param(200, 0.07, 0.02, marks=pytest.mark.slow)]
)
def test_null_is_rejected_as_often_as_stated(name: str, seeds: int, most: float, at_one_percent: float) -> None:
    p = p_values(NULLS[name], seeds)
    assert (p <= 0.05).mean() < most and (p <= 0.01).mean() < at_one_percent


def test_planted_effect_is_found_and_measured() -> None:
    (pairs,) = edits(paired(*plant(Planted({"edit": {"ticks": -30}}, kinds=(), agents=32, edited=16))))
    contrast, p = randomisation_test(pairs, pairs.differences(OUTCOMES), Inference(permutations=999))
    assert contrast[0] == pytest.approx(-30, abs=8) and p[0] <= 0.002
    assert (p[1:] > 0.01).all()
    change = pairs.difference("ticks")
    episodes = [pairs.episode == place for place in range(len(pairs.episodes))]
    by_hand = [change[pairs.edited & here].mean() - change[~pairs.edited & here].mean() for here in episodes]
    assert contrast[0] == pytest.approx(np.mean(by_hand))


def test_p_counts_ways_to_draw_the_edited_and_missing_lives_are_left_out() -> None:
    """One episode of six, three edited, all of whom gain: of 20 ways to draw them, the true and its opposite."""
    edited = np.array([True, False, True, False, True, False])
    pairs = small_pairs(edited, np.where(edited, [3.0, 0, 4, 0, 5, 0], 0.0))
    (contrast,), (p,) = randomisation_test(pairs, pairs.differences(["gain"]), Inference(permutations=19_999))
    assert contrast == pytest.approx(4) and p == pytest.approx(2 / comb(6, 3), abs=0.01)
    (contrast,), _ = gains_tested(edited, np.array([3.0, 0, np.nan, 0, 5, 1]))
    assert contrast == pytest.approx(4 - 1 / 3)
    (contrast,), (p,) = gains_tested(edited, np.zeros(6))
    assert contrast == 0 and np.isnan(p)
    assert np.isnan(gains_tested(np.ones(6, bool), np.arange(6.0))).all()


def gains_tested(edited: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = small_pairs(edited, gain)
    return randomisation_test(pairs, pairs.differences(["gain"]), Inference(permutations=99))


def small_pairs(edited: np.ndarray, gain: np.ndarray) -> Pairs:
    """Return one episode in which the twin's outcome is 1 everywhere."""
    count = len(edited)
    arm, agent = np.repeat([TWIN.name, EDITED.name], count), np.tile(np.arange(count), 2)
    outcomes = {"gain": np.concatenate([np.ones(count), 1 + gain])}
    table = LivesTable(arm, np.zeros(2 * count, np.int64), agent, np.tile(edited, 2), outcomes)
    (pairs,) = paired(table, [TWIN, EDITED])
    return pairs
