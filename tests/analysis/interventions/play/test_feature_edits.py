"""Sparse features and erasers in the running game: exact strengths, planted causes, splicing, and what can be read."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.interventions import LIVES_FILE, LivesTable, read_lives
from activation_store.selection import Subsample
from activation_store.sparse_dictionary import write_dictionary
from agent_zoo.memory import MemoryState
from agent_zoo.sparse_codes import SparseCoder
from analysis.interventions.edits.edit import Edit
from analysis.interventions.edits.edit_options import RunOptions
from analysis.interventions.edits.linear_readings import JointMoments, Reading, StateMoments, fitted_eraser
from analysis.interventions.edits.state_edits import Eraser, FeatureEdit, check_dictionary
from analysis.interventions.outputs import report_run
from analysis.interventions.play.edited_play import PlayedGroup
from analysis.interventions.play.experiment import (
    AT_ONCE_CONTROLS,
    ArmPlan,
    Experiment,
    When,
    feature_condition,
    like_selection,
    rule_in_words,
    selection_rule,
)
from analysis.interventions.play.intervention_run import play
from analysis.runs.propagated_labels import rule_from
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.workers import Workers
from tests.command import assert_refuses
from tests.driven import DRIVER, UNITS, drive, lives_of
from tests.driven import played as played_group
from tests.planted import planted_dump, write_planted
from tests.planted_features import axes
from tests.planted_run import labelled_run, saved_selection
from tests.tiny_policies import tiny_entrant

NORTH = "gain_total/Move.Direction/North"
STATES = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))


def test_features_get_exact_strengths_and_the_rest_stays() -> None:
    dictionary = axes("lstm_cell", 6)
    edit = FeatureEdit(dictionary, (2, 3), 1.5)
    edited = edit.apply(STATES)
    # A unit that pointed down keeps its other feature, so that feature 2 adds to it.
    torch.testing.assert_close(edited[:, 2], 1.5 + STATES[:, 2].clamp(max=0))
    torch.testing.assert_close(edited[:, [0, 1, 4, 5]], STATES[:, [0, 1, 4, 5]])
    removed = FeatureEdit(dictionary, (2,)).apply(STATES)
    assert float(SparseCoder(dictionary).strengths(removed)[:, 2].abs().max()) == 0
    np.testing.assert_allclose(edit.axes() @ edit.axes().T, np.eye(2), atol=1e-6)
    torch.testing.assert_close(FeatureEdit(axes("lstm_cell", 6)).apply(STATES), STATES)
    poor = FeatureEdit(axes("lstm_cell", 6, k=1)).apply(STATES)
    assert float((poor != 0).sum(dim=1).max()) == 1


def test_features_are_edited_one_by_one() -> None:
    """Each arm edits one feature of the run's, and its random direction moves states as far, along another axis."""
    collapse = Edit("collapse", features=FeatureEdit(axes("lstm_hidden", 6), (2, 4)))
    experiment = Experiment(RunOptions(controls=1, one_by_one=True), (collapse,), 4)
    arms = [arm for arm in experiment.arms() if arm.direction]
    assert [(arm.name, arm.direction) for arm in arms if arm.kind == "edit" and arm.policy == "trained"] == [
        ("edit, feature_2", "feature_2"), ("edit, feature_4", "feature_4"),
    ]  # fmt: skip
    moments = {"lstm_hidden": StateMoments.of(STATES.numpy())}
    moved = {arm.name: experiment.plan(arm, moments).states[0].apply(STATES) - STATES for arm in arms}
    for number in (2, 4):
        change = moved[f"edit, feature_{number}"]
        assert set(change.nonzero()[:, 1].tolist()) == {number}
        torch.testing.assert_close(moved[f"random direction 1, feature_{number}"].norm(dim=1), change.norm(dim=1))
    axis = [torch.linalg.svd(moved[f"random direction 1, feature_{number}"])[2][0] for number in (2, 4)]
    assert abs(float(axis[0] @ axis[1])) < 0.99, "each feature has a random direction of its own"


def lives(pool: PolicyPool, plan: ArmPlan) -> LivesTable:
    return lives_of(pool, Group(4, (0, 1)), plan).of_arm(plan.name)


def test_only_while_a_feature_is_strong(pool: PolicyPool) -> None:
    dictionary = axes("lstm_hidden", UNITS)
    edit = FeatureEdit(dictionary, (DRIVER,), 0.9)

    def edits(comparison: str, number: float) -> np.ndarray:
        condition = feature_condition(f"feature_{DRIVER} {comparison} {number}", dictionary, ("lstm_hidden",))
        result = lives(pool, ArmPlan("edit", 4, When(condition=condition), states=(edit,)))
        return np.isfinite(result.outcomes.get("kl_total", np.full(len(result), np.nan)))

    assert edits(">=", 0).sum() == 8 and edits(">", 1_000_000).sum() == 0
    # An edit that begins with the empty memory of a new life sets what the condition looks for in every later tick.
    memory = MemoryState(torch.eye(UNITS)[None, :3], torch.zeros(1, 3, UNITS))
    strong = feature_condition("feature_1 > 0.5", dictionary, ("lstm_hidden",))
    assert strong(np.zeros((3, 0)), (), 0, memory).tolist() == [False, True, False]


