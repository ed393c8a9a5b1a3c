"""Consecutive states: behaviours, lagged correlations, Jacobians and slow modes."""

import numpy as np

from activation_store.schema import DumpMetadata
from analysis.clusters.dataset import Step
from analysis.features import Feature, feature_matrix
from analysis.statistics.differences import cluster_differences
from analysis.statistics.inference import Inference
from analysis.statistics.shifted_correlations import shifted_correlations
from representation.dynamics.agreement import LaggedCorrelations, lagged_correlations, sign_agreement
from representation.dynamics.behaviours import Behaviours, find_behaviours
from representation.dynamics.jacobians import Probes, lagged_jacobians, layer_jacobian, slow_modes, spectra
from representation.dynamics.results import Motion, States
from representation.dynamics.settings import DynamicsSettings
from representation.dynamics.tracks import Tracks, read_tracks
from representation.dynamics.update import Update
from representation.parts import Parts
from user_error import UserError

MODES = 8
"""Slow modes that are described."""


def independent_probes(states: States, layer: str) -> Probes:
    """Return how the independent components are read from raw activations, and what one unit of each adds to them."""
    axes, spread = states.decompositions["ica"].axes, states.scale.spread
    return Probes(layer, axes.read_outs / spread, axes.patterns * spread)


def study_motion(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...], states: States, update: Update,
    parts: Parts, step: Step,
) -> Motion:  # fmt: skip
    """Read whole lives and study how their states follow from each other."""
    with step(f"reading {settings.lives} lives") as progress:
        tracks = read_tracks(settings.dump, metadata, update, settings.layer, settings.lives, settings.seed, progress)
    z, probes = states.scale.z(tracks.layer), independent_probes(states, settings.layer)
    scores = z @ states.decompositions["ica"].axes.read_outs.T
    values = feature_matrix(tracks.records, metadata, features)
    behaviours = _behaviours(tracks, z, settings, parts, step)
    with step(f"comparing {behaviours.count} behaviours"):
        inference = Inference(settings.permutations, settings.permutations, seed=settings.seed)
        differences = cluster_differences(
            values, behaviours.label, tracks.lives, tracks.records.tick, tracks.records.episode, inference
        )
    correlations = _correlations(tracks, scores, behaviours, settings, parts, step)
    records = jacobian_records(tracks, behaviours, settings)
    with step(f"Jacobians of {len(records):,} states over {settings.lags} ticks") as progress:
        jacobians = parts.arrays(
            "jacobians", lambda: {"found": lagged_jacobians(update, tracks, records, probes, settings.lags, progress)}
        )["found"]
    agreement = sign_agreement(correlations, jacobians, behaviours.label[records], settings.seed)
    some = records[:: max(1, len(records) // settings.spectrum_states)][: settings.spectrum_states]
    with step(f"eigenvalues of the memory's Jacobian at {len(some)} states") as progress:
        eigenvalues = parts.arrays("spectra", lambda: _as_real(spectra(update, tracks, some, progress)))
    with step("slow modes") as progress:
        mean = parts.arrays("mean", lambda: {"found": layer_jacobian(update, tracks, some, settings.layer, progress)})
    modes = slow_modes(mean["found"], MODES)
    activity = states.data.activations @ np.stack([mode.read_out for mode in modes], axis=1)
    data = states.data
    associations = shifted_correlations(
        activity, data.values, data.lives, settings.permutations, settings.seed, episode=data.records.episode
    )
    return Motion(
        tracks, scores, behaviours, differences, correlations, records, jacobians, agreement,
        eigenvalues["real"] + 1j * eigenvalues["imaginary"], modes, associations,
    )  # fmt: skip


def jacobian_records(tracks: Tracks, behaviours: Behaviours, settings: DynamicsSettings) -> np.ndarray:
    """Draw the states at which Jacobians are computed, ascending, (n,): in a behaviour, with all lags after them.

    Raises:
        UserError: there is none.
    """
    there = tracks.with_ticks_around(0, settings.lags)
    there = there[behaviours.label[there] >= 0]
    if not len(there):
        raise UserError(f"--lags is {settings.lags}: no life drawn is long enough; lower it or extract longer episodes")
    random = np.random.default_rng([settings.seed, 6])
    return np.sort(random.permutation(there)[: settings.states])


def _behaviours(tracks: Tracks, z: np.ndarray, settings: DynamicsSettings, parts: Parts, step: Step) -> Behaviours:
    with step(f"behaviours in {len(tracks):,} ticks"):
        stored = parts.arrays(
            "behaviours",
            lambda: {
                name: np.asarray(value)
                for name, value in vars(
                    find_behaviours(tracks, z, settings.behaviours, min(settings.bootstraps, 5), settings.seed)
                ).items()
            },
        )
    return Behaviours(stored["label"], float(stored["explained"]), stored["agreement"])


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


def _as_real(values: np.ndarray) -> dict[str, np.ndarray]:
    return {"real": values.real, "imaginary": values.imag}
