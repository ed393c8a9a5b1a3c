"""Parts of the panel on planted lives: rollouts, behaviours, maps by view; and how large the page gets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from activation_store.schema import ActionHead, DumpMetadata
from analysis.labels import NOISE
from analysis.panel_page.behaviours import behaviours_of, has_behaviour, main_behaviours, plane, trajectories
from analysis.panel_page.content import Panel, Source
from analysis.panel_page.dynamics import Component, Dynamics
from analysis.panel_page.page import panel_page, view_changes
from analysis.panel_page.rollouts import choose, pieces, shared_out
from analysis.panel_page.saliency import _by_view, _later
from analysis.panel_page.ticks import Ticks
from analysis.runs.cluster_run import ClusterRun
from analysis.runs.finished_files import RunDescription
from analysis.runs.propagated_labels import CarryingRule, rule_from

ROLLOUTS, TICKS, COMPONENTS, BEHAVIOURS, LAGS = 6000, 32, 16, 12, 10
MOST_BYTES = 30_000_000


def identity(lengths: list[int]) -> dict[str, np.ndarray]:
    agent = np.repeat(np.arange(len(lengths)), lengths)
    tick = np.concatenate([np.arange(length) for length in lengths])
    return {"env_id": agent, "agent_id": agent + 1, "episode": np.zeros_like(agent), "tick": tick}


def some(places: dict[str, np.ndarray], kept: np.ndarray) -> dict[str, np.ndarray]:
    return {name: each[kept] for name, each in places.items()}


def test_lives_are_cut_where_maps_begin_and_end() -> None:
    covered = np.zeros(100, bool)
    covered[20:60] = True
    assert pieces(covered, 32) == [(20, 52), (52, 60), (0, 20), (60, 92), (92, 100)]
    assert pieces(np.zeros(70, bool), 32) == [(0, 32), (32, 64)]  # six ticks are too few
    covered = np.zeros(40, bool)
    covered[38:] = True
    assert pieces(covered, 32) == [(38, 40), (0, 32)]  # unless they have maps


def test_lives_with_maps_come_first_then_those_that_were_followed() -> None:
    places = identity([40, 40, 40, 40])
    mapped = some(places, (places["agent_id"] == 3) & (places["tick"] >= 8))
    followed = some(places, places["agent_id"] == 2)
    found = choose(places, 4, [followed], [mapped], seed=0)
    assert found.life[:, 1].tolist() == [3, 3, 2, 2]
    assert list(zip(found.start.tolist(), found.stop.tolist(), strict=True)) == [(8, 40), (0, 8), (0, 32), (32, 40)]
    assert len(choose(places, 100, [followed], [mapped], seed=0)) == 8
    assert len(choose(places, 3, [], [], seed=0)) == 3


@pytest.mark.parametrize(
    ("most", "there", "shares"),
    [(10, [20, 20], [5, 5]), (10, [3, 20], [3, 7]), (10, [20, 3], [7, 3]), (10, [4, 4], [4, 4]), (7, [9], [7])],
)
def test_rollouts_are_shared_out(most: int, there: list[int], shares: list[int]) -> None:
    assert shared_out(most, there) == shares


def test_trajectories_hold_the_state_and_its_changes() -> None:
    z = np.arange(10, dtype=np.float32)[:, None] ** 2
    assert trajectories(z)[8].tolist() == [64, 64 - 36, 64 - 16, 64 - 4]
    assert trajectories(z)[0].tolist() == [0, 0, 0, 0]
    assert has_behaviour(8).tolist() == [False] * 6 + [True] * 2


def test_behaviours_follow_the_nearest_labelled_trajectories_and_rollouts_the_commonest() -> None:
    random = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 60)
    points = (10 * np.eye(3)[label] + random.normal(0, 0.5, (180, 3))).astype(np.float32)
    rule = rule_from(points, label, np.arange(180) % 6)
    asked = (10 * np.eye(3)[[2, 0, 1, 1, 0]] - rule.mean) @ rule.components.T
    moving = np.array([True, True, True, True, False])
    found = behaviours_of(rule, {"trajectory": asked, "moving": moving})
    assert found.tolist() == [2, 0, 1, 1, NOISE]
    main = main_behaviours(np.array([2, 2, 0, NOISE, NOISE, 1]), np.array([3, 2, 1]), 3)
    assert main.tolist() == [2, NOISE, 1]


@pytest.mark.slow
def test_rollouts_that_behave_alike_lie_together() -> None:
    random = np.random.default_rng(1)
    main = np.arange(40) % 2
    lengths = np.full(40, 4)
    label = np.repeat(main, 4)
    trajectory = random.normal(0, 1, (160, 5)) + 30 * label[:, None]
    place = plane(trajectory, label, lengths, main, seed=0)
    centres = np.stack([place[main == each].mean(axis=0) for each in (0, 1)])
    nearest = np.linalg.norm(place[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == main).all()


def test_maps_are_turned_from_targets_to_views() -> None:
    sample = np.array([0, 0, 0, 1, 1])
    maps = np.arange(5 * 2, dtype=float).reshape(5, 2, 1)  # of each target: one tick ago, now
    found = _by_view(maps, _later(sample, 2))[:, :, 0]
    assert found[:, 0].tolist() == [1, 3, 5, 7, 9]
    np.testing.assert_array_equal(found[:, 1], [2, 4, np.nan, 8, np.nan])


def unfolded(changes: np.ndarray, corner: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Undo `view_changes` as the page does."""
    views = changes.reshape(-1, 15, 15).copy()
    first = np.cumsum(lengths) - lengths
    for tick in range(len(views)):
        if tick in first:
            continue
        down, right = corner[tick] - corner[tick - 1]
        for row in range(15):
            for col in range(15):
                if 0 <= row + down < 15 and 0 <= col + right < 15:
                    views[tick, row, col] ^= views[tick - 1, row + down, col + right]
    return views.reshape(-1, 225)


