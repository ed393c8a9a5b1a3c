"""Edited agents in the real game: a planted cause has its effect, also along one path and as long as it is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import intervene
from activation_store.interventions import LivesTable
from analysis.interventions.edits.donor_rule import DonorRule
from analysis.interventions.edits.edit_options import GOAL, PATHS, RunOptions
from analysis.interventions.edits.linear_readings import distance_from
from analysis.interventions.edits.memory_edits import Clear, Freeze, KeptMemory, MovedAsFar, Transplant
from analysis.interventions.edits.state_edits import AsFarAs, StateEdit, Untouched, steer
from analysis.interventions.play.experiment import ArmPlan, When, body_condition
from analysis.interventions.play.intervention_run import _contest, check_reach
from analysis.interventions.play.outcomes import goals_of
from reinforcement_learning.game.fast_game.ways import SIDES
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.contest import Contest, Group
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.settings import TaskSettings
from tests.command import assert_refuses
from tests.driven import DRIVER, UNITS, driven_contest, emptied_gates, lives_of, played
from tests.planted_interventions import unit

IDLE = 5
GROUP = Group(4, (0, 1))
ROUNDING = 1e-6
NORTH = "gain_total/Move.Direction/North"


def lives(pool: PolicyPool, *states: StateEdit, **given: object) -> LivesTable:
    plan = ArmPlan("edit", given.pop("drawn", 4), states=tuple(states), **given)  # type: ignore[arg-type]
    return lives_of(pool, GROUP, plan).of_arm("edit")


@pytest.fixture(scope="module")
def twin(pool: PolicyPool) -> LivesTable:
    return lives(pool, watched=("lstm_hidden",))


def test_every_agent_of_every_episode_has_a_row(pool: PolicyPool, twin: LivesTable) -> None:
    assert twin.episode.tolist() == [0] * 16 + [1] * 16
    assert twin.agent.tolist() == list(range(1, 17)) * 2
    assert np.bincount(twin.episode, weights=twin.edited).tolist() == [4, 4]
    assert (twin.edited[:16] != twin.edited[16:]).any()
    assert lives(pool, steer(unit(DRIVER, UNITS), 0.9), drawn=16).edited.all(), "a share of all leaves nobody unedited"


def test_a_planted_cause_moves_its_action_more_with_every_dose_and_nothing_else(pool: PolicyPool) -> None:
    doses = [lives(pool, steer(unit(DRIVER, UNITS, spread=0.1), dose)) for dose in (0, 3, 9)]
    north = [float(np.nanmean(item.outcomes[NORTH][item.edited])) for item in doses]
    assert north == sorted(north) and north[-1] - north[0] > 0.3
    edited = lives(pool, steer(unit(DRIVER, UNITS), 0.9))
    moved = {name for name, values in edited.outcomes.items() if name.startswith("kl") and np.nanmax(values) > ROUNDING}
    assert moved == {f"kl{of}{head}" for of in ("_total", "_in_play") for head in ("", "/Move.Direction")}
    assert_refuses("an edit of lstm_hidden gives values that are not finite", lives, pool, steer(unit(3, UNITS), 1e39))


def test_an_idle_direction_moves_nothing_at_once(pool: PolicyPool) -> None:
    """Within the tick; a later one may differ, since hidden states feed the next. Nor does a random direction there."""
    random = AsFarAs(steer(unit(DRIVER, UNITS), 0.9), np.eye(UNITS)[[IDLE]])
    for edit in (steer(unit(IDLE, UNITS), 0.9), random):
        edited = lives(pool, edit, when=When(3, 4))
        assert np.nanmax(edited.outcomes["kl_total"]) < ROUNDING
        assert set(edited.outcomes["edited_ticks"][edited.edited]) == {1.0}


def test_a_call_without_an_edit_leaves_every_life_as_it_was(pool: PolicyPool, twin: LivesTable) -> None:
    for plan in ({"states": (Untouched("lstm_cell"),)}, {"memories": (KeptMemory(),)}):
        result = lives_of(pool, GROUP, ArmPlan("edit", 4, **plan)).of_arm("edit")
        for name, values in twin.outcomes.items():
            np.testing.assert_array_equal(result.outcomes[name], values, err_msg=name)
        for name in ("kl_in_play", "value_change_in_play"):
            assert np.nanmax(np.abs(result.outcomes[name])) < ROUNDING
        changes = [values[result.edited] for name, values in result.outcomes.items() if "_total" in name]
        assert len(changes) > 10 and not np.any(changes), "in total, exactly nothing"


def test_only_edited_agents_are_measured_and_only_edited_ticks_count(pool: PolicyPool) -> None:
    hungry = When(condition=body_condition("self_food < 60", ["food"]))
    edited = lives(pool, steer(unit(DRIVER, UNITS), 0.9), when=hungry)
    ticks = edited.outcomes["edited_ticks"]
    was_hungry = ~np.isnan(ticks)
    assert was_hungry[edited.edited].any() and not was_hungry[~edited.edited].any()
    assert (ticks <= edited.outcomes["ticks"] - 8)[was_hungry].all()  # food is 100 at first, and falls by 5 a tick


def test_other_read_outs_and_distances_are_reported(pool: PolicyPool) -> None:
    moments = played(pool, GROUP, ArmPlan("edit", 4, watched=("lstm_hidden",))).moments["lstm_hidden"]
    assert moments.count > 300
    driver, idle = unit(DRIVER, UNITS, "driver"), unit(IDLE, UNITS, "idle")
    given = {"distances": {"lstm_hidden": distance_from(moments)}, "directions": (driver, idle), "when": When(0, 1)}
    near, far = (lives(pool, steer(driver, dose), **given) for dose in (0.0, 0.9))
    assert np.nanmax(np.abs(far.outcomes["moved_total/idle"])) < 1e-6
    assert np.nanmin(far.outcomes["moved_total/driver"]) > np.nanmax(near.outcomes["moved_total/driver"])
    assert np.nanmean(far.outcomes["off_manifold"]) > np.nanmean(near.outcomes["off_manifold"])


def test_an_emptied_memory_begins_every_tick_like_the_first_and_one_cleared_once_recovers(pool: PolicyPool) -> None:
    """So clearing before each tick makes the policy reactive: freezing an empty memory is the same."""
    emptied, rarely = (lives_of(pool, GROUP, ArmPlan("edit", 4, memories=(Clear(every),))) for every in (1, 10))
    frozen = lives_of(pool, GROUP, ArmPlan("edit", 4, memories=(Freeze(),)))
    for name, values in emptied.outcomes.items():
        if "_total" not in name and "_in_play" not in name:
            np.testing.assert_array_equal(values, frozen.outcomes[name], err_msg=name)
    assert 0 < np.nanmean(rarely.outcomes["kl_total"]) < np.nanmean(emptied.outcomes["kl_total"])


def test_a_random_memory_is_as_far_away_stays_between_edits_and_its_moves_do_not_add_up(contest: Contest) -> None:
    state, slots = contest.entrants[0].policy.initial_state(5), torch.arange(5)
    state.hidden.normal_(generator=torch.Generator().manual_seed(0))
    state.cell.normal_(generator=torch.Generator().manual_seed(1))
    moved, kept = (
        MovedAsFar(Clear(every), seed=3).begin(state, torch.ones(5, dtype=torch.int64), slots) for every in (1, 4)
    )
    for before, after in ((state.hidden, moved.hidden), (state.cell, moved.cell)):
        apart = (after - before).norm(dim=2) / before.norm(dim=2)
        assert apart.min() > 0.5 and apart.max() < 2  # exactly 1 from where the memory has no part along the direction
        assert not torch.allclose(after, torch.zeros(()))
    torch.testing.assert_close(kept.cell, state.cell, rtol=0, atol=0)
    edit, moved = MovedAsFar(Clear(1), seed=3), state
    for age in range(20):
        moved = edit.begin(moved, torch.full((5,), age), slots)
    assert (moved.cell.norm(dim=2) < 2 * state.cell.norm(dim=2)).all()


THREE = Group(3, (0, 1))
GO_NORTH = steer(unit(DRIVER, UNITS), 0.9)
FROM, INTERRUPT = 4, 2
SEEN = ("row", "col", GOAL)


@pytest.fixture(scope="module")
def goal_seekers(small_world, maps) -> PolicyPool:
    """All agents go north or not, as the driver says, whatever their goal; all are moved in one of the first ticks."""
    task = TaskSettings(curriculum="four_ways", embedding_size=16)
    return driven_contest(replace(small_world, interrupt=INTERRUPT), task, maps).pool(len(THREE.numbers))


def goals_of_rows(goal_seekers: PolicyPool, table: LivesTable) -> np.ndarray:
    goals = goals_of(goal_seekers).reshape(len(THREE.numbers), -1)  # worlds by agents
    places = [shared.agents for shared in goal_seekers.shared]
    rows = zip(table.episode.tolist(), table.agent.tolist(), strict=True)
    return np.array([goals[THREE.numbers.index(e), places[THREE.numbers.index(e)].index(a)] for e, a in rows])


def test_who_is_driven_north_goes_towards_the_north_only(goal_seekers: PolicyPool) -> None:
    table = lives_of(goal_seekers, THREE, ArmPlan("edit", 16, When(FROM), states=(GO_NORTH,)))
    goal, way, right = goals_of_rows(goal_seekers, table), table.outcomes["towards_goal"], table.outcomes["right_way"]
    assert set(goal.tolist()) == set(range(len(SIDES)))
    known = np.isfinite(way)
    northern, southern = way[known & (goal == 0)], way[known & (goal == 1)]
    assert northern.mean() > 3 > -3 > southern.mean()  # few get far: the map is small and full of obstacles
    assert right[known & (goal == 0)].mean() > 0.5 > right[known & (goal == 1)].mean()
    np.testing.assert_array_equal(right[known], way[known] > 0)
    assert np.abs(way[known]).max() <= 100  # the jump of the interrupt is no way


def test_the_goal_is_a_variable_of_conditions_and_donors(goal_seekers: PolicyPool) -> None:
    southern = When(FROM, condition=body_condition("self_goal == 1", SEEN))
    table = lives_of(goal_seekers, THREE, ArmPlan("edit", 16, southern, states=(GO_NORTH,)))
    edited = np.nan_to_num(table.outcomes["edited_ticks"]) > 0
    assert edited.any() and (goals_of_rows(goal_seekers, table)[edited] == 1).all()
    rule = DonorRule.parse("self_goal", SEEN)
    swapped = lives_of(goal_seekers, THREE, ArmPlan("edit", 4, When(FROM, FROM + 1), memories=(Transplant(rule, 1),)))
    assert (np.nan_to_num(swapped.outcomes["edited_ticks"]) == 1).sum() >= 4


FOLLOW = 4


@pytest.fixture(scope="module")
def other_contest(small_world, task, maps) -> Contest:
    """One whose memory the following tests change."""
    return driven_contest(small_world, task, maps)


@pytest.fixture(scope="module")
def halving_pool(other_contest: Contest) -> PolicyPool:
    _, _, bias = emptied_gates(other_contest.entrants[0].policy)
    bias[0], bias[3] = -100, 100  # shut and open; the forget gate is half open
    return other_contest.pool(len(GROUP.numbers))


def edited_once(halving_pool: PolicyPool, when: When) -> LivesTable:
    edit = steer(unit(DRIVER, UNITS, layer="lstm_cell"), 0.9)
    plan = ArmPlan("edited once", 4, when, states=(edit,), follow=FOLLOW)
    return lives_of(halving_pool, GROUP, plan).of_arm("edited once")


def left(lives: LivesTable, what: str) -> np.ndarray:
    """What is left after each tick, (edited lives, ticks)."""
    return np.stack([lives.outcomes[f"lasting/{what}/{lag}"][lives.edited] for lag in range(FOLLOW + 1)], axis=1)


def test_a_cell_that_halves_has_lost_half_of_an_edit_after_a_tick(halving_pool: PolicyPool) -> None:
    lives = edited_once(halving_pool, When(2, 3))
    halves = 0.5 ** np.arange(FOLLOW + 1)
    for what, expected in (("cell", halves), ("hidden", np.tanh(0.9 * halves) / np.tanh(0.9))):
        result = left(lives, what)
        known = np.isfinite(result)
        assert known[:, 0].any()
        np.testing.assert_allclose(result[known], np.broadcast_to(expected, result.shape)[known], rtol=1e-5)
    actions = np.nanmean(left(lives, "actions"), axis=0)
    assert (np.diff(actions) < 0).all() and actions[0] > 0.1


def test_agents_are_edited_again_only_once_they_are_no_longer_followed(halving_pool: PolicyPool) -> None:
    lives = edited_once(halving_pool, When())
    ticks, edited = (lives.outcomes[name][lives.edited] for name in ("ticks", "edited_ticks"))
    np.testing.assert_array_equal(edited, np.ceil(ticks / (FOLLOW + 1)))
    np.testing.assert_allclose(np.nanmean(left(lives, "cell"), axis=0), 0.5 ** np.arange(FOLLOW + 1), rtol=0.05)


def test_episodes_that_are_cut_off_keep_the_tasks_that_the_policy_learnt(three_policies: Path, small_world) -> None:
    """The task to survive names the horizon: at another one, the policy would be shown a task that it never saw."""
    options = RunOptions("clear", policy="kit", policies_dir=three_policies, maps_dir=small_world.maps_dir)
    whole, cut = (_contest(replace(options, max_steps=most)) for most in (None, FOLLOW))
    survive = replace(cut.task, curriculum="survival")
    pools = [replace(contest, task=survive).pool(1) for contest in (whole, cut)]
    ensure_maps(cut.env)
    for pool in pools:
        pool.start(4, (0,))
    assert pools[0].tasks == pools[1].tasks and str(small_world.horizon) in pools[1].tasks[0]
    np.testing.assert_array_equal(*(pool.arrival.observations["Task"] for pool in pools))
    assert [life.ticks for life in pools[1].play(4, (0,))[0].lives[0]] == [FOLLOW] * 16


OPEN = 12.0
ONCE = When(3, 4)
KL = "kl_in_play"


def planted(other_contest: Contest, carrier: str) -> PolicyPool:
    """The driver's cell is kept by itself (cell), or read anew from its own hidden state in every tick (hidden).

    The game writes nothing, and the heads read the driver's hidden state.
    """
    _, hidden, bias = emptied_gates(other_contest.entrants[0].policy)
    entering, forgetting, candidate, output = range(4)
    bias[entering], bias[output] = OPEN, OPEN
    bias[forgetting] = OPEN if carrier == "cell" else -OPEN
    if carrier == "hidden":
        hidden[candidate, DRIVER, DRIVER], bias[candidate, DRIVER] = 4.0, -1.0  # low at first, and high if once high
    return other_contest.pool(len(GROUP.numbers))


def lives_through(
    pool: PolicyPool, *through: str, edit: bool = True, layer: str = "lstm_cell", **given: object
) -> LivesTable:
    states = (steer(unit(DRIVER, UNITS, layer=layer), 4.0),) if edit else (Untouched(layer),)
    plan = ArmPlan("edit", 4, ONCE, states=states, through=through, **given)  # type: ignore[arg-type]
    return lives_of(pool, GROUP, plan).of_arm("edit")


def way_north(table: LivesTable) -> float:
    return float(-np.nanmean(table.outcomes["south"][table.edited]))


@pytest.mark.parametrize(("carrier", "idle"), [("cell", "hidden"), ("hidden", "cell")])
def test_only_the_path_that_carries_an_edit_makes_it_last(other_contest: Contest, carrier: str, idle: str) -> None:
    pool = planted(other_contest, carrier)
    twin, whole = (
        lives_through(pool, "heads", "hidden", "cell", edit=False),
        lives_through(pool, "heads", "hidden", "cell"),
    )
    turned = way_north(whole) - way_north(twin)
    assert turned > 5, "the edit drives agents to the north"
    kept, unheld = lives_through(pool, carrier), lives_through(pool, idle)
    assert way_north(kept) - way_north(twin) == pytest.approx(turned, rel=0.5)
    for name in ("south", "east", "ticks"):
        np.testing.assert_array_equal(unheld.outcomes[name], twin.outcomes[name], err_msg=name)
    assert np.nanmax(kept.outcomes[KL]) == np.nanmax(unheld.outcomes[KL]) == 0, "the heads do not read it at once"
    heads = lives_through(pool, "heads")
    assert np.nanmedian(heads.outcomes[KL][heads.edited]) > 0.5 and way_north(heads) - way_north(twin) < turned / 3
    np.testing.assert_array_equal(heads.outcomes[KL], whole.outcomes[KL])


@pytest.mark.parametrize("through", [("heads",), ("hidden",), ("heads", "cell")])
def test_a_call_without_an_edit_leaves_every_life_as_it_was_along_any_path(
    other_contest: Contest, through: tuple[str, ...]
) -> None:
    pool = other_contest.pool(len(GROUP.numbers))
    twin = lives_through(pool, "heads", "hidden", "cell", edit=False)
    held = lives_through(pool, *through, edit=False)
    for name, values in twin.outcomes.items():
        np.testing.assert_array_equal(held.outcomes[name], values, err_msg=name)


def test_a_path_that_an_edit_cannot_take_is_refused_since_nobody_would_be_edited(other_contest: Contest) -> None:
    pool = other_contest.pool(len(GROUP.numbers))
    twin, whole = (lives_through(pool, *PATHS, edit=edit, layer="lstm_hidden") for edit in (False, True))
    held = lives_through(pool, "cell", layer="lstm_hidden")
    assert np.nanmax(whole.outcomes["kl_total"]) > 0
    for name in ("south", "east", "ticks"):
        np.testing.assert_array_equal(held.outcomes[name], twin.outcomes[name], err_msg=name)
    lstm, gru = ("lstm_hidden", "lstm_cell"), ("lstm_hidden",)
    message = "lstm_hidden is computed after the cells, so an edit of it leaves them as they are"
    assert_refuses(message, check_reach, ("heads", "cell"), {"lstm_hidden"}, lstm, "kit")
    assert_refuses("the memory of kit has no cells", check_reach, ("cell",), {"encoder_output"}, gru, "kit")
    check_reach(("heads", "hidden"), {"lstm_hidden"}, gru, "kit")
    check_reach(("cell",), {"lstm_hidden_1"}, ("lstm_hidden_1", "lstm_cell_1", *lstm), "kit")
    check_reach(("cell",), {"lstm_hidden", "lstm_cell"}, lstm, "kit")
    check_reach((), {"lstm_hidden"}, gru, "kit")


def test_paths_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kit.safetensors").touch()
    ours = ["-p", "kit", "--policies-dir", str(tmp_path)]
    steered = [*ours, "--directions", "d", "--edit", "collapse", "--direction", "a"]
    options = intervene.parse([*steered, "--through", "cell"])
    assert options.paths == ("cell",) and options.folder.name == "kit-collapse-a-through-cell"
    for arguments, message in (
        ([*steered, "--through", "head"], "--through names 'head': the paths are heads, hidden, cell"),
        ([*steered, "--through", "cell,hidden,heads"], "--through names every path"),
        ([*ours, "--edit", "clear", "--through", "cell"], "--edit clear is made between ticks"),
        ([*steered, "--through", "cell", "--follow", "4"], "--follow does not go with --through"),
        ([*steered, "--through", "cell", "--record", "all"], "--record does not go with --through"),
    ):
        assert_refuses(message, intervene.parse, arguments)
