"""Behaviours on planted lives: how ticks get theirs by vote, and their plane; and what a reader says of maps."""

from pathlib import Path

import numpy as np
import pytest

from analysis.explorer.behaviours import has_behaviour, trajectories, trajectory_plane, voted
from analysis.labels import NOISE
from analysis.runs.propagated_labels import rule_from
from analysis.runs.saliency_maps import read_saliency
from tests.planted_dynamics import planted_saliency_run
from tests.recorded import Recording


def test_behaviours_follow_the_nearest_labelled_trajectories() -> None:
    z = np.arange(10, dtype=np.float32)[:, None] ** 2
    assert trajectories(z)[8].tolist() == [64, 64 - 36, 64 - 16, 64 - 4], "the state and its changes"
    assert trajectories(z)[0].tolist() == [0, 0, 0, 0]
    assert has_behaviour(8).tolist() == [False] * 6 + [True] * 2
    random = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 60)
    points = (10 * np.eye(3)[label] + random.normal(0, 0.5, (180, 3))).astype(np.float32)
    rule = rule_from(points, label, np.arange(180) % 6)
    asked = (10 * np.eye(3)[[2, 0, 1, 1, 0]] - rule.mean) @ rule.components.T
    assert voted(rule, asked, np.array([True, True, True, True, False])).tolist() == [2, 0, 1, 1, NOISE]


@pytest.mark.slow
def test_trajectories_that_are_alike_lie_together() -> None:
    random = np.random.default_rng(1)
    label = np.arange(60) % 2
    place = trajectory_plane((random.normal(0, 1, (60, 5)) + 30 * label[:, None]).astype(np.float32), seed=0)
    centres = np.stack([place[label == case].mean(axis=0) for case in (0, 1)])
    nearest = np.linalg.norm(place[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == label).all()


def test_few_trajectories_lie_along_their_first_components() -> None:
    state = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.array_equal(trajectory_plane(state, seed=0), state[:, :2])
    assert trajectory_plane(state[:, :1], seed=0).tolist() == [[0, 0], [3, 0], [6, 0], [9, 0]]


def test_maps_that_an_older_version_checked_are_marked(recording: Recording, tmp_path: Path) -> None:
    now = read_saliency(planted_saliency_run(tmp_path / "now", recording.dump))
    before = read_saliency(planted_saliency_run(tmp_path / "before", recording.dump, {"failures": []}))
    (message,) = before.failures
    assert now.failures == () and message == "an older version checked them, too leniently: run saliency.py again"
