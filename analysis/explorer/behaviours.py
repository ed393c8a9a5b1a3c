"""The behaviour of ticks that a run of analyze_dynamics.py did not follow, and a plane of rollouts."""

from collections.abc import Mapping

import numpy as np

from activation_store.lives import life_keys, places_of
from activation_store.reader import Progress, read_dump
from activation_store.selection import OBSERVATIONS
from analysis.clusters.projection import umap_embedding
from analysis.labels import NOISE
from analysis.lives import lives_of, places_among
from analysis.runs.dynamics_run import Dynamics
from analysis.runs.propagated_labels import CarryingRule, rule_from
from common.user_error import UserError

STEPS = (2, 4, 6)
"""Ticks over which analyze_dynamics.py takes differences of the state."""
_NEIGHBOURS = 15
_MIN_DIST = 0.1
_FEWEST_FOR_UMAP = 10


def trajectories(z: np.ndarray) -> np.ndarray:
    """Return each state of a life beside its differences from those 2, 4 and 6 ticks before, (n, U) to (n, 4 U).

    Before the sixth tick the differences are from the life's first state: such ticks have no behaviour, only a place.
    """
    place = np.arange(len(z))
    return np.concatenate([z, *(z - z[np.maximum(place - step, 0)] for step in STEPS)], axis=1)


def has_behaviour(ticks: int) -> np.ndarray:
    """Return which ticks of a life have enough ticks before them for a behaviour, (ticks,) bool."""
    return np.arange(ticks) >= max(STEPS)


def fit_rule(dynamics: Dynamics, progress: Progress) -> CarryingRule:
    """Learn to tell behaviours from trajectories, by the lives that the run followed.

    Raises:
        UserError: the dump cannot be read, or lacks these lives.
    """
    places, label = dynamics.behaviours.places, dynamics.behaviours.label
    records = read_dump(
        dynamics.dump, layers=list(dynamics.behaviour_layers), columns=[], leave_out=[*OBSERVATIONS, "tables"],
        lives=np.unique(life_keys(places), axis=0).tolist(), progress=progress,
    )  # fmt: skip
    lives = lives_of(records)
    points = dynamics.points(records.activations)
    windows = np.empty((len(records), (len(STEPS) + 1) * points.shape[1]), np.float32)
    for start, length in zip(lives.starts, lives.lengths, strict=True):
        rows = lives.order[start : start + length]
        windows[rows] = trajectories(points[rows])
    place = places_among(places, places_of(records))
    if (place < 0).any():
        raise UserError(f"{dynamics.path} labels records that {dynamics.dump} does not hold: analyse the dump again")
    kept = label >= 0
    return rule_from(windows[place[kept]], label[kept], lives.index[place[kept]])


def states_of_life(
    dynamics: Dynamics, rule: CarryingRule, activations: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return components, the place of trajectories, and whether there is a behaviour, of the states of one life.

    Args:
        activations: of each layer that the run is about, in order of ticks, (n, units).
    """
    moving = trajectories(dynamics.points(activations))
    return {
        "components": dynamics.scores(activations[dynamics.layer]).astype(np.float32),
        "trajectory": (moving - rule.mean) @ rule.components.T, "moving": has_behaviour(len(moving)),
    }  # fmt: skip


def behaviours_of(rule: CarryingRule, ticks: Mapping[str, np.ndarray]) -> np.ndarray:
    """Label trajectories by the vote of the nearest labelled ones, (T,) int64; `NOISE` where there is none.

    Args:
        ticks: as `states_of_life` returns, of T ticks.
    """
    label = np.full(len(ticks["moving"]), NOISE)
    some = np.flatnonzero(ticks["moving"])
    for part in np.array_split(some, max(1, len(some) // 20_000)):
        if len(part):
            label[part] = rule.labels_along(ticks["trajectory"][part])
    return label


def main_behaviours(label: np.ndarray, lengths: np.ndarray, count: int) -> np.ndarray:
    """Return the commonest behaviour of each rollout, (R,) int64; `NOISE` where no tick has one.

    Args:
        label: of each tick, rollout by rollout, (T,).
        lengths: ticks of each rollout, (R,).
    """
    rollout = np.repeat(np.arange(len(lengths)), lengths)
    known = label >= 0
    votes = np.bincount(rollout[known] * count + label[known], minlength=len(lengths) * count).reshape(-1, count)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), NOISE)


def plane(trajectory: np.ndarray, label: np.ndarray, lengths: np.ndarray, main: np.ndarray, seed: int) -> np.ndarray:
    """Place rollouts in a plane, (R, 2) float32: UMAP of the mean trajectory over the ticks of the main behaviour.

    Args:
        trajectory: of each tick, along principal components, (T, C).
        label: of each tick, (T,).
        lengths: ticks of each rollout, (R,).
        main: as `main_behaviours`.
    """
    rollout = np.repeat(np.arange(len(lengths)), lengths)
    own = label == main[rollout]
    count = np.bincount(rollout[own], minlength=len(lengths))
    means = [np.bincount(rollout[own], column[own], len(lengths)) / count for column in trajectory.T]
    points = np.stack(means, axis=1).astype(np.float32)
    if len(points) < _FEWEST_FOR_UMAP or np.ptp(points, axis=0).max() == 0:
        return np.pad(points, ((0, 0), (0, 2)))[:, :2]
    return umap_embedding(points, min(_NEIGHBOURS, len(points) - 1), _MIN_DIST, seed)
