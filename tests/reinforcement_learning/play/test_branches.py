"""An episode of the real game goes on from a tick twice: as it was, and with other dice for all but some agents."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from activation_store.records import RaggedRows, Records
from agent_zoo.checkpoint_files import SUFFIX
from agent_zoo.observation import ObservationLayout
from common.user_error import UserError
from reinforcement_learning.play.branches import (
    Branch,
    BranchPlan,
    BranchPoint,
    _same_row,
    drawn_points,
    play_branches,
    recorded_contest,
)
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from tests.command import assert_refuses
from tests.recorded_features import RecordedFeatures

POINT = BranchPoint(episode=1, tick=6)
PLAN = BranchPlan(seed=4, agents=4, before=2, after=6, layers=("lstm_hidden", "lstm_cell"))


class WitnessedPool(PolicyPool):
    """A pool that remembers which agents did what in each tick that it played."""

    played: list[tuple[int, list[int], torch.Tensor]]

    def advance(self, choices: Sequence[EntrantActions]) -> None:
        (choice,) = choices
        self.played.append((self.ticks, choice.decision.observation.agent_id.tolist(), choice.action))
        super().advance(choices)


@pytest.fixture(scope="module")
def pool(features_dump: RecordedFeatures, maps: Path) -> WitnessedPool:
    dump = features_dump.dump
    contest = recorded_contest(dump, read_metadata(dump), features_dump.policies, maps.parent, [0, 1, 2])
    return WitnessedPool(contest.entrants, contest.env, contest.task, contest.maps, contest.device, 1)


def branched(pool: WitnessedPool, plan: BranchPlan = PLAN, points: Sequence[BranchPoint] = (POINT,)) -> list[Branch]:
    pool.played = []
    return list(play_branches(pool, plan, points))


def equal(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, RaggedRows) and isinstance(other, RaggedRows):
        return np.array_equal(one.values, other.values) and np.array_equal(one.offsets, other.offsets)
    return np.array_equal(one, other)  # type: ignore[arg-type]


def assert_equal(one: Records, other: Records) -> None:
    for field in fields(Records):
        assert equal(getattr(one, field.name), getattr(other, field.name)), field.name


@pytest.fixture(scope="module")
def branch(pool: WitnessedPool) -> Branch:
    (result,) = branched(pool)
    return result


def test_the_same_dice_give_the_same_course_and_others_one_that_parts_after_the_point(
    pool: WitnessedPool, branch: Branch
) -> None:
    ((real, other),) = branched(pool, replace(PLAN, throw=0))
    assert_equal(real, other)
    assert_equal(real, branch[0])
    assert set(real.step) == set(PLAN.ticks(POINT)) and len(np.unique(real.agent_id)) == PLAN.agents
    before = [case.take(case.step <= POINT.tick) for case in branch]
    for name in ("tile", "entity", "inventory", "activations", "tables", "value", "agent_id", "action"):
        assert equal(*(getattr(case, name) for case in before)), name
    after = [case.take(case.step == POINT.tick + 3) for case in branch]
    assert not equal(after[0].entity, after[1].entity)
    assert not equal(after[0].activations, after[1].activations)


def test_the_drawn_agents_repeat_what_they_did_and_the_others_do_not(pool: WitnessedPool, branch: Branch) -> None:
    branched(pool)
    agents = set(branch[0].agent_id.tolist())
    courses = np.array_split(np.arange(len(pool.played)), 2)
    move = [head.name for head in pool.layout.heads].index("Move.Direction")
    repeated, others = 0, []
    for place, other_place in zip(*courses, strict=True):
        (tick, ids, done), (same_tick, other_ids, other) = pool.played[place], pool.played[other_place]
        assert tick == same_tick
        for agent in set(ids) & set(other_ids):
            moves = done[ids.index(agent), move] == other[other_ids.index(agent), move]
            if tick < POINT.tick or agent in agents:
                assert moves
                repeated += tick >= POINT.tick
            else:
                others.append(bool(moves))
    assert repeated > 2 * PLAN.agents and 0.05 < np.mean(others) < 0.8, "others move alike by chance alone"


def test_a_branch_is_the_same_alone_and_beside_others(pool: WitnessedPool, branch: Branch) -> None:
    points = [BranchPoint(1, 9), BranchPoint(0, 4), POINT, BranchPoint(1, 5)]
    result = branched(pool, PLAN, points)
    played = [BranchPoint(int(real.episode[0]), int(real.step.min()) + PLAN.before) for real, _ in result]
    assert played == [points[1], points[3], POINT, points[0]]
    for case, alone in zip(result[2], branch, strict=True):
        assert_equal(case, alone)


def test_the_games_own_dice_are_thrown_anew_where_anybody_drawn_lives(pool: WitnessedPool) -> None:
    """All agents are drawn, so that nothing else can differ."""
    ((real, other),) = branched(pool, replace(PLAN, agents=16, after=20))
    assert not equal(real.entity, other.entity)
    first = [case.take(case.step == POINT.tick) for case in (real, other)]
    assert_equal(*first)
    assert branched(pool, PLAN, [BranchPoint(1, 500)]) == []


def test_the_real_course_is_the_recorded_one(branch: Branch, features_dump: RecordedFeatures) -> None:
    recorded = read_dump(features_dump.dump, episodes=[POINT.episode])
    place = {(agent, step): row for row, (agent, step) in enumerate(zip(recorded.agent_id, recorded.step, strict=True))}
    same = recorded.take(np.array([place[item] for item in zip(branch[0].agent_id, branch[0].step, strict=True)]))
    for name in ("tick", "action", "tile", "entity", "inventory", "reward"):
        assert equal(getattr(same, name), getattr(branch[0], name)), name
    assert np.allclose(same.activations["lstm_cell"], branch[0].activations["lstm_cell"], atol=1e-5)


def test_points_are_drawn_among_the_records(features_dump: RecordedFeatures) -> None:
    dump = features_dump.dump
    result = drawn_points(dump, [0, 2], 12, before=2, seed=3)
    assert result == drawn_points(dump, [0, 2], 12, before=2, seed=3) != drawn_points(dump, [0, 2], 12, 2, seed=4)
    assert len(set(result)) == 12 and {item.episode for item in result} == {0, 2} and min(e.tick for e in result) >= 2
    with pytest.raises(UserError, match="ticks to branch from, not 5000: ask for fewer branches"):
        drawn_points(dump, [0, 2], 5000, before=2, seed=3)


def test_the_same_thing_is_chosen_in_another_row(layout: ObservationLayout) -> None:
    heads = {head.name: head for head in layout.heads}
    attack, use = heads["Attack.Target"], heads["Use.InventoryItem"]

    def rows(columns: Sequence[str], *shown: dict[str, int]) -> np.ndarray:
        return np.array([[row.get(name, 0) for name in columns] for row in shown], np.int16).reshape(-1, len(columns))

    def entities(*ids: int) -> np.ndarray:
        return rows(layout.entity_columns, *({"id": number} for number in ids))

    def items(*shown: tuple[int, int, int]) -> np.ndarray:
        return rows(layout.item_columns, *(dict(zip(("id", "type_id", "level"), item, strict=True)) for item in shown))

    then, now = entities(3, -7, 9), entities(3, 9, 5, -7)
    assert [_same_row(attack, option, then, now, layout) for option in (0, 1, 2)] == [0, 3, 1]
    assert _same_row(attack, 1, then, entities(3, 9), layout) == attack.noop, "it is out of sight"
    assert _same_row(attack, 100, then, now, layout) == attack.noop, "nothing was attacked"
    carried = items((50, 2, 1), (51, 4, 3))
    assert _same_row(use, 1, carried, items((51, 4, 3), (50, 2, 1)), layout) == 0, "the very same item"
    assert _same_row(use, 1, carried, items((80, 4, 2), (81, 4, 3), (82, 4, 3)), layout) == 1, "one like it"
    assert _same_row(use, 1, carried, items((80, 4, 2)), layout) == use.noop
    assert _same_row(use, 1, carried, items(), layout) == use.noop


def test_worlds_that_cannot_be_played_again_are_refused(
    features_dump: RecordedFeatures, maps: Path, tmp_path: Path
) -> None:
    dump, policies = features_dump.dump, features_dump.policies
    metadata = read_metadata(dump)

    def contest(folder: Path = policies, **changed: object) -> Contest:
        return recorded_contest(dump, replace(metadata, **changed), folder, maps.parent, [0])  # type: ignore[arg-type]

    for changed in (
        {"seed": None},
        {"environment": {**metadata.environment, "opponents": ["other"]}},
        {"environment": {**metadata.environment, "intervention": {}}},
        {"origin": "simulated", "world_model_sha256": "a" * 64},
    ):
        assert_refuses("cannot be played again: give a dump of one policy alone", contest, **changed)
    assert_refuses("give the folder that it came from with --policies-dir", contest, checkpoint_sha256="b" * 64)
    (tmp_path / f"other{SUFFIX}").touch()
    assert_refuses("there is no policy 'small'", contest, tmp_path)
