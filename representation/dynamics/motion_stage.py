"""Consecutive states: behaviours and lagged correlations."""

import numpy as np

from activation_store.schema import DumpMetadata
from analysis.clusters.dataset import Step
from analysis.features import Feature, feature_matrix
from analysis.statistics.differences import cluster_differences
from analysis.statistics.inference import Inference
from representation.dynamics.agreement import LaggedCorrelations, lagged_correlations
from representation.dynamics.behaviour_agreement import BehaviourPair, pairs_of
from representation.dynamics.behaviour_space import BehaviourSpace, space_of
from representation.dynamics.behaviours import Behaviours, find_behaviours
from representation.dynamics.results import Motion, States
from representation.dynamics.settings import DynamicsSettings
from representation.dynamics.tracks import Tracks, read_tracks
from representation.dynamics.update import Update
from representation.parts import Parts
from user_error import UserError


def study_motion(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...], states: States,
    update: Update | None, parts: Parts, step: Step,
) -> Motion:  # fmt: skip
    """Read whole lives and study how their states follow from each other.

    Raises:
        UserError: no life drawn is longer than `--lags`.
    """
    with step(f"reading {settings.lives} lives") as progress:
        tracks = read_tracks(
            settings.dump, metadata, update, settings.layer, settings.lives, settings.seed, progress,
            settings.behaviour_layers,
        )  # fmt: skip
    if not len(tracks.with_ticks_around(0, settings.lags)):
        raise UserError(f"--lags is {settings.lags}: no life drawn is long enough; lower it or extract longer episodes")
    z = states.scale.z(tracks.layer)
    scores = z @ states.decompositions["ica"].axes.read_outs.T
    values = feature_matrix(tracks.records, metadata, features)
    space = space_of(tracks, settings.behaviour_layers, {settings.layer: states.scale})
    behaviours = _behaviours(tracks, space, "behaviours", settings, parts, step)
    pairs = _pairs(tracks, space, behaviours, settings, parts, step)
    with step(f"comparing {behaviours.count} behaviours"):
        inference = Inference(settings.permutations, settings.permutations, seed=settings.seed)
        differences = cluster_differences(
            values, behaviours.label, tracks.lives, tracks.records.tick, tracks.records.episode, inference
        )
    correlations = _correlations(tracks, scores, behaviours, settings, parts, step)
    return Motion(tracks, scores, space, behaviours, pairs, differences, correlations)


def _behaviours(
    tracks: Tracks, space: BehaviourSpace, part: str, settings: DynamicsSettings, parts: Parts, step: Step
) -> Behaviours:
    with step(f"behaviours of {' and '.join(space.layers)} in {len(tracks):,} ticks"):
        stored = parts.arrays(
            part,
            lambda: {
                name: np.asarray(value)
                for name, value in vars(
                    find_behaviours(tracks, space, settings.behaviours, min(settings.bootstraps, 5), settings.seed)
                ).items()
            },
        )
    return Behaviours(
        stored["label"], float(stored["explained"]), stored["agreement"], stored["agreement_floor"], stored["kept"]
    )


def _pairs(
    tracks: Tracks, space: BehaviourSpace, behaviours: Behaviours, settings: DynamicsSettings, parts: Parts, step: Step
) -> list[BehaviourPair]:
    """Compare behaviours of several layers with those of each alone; nothing for those of one layer."""
    if len(space.layers) == 1:
        return []
    found = {space.name: behaviours}
    for name in space.layers:
        found[name] = _behaviours(tracks, space_of(tracks, [name], {}), f"behaviours-{name}", settings, parts, step)
    with step("comparing behaviours of layers together and alone") as progress:
        return pairs_of(found, tracks, settings.permutations, settings.seed, progress)


def _correlations(
    tracks: Tracks, scores: np.ndarray, behaviours: Behaviours, settings: DynamicsSettings, parts: Parts, step: Step
) -> LaggedCorrelations:
    with step("lagged correlations") as progress:
        stored = parts.arrays(
            "correlations",
            lambda: vars(
                lagged_correlations(
                    tracks, scores, behaviours, settings.lags, settings.permutations, settings.seed, progress
                )
            ),
        )
    return LaggedCorrelations(**stored)
