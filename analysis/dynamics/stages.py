"""What consecutive states show: behaviours, correlations, Jacobians, and how long the memory keeps something.

How long is asked of changes of components and of observations; and where the memory settles for held input.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout
from analysis.dynamics.behaviours import BehaviourPair, Behaviours, Space, find_behaviours, pairs_of, space_of
from analysis.dynamics.fixed_points import FixedPoints, find_fixed_points
from analysis.dynamics.jacobians import (
    Agreement,
    Probes,
    lagged_correlations,
    lagged_jacobians,
    layer_jacobian,
    sign_agreement,
    slow_modes,
    spectra,
)
from analysis.dynamics.memory_length import MemoryLength, memory_length, read_observations, situations
from analysis.dynamics.perturbations import Lasting, distances, lasting
from analysis.dynamics.settings import DynamicsSettings
from analysis.dynamics.states_stage import StudiedStates
from analysis.dynamics.tracks import Tracks, evenly, read_tracks, tensor
from analysis.dynamics.update import Update
from analysis.features import Feature, feature_matrix
from analysis.recorded.recorded_observation import check_shows_everything
from analysis.runs.run_folder import Parts
from analysis.statistics.circular_shift import ShiftedCorrelations, shifted_correlations
from analysis.statistics.effect_intervals import Differences, cluster_differences
from common.progress_view import Step
from common.user_error import UserError

MODES = 8
"""Slow modes that are described."""
STARTS = 48
"""States from which fixed points are looked for, for each held input."""
_BEHAVIOURS_HELD = 4


@dataclass(frozen=True, eq=False)
class Motion:
    """What consecutive states show. N records of whole lives."""

    tracks: Tracks
    scores: np.ndarray  # independent components of their states, (N, K)
    space: Space  # of the states whose trajectories are behaviours
    behaviours: Behaviours
    # pairs: how far behaviours of several layers agree with those of each alone; empty for those of one layer
    pairs: list[BehaviourPair]
    differences: Differences
    r: np.ndarray  # correlations of components, by behaviour and lag: see `lagged_correlations`
    q: np.ndarray  # likewise


@dataclass(frozen=True, eq=False)
class Effects:
    """What the policy's own update says of its memory."""

    jacobian_records: np.ndarray  # where Jacobians were computed, (n,)
    jacobians: np.ndarray  # of the components at each of them, (n, L, K, K)
    agreement: list[Agreement]
    eigenvalues: np.ndarray  # of the one-tick Jacobian of the whole memory at some records, (m, S)
    modes: np.ndarray  # eigenvalues of the slowest modes of the layer's mean Jacobian, (modes,): see `slow_modes`
    mode_read_outs: np.ndarray  # (modes, U)
    mode_associations: ShiftedCorrelations  # with the features, (modes, F)


def study_motion(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...], states: StudiedStates,
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
    scores = states.decompositions["ica"].scores(z)
    values = feature_matrix(tracks.records, metadata, features)
    space = space_of(tracks, settings.behaviour_layers, {settings.layer: states.scale})
    behaviours = _behaviours(tracks, space, "behaviours", settings, parts, step)
    pairs = _pairs(tracks, space, behaviours, settings, parts, step)
    with step(f"comparing {behaviours.count} behaviours"):
        differences = cluster_differences(
            values, behaviours.label, tracks.lives, tracks.records.tick, tracks.records.episode, settings.inference
        )
    with step("lagged correlations") as progress:
        correlate = partial(
            lagged_correlations, tracks, scores, behaviours.label, behaviours.count, settings.lags,
            settings.permutations, settings.seed, progress,
        )  # fmt: skip
        found = parts.arrays("correlations", lambda: dict(zip(("r", "q"), correlate(), strict=True)))
    return Motion(tracks, scores, space, behaviours, pairs, differences, found["r"], found["q"])


def _behaviours(
    tracks: Tracks, space: Space, part: str, settings: DynamicsSettings, parts: Parts, step: Step
) -> Behaviours:
    with step(f"behaviours of {' and '.join(space)} in {len(tracks):,} ticks"):
        few = min(settings.bootstraps, 5)
        return parts.data(
            part, Behaviours, lambda: find_behaviours(tracks, space, settings.behaviours, few, settings.seed)
        )


def _pairs(
    tracks: Tracks, space: Space, behaviours: Behaviours, settings: DynamicsSettings, parts: Parts, step: Step
) -> list[BehaviourPair]:
    """Compare behaviours of several layers with those of each alone; nothing for those of one layer."""
    if len(space) == 1:
        return []
    by_space = {"+".join(space): behaviours}
    for name in space:
        by_space[name] = _behaviours(tracks, space_of(tracks, [name], {}), f"behaviours-{name}", settings, parts, step)
    with step("comparing behaviours of layers together and alone") as progress:
        return pairs_of(by_space, tracks, settings.permutations, settings.seed, progress)


def independent_probes(states: StudiedStates, layer: str) -> Probes:
    """Return how the independent components are read from raw activations, and what one unit of each adds to them."""
    axes, spread = states.decompositions["ica"], states.scale.spread
    return Probes(layer, axes.read_outs / spread, axes.patterns * spread)


