"""Stages of an analysis of dynamics: single states, consecutive states, the policy's update, and how long things last.

Of single states: decompositions, outliers, clusters and a plane. Of consecutive ones: behaviours and correlations. How
long the memory keeps something is asked of changes of components and of observations.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ObservationLayout
from analysis.clusters.dataset import Dataset, read_dataset
from analysis.clusters.embeddings import tsne_embedding
from analysis.clusters.settings import AnalysisSettings
from analysis.dynamics.behaviours import (
    BehaviourPair,
    Behaviours,
    Space,
    find_behaviours,
    lagged_correlations,
    pairs_of,
    space_of,
)
from analysis.dynamics.decompositions import (
    MOST_FITTED,
    TITLES,
    Decomposition,
    Kind,
    Scale,
    above_gaussians,
    decompose,
)
from analysis.dynamics.fixed_points import FixedPoints, find_fixed_points, layer_jacobian, slow_modes, spectra
from analysis.dynamics.jacobians import Agreement, Probes, sign_agreement
from analysis.dynamics.memory_length import MemoryLength, memory_length, read_observations, situations
from analysis.dynamics.neighbours import (
    cluster_agreement,
    cluster_floor,
    explained_by,
    median_distance,
    outliers,
    plane_agreement,
    resampled_lives,
    ward_labels,
)
from analysis.dynamics.perturbations import Lasting, distances, lagged_jacobians, lasting
from analysis.dynamics.settings import MOST_PAIRED, DynamicsSettings
from analysis.dynamics.tracks import Tracks, Update, evenly, read_tracks, tensor
from analysis.features import Feature, feature_matrix
from analysis.lives import Lives
from analysis.recorded.recorded_observation import check_shows_everything
from analysis.runs.run_folder import Parts
from analysis.statistics.circular_shift import ShiftedCorrelations, correlations_given_time, shifted_correlations
from analysis.statistics.effect_intervals import Differences, cluster_differences
from analysis.statistics.stability import gaussian_surrogate
from common.progress_view import Step
from common.user_error import UserError

DIMENSIONS = 64
"""Principal components in which neighbours are looked for, at most, unless --components is more."""
_PERPLEXITY = 30.0
_TRUST_NEIGHBOURS = 15
MODES = 8
"""Slow modes that are described."""
STARTS = 48
"""States from which fixed points are looked for, for each held input."""
_BEHAVIOURS_HELD = 4


@dataclass(frozen=True, eq=False)
class StudiedStates:
    """What single states show. B records."""

    data: Dataset
    scale: Scale
    decompositions: dict[str, Decomposition]
    associations: dict[str, ShiftedCorrelations]  # of the components of each kind with the features, (K, F) each
    distance: np.ndarray  # median distance to the nearest neighbours, (B,), in z-scores of principal components
    outlier: np.ndarray  # (B,) bool
    outlier_agreement: float  # rank correlation of these distances with those to neighbours of half of the lives
    outlier_floor: float  # the same number of a Gaussian surrogate of the states
    label: np.ndarray  # Ward cluster of each record, (B,)
    explained: float  # share of the variance of all z-scores that lies between clusters
    agreement: np.ndarray  # adjusted Rand index with the clusters of each bootstrap of lives, (R,)
    agreement_floor: np.ndarray  # the same numbers of a Gaussian surrogate of the states, (R,)
    differences: Differences
    plane: np.ndarray  # t-SNE of some records, (n, 2)
    plane_records: np.ndarray  # these records, (n,)
    trustworthiness: float  # of the plane, 0 to 1 (Venna and Kaski 2001)
    plane_agreement: float  # share of neighbours in the plane that a second fit, to resampled lives, keeps
    plane_floor: float  # the same number of a Gaussian surrogate of the states


def study_states(
    settings: DynamicsSettings, metadata: DumpMetadata, features: tuple[Feature, ...], parts: Parts, step: Step
) -> StudiedStates:
    """Read the states, decompose and cluster them, and test what components and clusters go with."""
    reading = AnalysisSettings(
        settings.dump, subsample=settings.subsample, skip_first=settings.skip_first, layer=settings.layer,
        features=settings.features, permutations=settings.permutations, seed=settings.seed,
    )  # fmt: skip
    data = read_dataset(reading, metadata, features, step)
    scale = Scale.of(data.activations)
    z = scale.z(data.activations)
    decompositions: dict[str, Decomposition] = {}
    associations: dict[str, ShiftedCorrelations] = {}
    for kind in TITLES:
        decompositions[kind] = _decomposed(kind, z, data.lives, settings, parts, step)
        associate = partial(
            correlations_given_time, decompositions[kind].scores(z), data.values, data.lives, data.records.tick,
            settings.permutations, settings.seed, data.records.episode,
        )  # fmt: skip
        with step(f"testing {kind} components against features"):
            associations[kind] = parts.data(f"{kind}-features", ShiftedCorrelations, associate)
    wide = decompose("pca", z, min(max(DIMENSIONS, settings.components), *z.shape), settings.seed, [])
    points = wide.scores(z) * np.linalg.norm(wide.patterns, axis=1)  # principal components, not whitened
    near = _neighbours(points, data, settings, parts, step)
    label = near["label"]
    with step(f"comparing {label.max() + 1} clusters"):
        differences = cluster_differences(
            data.values, label, data.lives, data.records.tick, data.records.episode, settings.inference
        )
    plane = _plane(points, data, settings, parts, step)
    return StudiedStates(
        data, scale, decompositions, associations, near["distance"], outliers(near["distance"]),
        float(near["outlier_agreement"]), float(near["outlier_floor"]), label, explained_by(label, z),
        near["agreement"], near["floor"], differences, plane["points"], plane["records"],
        float(plane["trustworthiness"]), float(plane["agreement"]), float(plane["floor"]),
    )  # fmt: skip


def _decomposed(
    kind: Kind, whole: np.ndarray, all_lives: Lives, settings: DynamicsSettings, parts: Parts, step: Step
) -> Decomposition:  # fmt: skip
    """Decompose z-scores, and compare the stability of components with Gaussians, all on the same records."""
    count = settings.components if kind == "pca" else min(settings.components, MOST_PAIRED)
    z, lives = fewer_records(whole, all_lives, MOST_FITTED.get(kind, len(whole)))
    of = f"{len(z):,}" + (f" of {len(whole):,}" if len(z) < len(whole) else "")
    with step(f"{count} {TITLES[kind]} components of {of} states") as progress:

        def compute() -> Decomposition:
            resamples = resampled_lives(lives.index, settings.bootstraps, settings.seed)
            return decompose(kind, z, count, settings.seed, resamples, progress)

        decomposition = parts.data(kind, Decomposition, compute)
    with step(f"{TITLES[kind]} components of Gaussians of the same covariance and autocorrelation") as progress:

        def compare() -> dict[str, np.ndarray]:
            floor, q = above_gaussians(decomposition, z, lives, settings.seed, progress)
            return {"floor": floor, "stability_q": q}

        stored = parts.arrays(f"{kind}-gaussians", compare)
    return replace(decomposition, floor=stored["floor"], stability_q=stored["stability_q"])


def fewer_records(z: np.ndarray, lives: Lives, most: int) -> tuple[np.ndarray, Lives]:
    """Leave out records evenly along lives, so that at most so many are left, with their lives."""
    if len(z) <= most:
        return z, lives
    kept = np.zeros(len(z), bool)
    kept[evenly(lives.order, most)] = True
    return z[kept], lives.of_records(kept)


def _neighbours(
    points: np.ndarray, data: Dataset, settings: DynamicsSettings, parts: Parts, step: Step
) -> dict[str, np.ndarray]:
    """Find neighbours, outliers and Ward clusters, and how well they are found again, also in a Gaussian."""
    half = np.random.default_rng([settings.seed, 4]).random(len(data.lives))[data.lives.index] < 0.5

    def again(of: np.ndarray, median: np.ndarray) -> np.ndarray:
        from scipy.stats import spearmanr

        return np.array(spearmanr(median[half], median_distance(of[half])).statistic)

    def compute() -> dict[str, np.ndarray]:
        distance, drawn = median_distance(points), _surrogate(points, data, settings)
        label = ward_labels(points, settings.clusters)
        few = resampled_lives(data.lives.index, min(settings.bootstraps, 5), settings.seed)
        return {
            "distance": distance,
            "outlier_agreement": again(points, distance),
            "outlier_floor": again(drawn, median_distance(drawn)),
            "label": label,
            "agreement": cluster_agreement(points, label, settings.clusters, few),
            "floor": cluster_floor(points, settings.clusters, data.lives, few, settings.seed),
        }

    with step(f"outliers and {settings.clusters} clusters on a graph of neighbours"):
        return parts.arrays("neighbours", compute)


def _plane(
    points: np.ndarray, data: Dataset, settings: DynamicsSettings, parts: Parts, step: Step
) -> dict[str, np.ndarray]:
    """Embed some records with t-SNE, once more in resampled lives, and compare the two; then the same of a Gaussian."""
    random = np.random.default_rng([settings.seed, 5])
    count = min(settings.tsne_records, len(points))
    chosen = np.sort(random.choice(len(points), count, replace=False))
    lives = np.unique(data.lives.index[chosen])
    drawn = np.unique(random.choice(lives, len(lives)))
    (both,) = np.isin(data.lives.index[chosen], drawn).nonzero()

    def embedded(of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        plane, again = (
            tsne_embedding(of[records].astype(np.float32), min(_PERPLEXITY, (len(records) - 1) / 3), seed)
            for records, seed in ((chosen, settings.seed), (chosen[both], (settings.seed + 1) % 2**32))
        )
        return plane, np.array(plane_agreement(plane[both], again))

    def compute() -> dict[str, np.ndarray]:
        from sklearn.manifold import trustworthiness

        plane, agreement = embedded(points)
        return {
            "points": plane, "records": chosen,
            "trustworthiness": np.array(trustworthiness(points[chosen], plane, n_neighbors=_TRUST_NEIGHBOURS)),
            "agreement": agreement, "floor": embedded(_surrogate(points, data, settings))[1],
        }  # fmt: skip

    with step(f"t-SNE of {count:,} states, twice, and of a Gaussian's"):
        return parts.arrays("plane", compute)


def _surrogate(points: np.ndarray, data: Dataset, settings: DynamicsSettings) -> np.ndarray:
    return gaussian_surrogate(points, data.lives, np.random.default_rng([settings.seed, 8]))


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
    inputs, label = {"mean of all ticks": tracks.read.mean(axis=0)}, motion.behaviours.label
    for number in range(min(_BEHAVIOURS_HELD, motion.behaviours.count)):
        inputs[f"mean of behaviour {number}"] = tracks.read[label == number].mean(axis=0)
    held = {}
    for number, (name, read) in enumerate(inputs.items()):
        with step(f"fixed points for the {name}") as progress:
            compute = partial(find_fixed_points, update, read, starts, progress)
            held[name] = parts.data(f"settled-{number}", FixedPoints, compute)
    length: MemoryLength | str
    try:
        check_shows_everything(settings.dump, layout)
    except UserError as error:
        length = str(error)
    else:
        with step(f"memory length at {len(records)} decisions") as progress:
            length = parts.data("length", MemoryLength, lambda: memory_length(
                policy, update, tracks, situations(tracks.records, metadata), records,
                read_observations(settings.dump, tracks, records, layout, policy), settings.reach, settings.seed,
                progress,
            ))  # fmt: skip
    return Persisting(records, kept, starts, held, length)
