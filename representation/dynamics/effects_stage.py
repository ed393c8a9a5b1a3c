"""What the policy's own update says of its memory: Jacobians, how they agree with correlations, and slow modes."""

import numpy as np

from analysis.clusters.dataset import Step
from analysis.statistics.shifted_correlations import shifted_correlations
from representation.dynamics.agreement import sign_agreement
from representation.dynamics.behaviours import Behaviours
from representation.dynamics.jacobians import Probes, lagged_jacobians, layer_jacobian, slow_modes, spectra
from representation.dynamics.results import Effects, Motion, States
from representation.dynamics.settings import DynamicsSettings
from representation.dynamics.tracks import Tracks
from representation.dynamics.update import Update
from representation.parts import Parts
from user_error import UserError

MODES = 8
"""Slow modes that are described."""


def independent_probes(states: States, layer: str) -> Probes:
    """Return how the independent components are read from raw activations, and what one unit of each adds to them."""
    axes, spread = states.decompositions["ica"].axes, states.scale.spread
    return Probes(layer, axes.read_outs / spread, axes.patterns * spread)


def study_effects(
    settings: DynamicsSettings, states: States, motion: Motion, update: Update, parts: Parts, step: Step
) -> Effects:
    """Differentiate the policy's update along the lives that were read."""
    tracks, data = motion.tracks, states.data
    probes = independent_probes(states, settings.layer)
    records = jacobian_records(tracks, motion.behaviours, settings)
    with step(f"Jacobians of {len(records):,} states over {settings.lags} ticks") as progress:
        jacobians = parts.arrays(
            "jacobians", lambda: {"found": lagged_jacobians(update, tracks, records, probes, settings.lags, progress)}
        )["found"]
    agreement = sign_agreement(motion.correlations, jacobians, motion.behaviours.label[records], settings.seed)
    some = records[:: max(1, len(records) // settings.spectrum_states)][: settings.spectrum_states]
    with step(f"eigenvalues of the memory's Jacobian at {len(some)} states") as progress:
        eigenvalues = parts.arrays("spectra", lambda: _as_real(spectra(update, tracks, some, progress)))
    with step("slow modes") as progress:
        mean = parts.arrays("mean", lambda: {"found": layer_jacobian(update, tracks, some, settings.layer, progress)})
    modes = slow_modes(mean["found"], MODES)
    activity = data.activations @ np.stack([mode.read_out for mode in modes], axis=1)
    associations = shifted_correlations(
        activity, data.values, data.lives, settings.permutations, settings.seed, episode=data.records.episode
    )
    return Effects(
        records, jacobians, agreement, eigenvalues["real"] + 1j * eigenvalues["imaginary"], modes, associations
    )


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


def _as_real(values: np.ndarray) -> dict[str, np.ndarray]:
    return {"real": values.real, "imaginary": values.imag}
