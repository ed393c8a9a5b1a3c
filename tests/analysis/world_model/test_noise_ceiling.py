"""Two real courses of the same lives are compared as predictions are, and changes planted in one of them are found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.layers import LSTM_CELL, LSTM_HIDDEN
from activation_store.records import Records
from analysis.world_model.model import WorldModel
from analysis.world_model.open_loop import (
    HIGHER_IS_BETTER,
    Differences,
    OtherDice,
    concatenated,
    course_windows,
    differences,
    joined,
    measure_other_dice,
    open_loop,
)
from analysis.world_model.scene import own_columns
from analysis.world_model.windows import CONTEXT
from reinforcement_learning.play.branches import Branch, BranchPlan, BranchPoint, play_branches, recorded_contest

AFTER = 4
PLAN = BranchPlan(seed=4, agents=5, before=CONTEXT - 1, after=AFTER, layers=(LSTM_HIDDEN, LSTM_CELL))
NO_DIFFERENCE = dict.fromkeys(HIGHER_IS_BETTER, 0) | dict.fromkeys(("tiles", "entities", "inventory", "memory"), 1)

Play = Callable[[BranchPlan], list[Branch]]
POINTS = (BranchPoint(0, 3), BranchPoint(1, 5))


@pytest.fixture(scope="module")
def play(recorded, maps: Path) -> Play:
    contest = recorded_contest(recorded.dump, recorded.metadata, recorded.policies, maps.parent, [0, 1])
    pool = contest.pool(1)
    return lambda plan: list(play_branches(pool, plan, POINTS))


@pytest.fixture(scope="module")
def branches(play: Play) -> list[Branch]:
    return play(PLAN)


def compared(recorded, real: Records, other: Records) -> Differences:
    windows = [course_windows(item, recorded.policy, recorded.info) for item in (real, other)]
    return concatenated(differences(recorded.policy, recorded.info, *windows))


def by_measure(rows: list[OtherDice]) -> dict[str, list[float]]:
    return {name: [row.other.value for row in rows if row.measure == name] for name in HIGHER_IS_BETTER}


def test_the_same_dice_give_no_difference_at_any_horizon(recorded, play: Play) -> None:
    rows = measure_other_dice(recorded.model(), play(replace(PLAN, throw=0)), 0, lambda _: None)
    for name, result in by_measure(rows).items():
        assert len(result) == AFTER and result == pytest.approx([NO_DIFFERENCE[name]] * AFTER, abs=1e-6), name
    bounded = [row for row in rows if row.measure in ("tiles", "vitals", "memory")]
    assert all(row.bound == pytest.approx(row.other.value) for row in bounded)


def test_other_dice_differ_and_drifting_memories_are_less_and_less_alike(recorded, branches: list[Branch]) -> None:
    done = list[int]()
    rows = by_measure(measure_other_dice(recorded.model(), branches, 0, done.append))
    assert rows["memory"][-1] < 1 - 2e-6, "more than rounding, which the same dice leave"
    assert max(rows["entities"]) < 1 and max(rows["tiles"]) <= 1 and min(rows["vitals"]) >= 0
    assert any(item != 0 for item in rows["policy"]), "an untrained policy hardly depends on what it sees"
    assert done == [1, 2]
    # Each tick pushes memories further off their course, and much further than other dice do.
    courses = []
    for (real, other), point in zip(branches, POINTS, strict=True):
        cell = other.activations[LSTM_CELL].copy()
        cell[:, 0] += 2.0 * np.maximum(other.step - point.tick, 0)
        courses.append((real, replace(other, activations={**other.activations, LSTM_CELL: cell})))
    memory = by_measure(measure_other_dice(recorded.model(), courses, 0, lambda _: None))["memory"]
    assert memory == sorted(memory, reverse=True) and 0.99 > memory[0] > memory[-1] + 0.1, memory


def test_the_model_and_the_copy_are_measured_in_the_same_ticks(recorded, branches: list[Branch]) -> None:
    model, (real, other) = recorded.model(), branches[0]
    rows = measure_other_dice(model, [(real, other)], 7, lambda _: None)
    windows = course_windows(real, recorded.policy, recorded.info)
    errors = joined(list(open_loop(model, windows, 7)))
    lives = compared(recorded, real, other)
    for row in rows:
        both = lives["life"][lives["horizon"] == row.horizon]
        chosen = (errors.model["horizon"] == row.horizon) & np.isin(errors.model["life"], both)
        assert row.ticks == chosen.sum() == len(both) and row.unit == "life"
        if row.measure != "entities":
            assert row.model == pytest.approx(errors.model[row.measure][chosen].mean(), rel=1e-5)
            copied, ruled = (errors.rivals[name][row.measure][chosen].mean() for name in ("copy", "rules"))
            assert (row.copied, row.ruled) == pytest.approx((copied, ruled), rel=1e-5)
        if row.measure in ("tiles", "vitals", "memory") and row.bound != row.ruled:
            assert row.closed.value == pytest.approx((row.model - row.ruled) / (row.bound - row.ruled), rel=1e-4)
        else:
            assert np.isnan(row.closed.value)


def changed(records: Records, tick: int, agent: int) -> Records:
    """Plant differences in one tick of one agent: 14 points less food, 45 tiles of another material, no one near."""
    row = int(np.flatnonzero((records.step == tick) & (records.agent_id == agent))[0])
    tile = records.tile.copy()
    tile[row, :45, 2] = (tile[row, :45, 2] + 1) % 16
    counts = records.entity.counts
    values = records.entity.values.copy()
    mine = np.flatnonzero(records.entity.owner == row)
    values[mine[values[mine, 0] == agent], FOOD] -= 14
    kept = (records.entity.owner != row) | (values[:, 0] == agent)
    counts[row] = 1
    rows = replace(records.entity, values=values[kept], offsets=np.concatenate([[0], np.cumsum(counts)]))
    reward = records.reward.copy()
    reward[(records.step == tick - 1) & (records.agent_id == agent)] += 3
    return replace(records, tile=tile, entity=rows, reward=reward)


FOOD = 13


def test_rivals_keep_the_items_and_are_paid_the_last_reward_or_the_mean(model: WorldModel, recorded) -> None:
    (windows, *_) = recorded.windows()
    windows = replace(windows, reward=torch.randn(windows.reward.shape, generator=torch.Generator().manual_seed(1)))
    first = concatenated(part.rivals["rules"] for part in open_loop(model, windows, 0) if part.model)
    copied = concatenated(part.rivals["copy"] for part in open_loop(model, windows, 0) if part.model)
    there, real = windows.at(CONTEXT)
    mean, last = model.stats.reward[0], windows.reward[there, CONTEXT - 2]
    paid = windows.reward[there, CONTEXT - 1]
    next_tick = first["horizon"] == 1
    np.testing.assert_allclose(first["reward"][next_tick], (mean - paid).square(), rtol=1e-5)
    np.testing.assert_allclose(copied["reward"][next_tick], (last - paid).square(), rtol=1e-5)
    before = windows.at(CONTEXT - 1)[1].take(torch.isin(windows.at(CONTEXT - 1)[0], there).nonzero()[:, 0])
    kept = (before.item_type == real.item_type).float().mean(dim=1)
    np.testing.assert_allclose(copied["inventory"][next_tick], kept)
    heads = sum(first[name] for name in ("Move.Direction", "Attack.Style"))
    np.testing.assert_allclose(first["policy"], heads, rtol=1e-5, atol=1e-6)


def test_planted_differences_are_found_in_ticks_of_both_courses(recorded, branches: list[Branch]) -> None:
    real, _ = branches[0]
    assert recorded.info.layout.entity_columns[FOOD] == "food" and "food" in own_columns(recorded.info.layout)
    agent, tick = int(real.agent_id[0]), 3 + 2
    result = compared(recorded, real, changed(real, tick, agent))
    here = (result["horizon"] == 2) & (result["life"] % 100_000 == agent)
    assert here.sum() == 1
    assert result["tiles"][here] == pytest.approx(1 - 45 / 225)
    assert result["vitals"][here] == pytest.approx(14 / 3, abs=1e-4)
    right, there, wanted = result["entities"][here][0]
    assert right == there == 0 < wanted
    assert result["reward"][here] == pytest.approx(9, rel=1e-4), "paid for what the tick before did"
    for name in set(NO_DIFFERENCE) - {"entities"}:
        assert result[name][~here] == pytest.approx(NO_DIFFERENCE[name], abs=1e-6)
    agent = int(real.agent_id[0])
    shorter = real.take((real.agent_id != agent) | (real.step <= 3 + 1))
    for one, other in ((real, shorter), (shorter, real)):
        result = compared(recorded, one, other)
        assert set(result["horizon"][result["life"] % 100_000 == agent]) == {1}
        assert set(result["horizon"]) == {1, 2, 3, 4}
    nothing = real.take(real.step <= 3)
    windows = [course_windows(item, recorded.policy, recorded.info) for item in (real, nothing)]
    assert list(differences(recorded.policy, recorded.info, *windows)) == []