def test_views_can_be_restored_from_their_changes() -> None:
    random = np.random.default_rng(2)
    material = random.integers(0, 16, (12, 225)).astype(np.uint8)
    corner = np.cumsum(random.integers(-2, 3, (12, 2)), axis=0)
    corner[9] += 40  # a jump
    lengths = np.array([5, 7])
    changes = view_changes(material, corner, lengths)
    assert (unfolded(changes, corner, lengths) == material).all()
    still = view_changes(material[:1].repeat(4, axis=0), np.zeros((4, 2), int), np.array([4]))
    assert (still[0] == material[0]).all() and not still[1:].any()


@pytest.mark.slow
def test_six_thousand_rollouts_fit_into_thirty_megabytes(tmp_path: Path) -> None:
    text = panel_page(generated(tmp_path))
    assert len(text.encode()) < MOST_BYTES


def generated(folder: Path) -> Panel:
    """Rollouts with the noise and the number of entities of recorded ones, without their regularities."""
    random = np.random.default_rng(3)
    count = ROLLOUTS * TICKS
    lengths = np.full(ROLLOUTS, TICKS)
    world = random.integers(0, 16, (40, 40)).repeat(4, axis=0).repeat(4, axis=1).astype(np.uint8)
    steps = np.array([[0, 0], [0, 1], [1, 0], [0, -1], [-1, 0]])[random.integers(0, 5, (ROLLOUTS, TICKS))]
    corner = (random.integers(0, 145, (ROLLOUTS, 1, 2)) + np.cumsum(steps, axis=1)).clip(0, 144).reshape(-1, 2)
    row, col = np.divmod(np.arange(225), 15)
    material = world[corner[:, :1] + row, corner[:, 1:] + col]
    entities = random.poisson(4, count)
    total = int(entities.sum())
    tables: dict[str, np.ndarray] = {
        "entity.count": entities, "entity.kind": random.integers(0, 4, total),
        "entity.id": random.integers(-200, 128, total), "entity.health": random.integers(1, 101, total),
        "entity.down": random.integers(-7, 8, total), "entity.right": random.integers(-7, 8, total),
        "attack.target": np.full(count, -1), "entity.row": np.zeros(total, int),
    }  # fmt: skip
    moving = np.cumsum(random.normal(0, 0.4, (ROLLOUTS, TICKS, COMPONENTS)), axis=1).reshape(count, -1)
    places = {name: np.repeat(np.arange(ROLLOUTS), TICKS) for name in ("env_id", "agent_id", "episode")}
    places |= {name: np.tile(np.arange(TICKS), ROLLOUTS) for name in ("tick", "step")}
    shares = random.dirichlet(np.ones(5), count).astype(np.float32)
    words = [f"moves {each}, attacks player {who}" for each, who in random.integers(0, 90, (count, 2)).tolist()]
    ticks = Ticks(
        places, material, corner, tables,
        {name: random.integers(0, 101, count) for name in ("health", "food", "water")}, words,
        random.normal(0, 1, count).astype(np.float32), np.zeros(count, np.float32),
        random.random((count, 3)).astype(np.float32), {"Move.Direction": shares},
        {"components": moving.astype(np.float32)},
    )  # fmt: skip
    behaviour = random.integers(0, BEHAVIOURS, count // 4).repeat(4)
    metadata = DumpMetadata(
        "planted", "agent", None, None, {"lstm_cell": 8}, ("id",), ("id",), (ActionHead("Move.Direction", 5, 4),), {},
        10, 0,
    )  # fmt: skip
    source = Source(folder, metadata, "0" * 64, None)
    return Panel(
        planted_dynamics(folder, random), (source,), (), CarryingRule(*(np.zeros(0),) * 4, 1, None),
        np.zeros(ROLLOUTS, int), np.tile(np.arange(ROLLOUTS)[:, None], 3), lengths,
        main_behaviours(behaviour, lengths, BEHAVIOURS), random.normal(size=(ROLLOUTS, 2)).astype(np.float32), ticks,
        behaviour, np.ones(count, bool), (),
    )  # fmt: skip


def planted_dynamics(folder: Path, random: Any) -> Dynamics:
    shape = (BEHAVIOURS, LAGS + 1, COMPONENTS, COMPONENTS)
    components = tuple(Component(f"ic_{k + 1}", 0.05, 0.9, "self_food +0.20") for k in range(COMPONENTS))
    labels = ClusterRun(folder, {}, "", "", {}, np.zeros(0, int))
    return Dynamics(
        folder, folder, RunDescription(), "planted", "lstm_cell", components, np.zeros((COMPONENTS, 8), np.float32),
        np.zeros(COMPONENTS), np.zeros(8), np.ones(8), labels, ("more self_food (d +0.3)",) * BEHAVIOURS,
        np.full(BEHAVIOURS, 1 / BEHAVIOURS), 0.5, random.uniform(-1, 1, shape), random.random(shape) < 0.1,
        random.normal(size=shape), np.full(BEHAVIOURS, 50),
    )  # fmt: skip