def study_effects(
    settings: DynamicsSettings, states: StudiedStates, motion: Motion, update: Update, parts: Parts, step: Step
) -> Effects:
    """Differentiate the policy's update along the lives that were read."""
    tracks, data = motion.tracks, states.data
    probes = independent_probes(states, settings.layer)
    records = jacobian_records(tracks, motion.behaviours, settings)
    with step(f"Jacobians of {len(records):,} states over {settings.lags} ticks") as progress:
        jacobians = parts.arrays(
            "jacobians", lambda: {"of lags": lagged_jacobians(update, tracks, records, probes, settings.lags, progress)}
        )["of lags"]
    agreement = sign_agreement(motion.r, motion.q, jacobians, motion.behaviours.label[records], settings.seed)
    some = evenly(records, settings.spectrum_states)
    with step(f"eigenvalues of the memory's Jacobian at {len(some)} states") as progress:
        eigenvalues = parts.arrays("spectra", lambda: {"of states": spectra(update, tracks, some, progress)})
    with step("slow modes") as progress:
        mean = parts.arrays(
            "mean", lambda: {"of states": layer_jacobian(update, tracks, some, settings.layer, progress)}
        )
    modes, read_outs = slow_modes(mean["of states"], MODES)
    activity = data.activations @ np.stack(list(read_outs), axis=1)
    associations = shifted_correlations(
        activity, data.values, data.lives, settings.permutations, settings.seed, episode=data.records.episode
    )
    return Effects(records, jacobians, agreement, eigenvalues["of states"], modes, read_outs, associations)


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


@dataclass(frozen=True, eq=False)
class Persisting:
    """How long things last."""

    records: np.ndarray  # ticks at which something was changed, or decided, (n,)
    lasting: list[Lasting]  # of each independent component, (K,)
    starts: np.ndarray  # states from which fixed points were looked for, (starts, S)
    held: dict[str, FixedPoints]  # where the memory settles, by the name of the held input
    length: MemoryLength | str  # of the memory; or why it was not measured, if the dump lacks the observations


def study_persistence(
    settings: DynamicsSettings, metadata: DumpMetadata, policy: RecurrentPolicy, layout: ObservationLayout,
    states: StudiedStates, motion: Motion, update: Update, parts: Parts, step: Step,
) -> Persisting:  # fmt: skip
    """Follow changes of components and of observations, and find fixed points."""
    tracks, reach = motion.tracks, settings.reach
    # There are some with `reach` ticks around them: `check_lengths` refused lives that are too short for it.
    there = tracks.with_ticks_around(reach + 1, reach)
    drawn = np.random.default_rng([settings.seed, 9]).permutation(there)[: settings.followed_states]
    records = np.sort(drawn)  # ticks to follow changes from
    probes = independent_probes(states, settings.layer)
    with step(f"following changes of {len(probes.patterns)} components for {reach} ticks") as progress:
        added = [tensor(pattern).expand_as for pattern in probes.patterns]
        columns = {"layer": torch.arange(update.size)[update.place(settings.layer)]}
        apart = parts.arrays(
            "perturbations",
            lambda: distances(update, tracks, records, settings.layer, added, columns, reach, progress),
        )["layer"]  # fmt: skip
    life = tracks.lives.index[records]
    kept = [lasting(distance, life, settings.seed) for distance in apart]
    starts = tracks.state[evenly(records, STARTS)]
    held = _held(motion, update, starts, parts, step)
    length = _length(settings, metadata, policy, layout, tracks, update, records, parts, step)
    return Persisting(records, kept, starts, held, length)


def _held(motion: Motion, update: Update, starts: np.ndarray, parts: Parts, step: Step) -> dict[str, FixedPoints]:
    """Find fixed points for the mean input of all ticks, and of each of the largest behaviours."""
    tracks, label = motion.tracks, motion.behaviours.label
    inputs = {"mean of all ticks": tracks.read.mean(axis=0)}
    for number in range(min(_BEHAVIOURS_HELD, motion.behaviours.count)):
        inputs[f"mean of behaviour {number}"] = tracks.read[label == number].mean(axis=0)
    held = {}
    for number, (name, read) in enumerate(inputs.items()):
        with step(f"fixed points for the {name}") as progress:
            compute = partial(find_fixed_points, update, read, starts, progress)
            held[name] = parts.data(f"settled-{number}", FixedPoints, compute)
    return held


def _length(
    settings: DynamicsSettings, metadata: DumpMetadata, policy: RecurrentPolicy, layout: ObservationLayout,
    tracks: Tracks, update: Update, records: np.ndarray, parts: Parts, step: Step,
) -> MemoryLength | str:  # fmt: skip
    try:
        check_shows_everything(settings.dump, layout)
    except UserError as error:
        return str(error)
    with step(f"memory length at {len(records)} decisions") as progress:

        def compute() -> MemoryLength:
            observation = read_observations(settings.dump, tracks, records, layout, policy)
            return memory_length(
                policy, update, tracks, situations(tracks.records, metadata), records, observation, settings.reach,
                settings.seed, progress,
            )  # fmt: skip

        return parts.data("length", MemoryLength, compute)