def test_only_while_the_memory_is_like_a_selection(pool: PolicyPool) -> None:
    """A third of the planted states have a large first unit; memories are like them, or not."""
    states = np.random.default_rng(0).standard_normal((60, UNITS)).astype(np.float32)
    selected = np.arange(60) % 3 == 0
    states[:, 0] += np.where(selected, 20, -20)
    rule = rule_from(states, selected.astype(np.int64), np.arange(60) // 6)
    condition = partial(like_selection, "lstm_hidden", rule)
    memory = MemoryState(torch.from_numpy(states[None, 3:6]), torch.zeros(1, 3, UNITS))
    assert condition(np.zeros((3, 0)), (), 0, memory).tolist() == [True, False, False]
    assert "right for 100.0% of states" in rule_in_words("lstm_hidden", rule)
    edit = FeatureEdit(axes("lstm_hidden", UNITS), (DRIVER,), 0.9)
    result = lives(pool, ArmPlan("edit", 4, When(condition=condition), states=(edit,)))
    assert np.isnan(result.outcomes.get("kl_total", np.array(np.nan))).all(), "no memory in play is like those"


def test_doses_are_those_of_the_edit_that_steers() -> None:
    """Features that another edit of the same run takes out stay out."""
    dictionary = axes("lstm_cell", 6)
    steered, out = (FeatureEdit(dictionary, (number,)) for number in (1, 2))
    edits = Edit("steer", features=steered), Edit("collapse", features=out)
    experiment = Experiment(RunOptions(dose="5", controls=0), edits, 4)
    moments = {"lstm_cell": StateMoments.of(np.random.default_rng(0).standard_normal((50, 6)))}
    (arm,) = (item for item in experiment.arms() if item.kind == "edit" and item.policy == "trained")
    result = experiment.plan(arm, moments).states
    assert [item.strength for item in result] == [5, 0]  # type: ignore[union-attr]


def test_dictionaries_and_selections_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    dictionary = axes("lstm_cell", 6)
    check_dictionary(dictionary, {"lstm_cell": 6}, "kit", "1" * 64)
    message = r"features of lstm_cell, 6 units, of planted; kit has lstm_cell \(8\)"
    assert_refuses(message, check_dictionary, dictionary, {"lstm_cell": 8}, "kit", None)
    other = replace(dictionary, source=replace(dictionary.source, checkpoint_sha256="2" * 64))
    assert_refuses("was fitted to another policy", check_dictionary, other, {"lstm_cell": 6}, "kit", "1" * 64)
    outside, memory = axes("encoder_output", 6), ("lstm_hidden", "lstm_cell")
    assert_refuses("not part of the memory", feature_condition, "feature_3 > 0", outside, memory)
    dump = write_planted(tmp_path / "dump", planted_dump(agents=2, episodes=1, ticks=20))
    run = labelled_run(tmp_path / "run", dump, lambda records: 0 * records.tick, Subsample())
    file = saved_selection(tmp_path / "one.json", run)
    assert_refuses("action_decoder is not part of the memory", selection_rule, file, memory, None)


@pytest.mark.slow
def test_a_whole_run_with_features(three_policies: Path, small_world, tmp_path: Path) -> None:
    units = 32
    path = tmp_path / "f.safetensors"
    write_dictionary(path, axes("lstm_cell", units, k=2))
    shared = {
        "policy": "kit", "features": path, "episodes": 2, "seed": 3, "controls": 1, "share": 0.25, "max_steps": 24,
        "policies_dir": three_policies, "maps_dir": small_world.maps_dir,
    }  # fmt: skip
    spliced = RunOptions(edit="splice", output=tmp_path / "splice", **shared)  # type: ignore[arg-type]
    play(spliced, Workers(1))
    result = read_lives(spliced.folder / LIVES_FILE)
    arms = set(result.arm.tolist())
    at_once = {name for name in arms if name.endswith(" at once")}
    assert arms - at_once == {
        "unedited", "untrained, unedited", "no edit", "edit", "untrained, edit", "random direction 1"
    } and len(at_once) == AT_ONCE_CONTROLS  # fmt: skip
    assert np.nanmean(result.of_arm("edit").outcomes["kl_total"]) > 0
    assert np.nanmax(result.of_arm("no edit").outcomes["kl_total"]) < 1e-6
    assert report_run(spliced.folder)
    shared |= {"edit": "steer", "direction": "feature_3", "dose": "0,2", "condition": "feature_3 >= 0"}
    steered = RunOptions(output=tmp_path / "steer", **shared)  # type: ignore[arg-type]
    play(steered, Workers(1))
    result = read_lives(steered.folder / LIVES_FILE)
    kl = [np.nanmean(result.of_arm(f"edit, dose {dose}").outcomes["kl_total"]) for dose in ("+0", "+2")]
    assert 0 <= kl[0] < kl[1]
    wrong = replace(steered, direction="feature_64", output=tmp_path / "wrong")
    assert_refuses("it has feature_0 to feature_63", play, wrong, Workers(1))
    assert not wrong.folder.exists()


CLOCK_UNITS = 16
CLOCK, PENDULUM = 3, 5
STEP = 0.05  # of the clock in a tick
TWO_EPISODES = Group(4, (0, 1))
READING = Reading("lstm_cell", ("tick",))
IN, FORGET, CANDIDATE, OUT = range(4)


@pytest.fixture(scope="module")
def clock_pool(small_world, task, maps) -> PolicyPool:
    """A policy built by hand: one unit of its cell counts ticks and drives the move to the north; one swings."""
    env = replace(small_world, spawn_immunity=0, horizon=24)
    entrant = tiny_entrant(env, task, maps, hidden_size=CLOCK_UNITS)
    drive(entrant.policy, 5, Move=CLOCK)
    with torch.no_grad():
        memory = entrant.policy.lstm
        input_weight, hidden_weight, input_bias, hidden_bias = memory.all_weights[0]
        for place in (CLOCK, PENDULUM):
            rows = torch.arange(4) * CLOCK_UNITS + place
            for case in (input_weight, hidden_weight, input_bias, hidden_bias):
                case[rows] = 0
            input_bias[rows[[IN, OUT]]] = 20
        input_bias[FORGET * CLOCK_UNITS + CLOCK] = 20
        input_bias[CANDIDATE * CLOCK_UNITS + CLOCK] = float(np.arctanh(STEP))
        input_bias[FORGET * CLOCK_UNITS + PENDULUM] = -20
        input_bias[CANDIDATE * CLOCK_UNITS + PENDULUM] = 0.2
        hidden_weight[CANDIDATE * CLOCK_UNITS + PENDULUM, PENDULUM] = -3
    return Contest((entrant,), env, task, maps, torch.device("cpu")).pool(len(TWO_EPISODES.numbers))


def played(clock_pool: PolicyPool, **given: object) -> PlayedGroup:
    return played_group(clock_pool, TWO_EPISODES, ArmPlan("edit", 8, **given))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def unedited(clock_pool: PolicyPool) -> JointMoments:
    both = (READING, Reading("lstm_hidden", ("tick", "self_food")))
    group = played(clock_pool, watched=("lstm_cell", "lstm_hidden"), readings=both)
    food = both[1].of(group.moments[both[1].name])
    np.testing.assert_array_equal(food.states.squares, group.moments["lstm_hidden"].squares)
    assert food.r_squared()[0] > 0.9
    clock = READING.of(group.moments[READING.name])
    assert clock.sums.count > 300 and clock.r_squared() == pytest.approx([1], abs=1e-4)
    return clock


@pytest.fixture(scope="module")
def eraser(unedited: JointMoments) -> Eraser:
    return fitted_eraser(READING, unedited, "trained")


def test_in_play_edited_cells_no_longer_tell_the_tick_but_other_units_swing_as_before(
    clock_pool: PolicyPool, eraser: Eraser
) -> None:
    distant = replace(eraser, left=np.zeros((CLOCK_UNITS, 0)), right=np.zeros((0, CLOCK_UNITS)))  # erases nothing
    groups = (played(clock_pool, states=(case,), readings=(READING,)) for case in (distant, eraser))
    before, after = (np.diag(READING.of(group.moments[READING.name]).covariance) for group in groups)
    assert before[CLOCK] > 0.2**2 and after[CLOCK] < 0.02**2 * before[CLOCK]
    assert before[PENDULUM] > 0.5**2 and after[PENDULUM] == pytest.approx(before[PENDULUM], rel=0.1)


@pytest.mark.parametrize("tick", [1, 8])
def test_an_erased_clock_no_longer_drives_its_action(
    clock_pool: PolicyPool, unedited: JointMoments, eraser: Eraser, tick: int
) -> None:
    """At every tick, the edited probability is that of the clock's mean; both are known by hand, up to the number of
    other directions in which the agent can move."""
    lives = LivesTable.of_rows(played(clock_pool, states=(eraser,), when=When(tick, tick + 1)).rows)
    gains = lives.outcomes[NORTH][lives.edited]
    gains = gains[np.isfinite(gains)]  # of those who lived to see the tick
    mean, others = unedited.sums.mean[CLOCK], np.arange(5)
    possible = np.append(north(mean, others) - north(STEP * (tick + 1), others), 0)  # nothing where the north is closed
    assert np.abs(gains[:, None] - possible).min(axis=1).max() < 0.003
    assert np.abs(gains).max() > 0.05


def north(cell: float, others: np.ndarray) -> np.ndarray:
    drive = np.exp(5 * np.tanh(cell))
    return drive / (drive + others)
