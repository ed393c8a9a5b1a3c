"""Behaviours of a run of analyze_dynamics.py: by vote at ticks that it did not follow, and as the base of a page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.lives import Places, life_keys, number_lives, places_of
from activation_store.reader import Progress, read_dump, read_episodes, read_metadata
from activation_store.recording import check_recorded
from activation_store.selection import OBSERVATIONS, select
from analysis.clusters.embeddings import umap_embedding
from analysis.clusters.settings import FEATURES_COMPARED
from analysis.dynamics.neighbours import STEPS
from analysis.explorer.base import Base, TickLabels
from analysis.features import features_named, with_heads_of
from analysis.labels import NOISE
from analysis.lives import lives_of, places_among
from analysis.runs.cluster_run import FinishedRun, read_cluster_run
from analysis.runs.dynamics_run import Dynamics
from analysis.runs.propagated_labels import CarryingRule, rule_from
from common.argument_checks import split
from common.progress_view import Step
from common.user_error import UserError

_ONLY_ACTIVATIONS = [*OBSERVATIONS, "tables"]
_NEIGHBOURS, _MIN_DIST = 15, 0.1
_FEWEST_FOR_UMAP = 10
_AT_ONCE = 20_000
_PERMUTATIONS = 299
_NOTHING = "nothing that survives"
"""How analyze_dynamics.py describes a behaviour of which no difference survives."""


def trajectories(z: np.ndarray) -> np.ndarray:
    """Return each state of a life beside its differences from those 2, 4 and 6 ticks before, (n, U) to (n, 4 U).

    Before the sixth tick the differences are from the life's first state: such ticks have no behaviour, only a place.
    """
    place = np.arange(len(z))
    return np.concatenate([z, *(z - z[np.maximum(place - step, 0)] for step in STEPS)], axis=1)


def has_behaviour(ticks: int) -> np.ndarray:
    """Return which ticks of a life have enough ticks before them for a behaviour, (ticks,) bool."""
    return np.arange(ticks) >= max(STEPS)


def labels_of_behaviours(dynamics: Dynamics, report: Progress) -> TickLabels:
    """Return the behaviours of the lives that a run followed, with the rule for other ticks; errors as `fit_rule`."""
    rule = fit_rule(dynamics, report)

    def by_rule(dump: Path, places: Places, report: Progress) -> np.ndarray:
        return voted(rule, *moving_states(dynamics, rule, dump, places, report))

    return TickLabels(dynamics.behaviours, rule, by_rule, "behaviour")


def fit_rule(dynamics: Dynamics, progress: Progress) -> CarryingRule:
    """Learn to tell behaviours from trajectories, by the lives that the run followed.

    Raises:
        UserError: the dump cannot be read, or lacks these lives.
    """
    places, label = dynamics.behaviours.places, dynamics.behaviours.label
    records = read_dump(
        dynamics.dump, layers=list(dynamics.behaviour_layers), columns=[], leave_out=_ONLY_ACTIVATIONS,
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
    rule = rule_from(windows[place[kept]], label[kept], lives.index[place[kept]])
    return replace(rule, states="trajectories; a life's first ticks have no behaviour")


def moving_states(
    dynamics: Dynamics, rule: CarryingRule, dump: Path, places: Places, report: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Return the trajectories to ticks, along the rule's components, (T, C), and which have a behaviour, (T,) bool.

    Raises:
        UserError: the dump does not hold the layers of the behaviours.
    """
    metadata, layers = read_metadata(dump), list(dynamics.behaviour_layers)
    for layer in layers:
        check_recorded(dump, metadata, layer)
    lives, _ = number_lives(places)
    wanted = select(dump, metadata, layers=layers, columns=[], leave_out=_ONLY_ACTIVATIONS, lives=lives.tolist())
    state, moving = (
        np.zeros((len(places["tick"]), len(rule.components)), np.float32),
        np.zeros(len(places["tick"]), bool),
    )
    for records in read_episodes(dump, metadata, wanted, report):
        points, own, at = (
            dynamics.points(records.activations),
            lives_of(records),
            places_among(places_of(records), places),
        )
        for start, length in zip(own.starts, own.lengths, strict=True):
            rows = own.order[start : start + length]
            kept = at[rows] >= 0
            state[at[rows][kept]] = ((trajectories(points[rows]) - rule.mean) @ rule.components.T)[kept]
            moving[at[rows][kept]] = has_behaviour(length)[kept]
    return state, moving


def voted(rule: CarryingRule, state: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """Label trajectories by the vote of the nearest labelled ones, (T,) int64; `NOISE` where there is no behaviour."""
    label = np.full(len(moving), NOISE)
    some = np.flatnonzero(moving)
    for start in range(0, len(some), _AT_ONCE):
        part = some[start : start + _AT_ONCE]
        label[part] = rule.labels_along(state[part])
    return label


def behaviour_base(dynamics: Dynamics, step: Step) -> Base:
    """Return a run of analyze_dynamics.py as the base of a page: its single states, in a plane of trajectories.

    Raises:
        UserError: the dump cannot be read, or lacks these states.
    """
    points = read_cluster_run(dynamics.path, dynamics.dump)
    with step("reading the lives that the run followed") as report:
        labels = labels_of_behaviours(dynamics, report)
    rule, count = labels.rule, len(points.label)
    assert isinstance(rule, CarryingRule)
    with step(f"behaviours of {count:,} points") as report:
        state, moving = moving_states(dynamics, rule, dynamics.dump, points.places, report)
        label, _ = labels.with_own(voted(rule, state, moving), points.places)
    with step(f"UMAP of {count:,} trajectories"):
        plane = trajectory_plane(state, dynamics.run.seed)
    named = replace(points, label=label)
    return FinishedRun(named, dynamics.dump, dynamics.run.seed, _summary(dynamics, label), plane), labels, state


def trajectory_plane(state: np.ndarray, seed: int) -> np.ndarray:
    """Place trajectories in a plane, (N, C) to (N, 2) float32: UMAP, or the first components where they are few."""
    if len(state) < _FEWEST_FOR_UMAP or np.ptp(state, axis=0).max() == 0:
        return np.pad(state, ((0, 0), (0, 2)))[:, :2].astype(np.float32)
    return umap_embedding(state, min(_NEIGHBOURS, len(state) - 1), _MIN_DIST, seed)


def described(dynamics: Dynamics, label: np.ndarray) -> list[dict[str, Any]]:
    """Describe behaviours as a run's summary describes clusters, given the behaviour of some ticks."""
    counts = np.bincount(label[label >= 0], minlength=len(dynamics.differences)).tolist()
    return [
        {
            "label": number, "records": counts[number], "share": counts[number] / max(1, len(label)), "effects": [],
            "description": words.replace(_NOTHING, "no feature differs clearly"),
        }
        for number, words in enumerate(dynamics.differences)
    ]  # fmt: skip


def _summary(dynamics: Dynamics, label: np.ndarray) -> dict[str, Any]:
    """Return what pages read of the summary of a run of analyze_activations.py."""
    arguments = dynamics.run.arguments
    named = features_named(split(str(arguments.get("features", FEATURES_COMPARED))))
    permutations = arguments.get("permutations")
    features = with_heads_of(read_metadata(dynamics.dump), named)
    return {
        "policy": dynamics.policy, "layer": " and ".join(dynamics.behaviour_layers),
        "noise_records": int((label < 0).sum()), "clusters": described(dynamics, label),
        "method": {"permutations": permutations if isinstance(permutations, int) else _PERMUTATIONS},
        "features": [{"name": one.name, "unit": one.unit, "definition": one.definition} for one in features],
    }  # fmt: skip
