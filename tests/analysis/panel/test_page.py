"""Parts of the panel on planted lives: rollouts, behaviours, maps by view; and how large the page gets."""

from pathlib import Path

import numpy as np
import pytest

from analysis.explorer.behaviours import behaviours_of, has_behaviour, main_behaviours, plane, trajectories
from analysis.labels import NOISE
from analysis.panel.page import panel_page, view_changes
from analysis.panel.ticks import choose, pieces, shared_out
from analysis.runs.propagated_labels import rule_from
from analysis.runs.saliency_maps import _by_view, _later, read_saliency
from tests.generated_panel import generated_panel
from tests.planted_panel import planted_saliency_run
from tests.recorded import Recording

MOST_BYTES = 30_000_000


def identity(lengths: list[int]) -> dict[str, np.ndarray]:
    agent = np.repeat(np.arange(len(lengths)), lengths)
    tick = np.concatenate([np.arange(length) for length in lengths])
    return {"env_id": agent, "agent_id": agent + 1, "episode": np.zeros_like(agent), "tick": tick}


def some(places: dict[str, np.ndarray], kept: np.ndarray) -> dict[str, np.ndarray]:
    return {name: item[kept] for name, item in places.items()}


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
    result = choose(places, 4, [followed], [mapped], seed=0)
    assert result.life[:, 1].tolist() == [3, 3, 2, 2]
    assert list(zip(result.start.tolist(), result.stop.tolist(), strict=True)) == [(8, 40), (0, 8), (0, 32), (32, 40)]
    assert len(choose(places, 100, [followed], [mapped], seed=0)) == 8
    assert len(choose(places, 3, [], [], seed=0)) == 3


@pytest.mark.parametrize(
    ("most", "there", "shares"),
    [(10, [20, 20], [5, 5]), (10, [3, 20], [3, 7]), (10, [20, 3], [7, 3]), (10, [4, 4], [4, 4]), (7, [9], [7])],
)
def test_rollouts_are_shared_out(most: int, there: list[int], shares: list[int]) -> None:
    assert shared_out(most, there) == shares


def test_behaviours_follow_the_nearest_labelled_trajectories_and_rollouts_the_commonest() -> None:
    z = np.arange(10, dtype=np.float32)[:, None] ** 2
    assert trajectories(z)[8].tolist() == [64, 64 - 36, 64 - 16, 64 - 4], "the state and its changes"
    assert trajectories(z)[0].tolist() == [0, 0, 0, 0]
    assert has_behaviour(8).tolist() == [False] * 6 + [True] * 2
    random = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 60)
    points = (10 * np.eye(3)[label] + random.normal(0, 0.5, (180, 3))).astype(np.float32)
    rule = rule_from(points, label, np.arange(180) % 6)
    asked = (10 * np.eye(3)[[2, 0, 1, 1, 0]] - rule.mean) @ rule.components.T
    moving = np.array([True, True, True, True, False])
    result = behaviours_of(rule, {"trajectory": asked, "moving": moving})
    assert result.tolist() == [2, 0, 1, 1, NOISE]
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
    centres = np.stack([place[main == case].mean(axis=0) for case in (0, 1)])
    nearest = np.linalg.norm(place[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == main).all()


def test_maps_are_turned_from_targets_to_views() -> None:
    sample = np.array([0, 0, 0, 1, 1])
    maps = np.arange(5 * 2, dtype=float).reshape(5, 2, 1)  # of each target: one tick ago, now
    result = _by_view(maps, _later(sample, 2))[:, :, 0]
    assert result[:, 0].tolist() == [1, 3, 5, 7, 9]
    np.testing.assert_array_equal(result[:, 1], [2, 4, np.nan, 8, np.nan])


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
    text = panel_page(generated_panel(tmp_path))
    assert len(text.encode()) < MOST_BYTES


def test_maps_that_an_older_version_checked_are_marked(recording: Recording, tmp_path: Path) -> None:
    now = read_saliency(planted_saliency_run(tmp_path / "now", recording.dump))
    before = read_saliency(planted_saliency_run(tmp_path / "before", recording.dump, {"failures": []}))
    (said,) = before.failures
    assert now.failures == () and said == "an older version checked them, too leniently: run saliency.py again"
